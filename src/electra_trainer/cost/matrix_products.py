"""Operations of a forward pass that are really needed: matrix products alone, 2mkn each; look-ups are free. No torch here.

Attention counts as if every token saw its whole row; rows that hold several pieces, and decoders, need less.
"""

from electra_trainer.settings.config import Model


def encoder(model: Model, length: int) -> int:
    """Projection and layers, over one row."""
    h, e = model.hidden_size, model.embedding_size
    layer = attention(h, h, queries=length, keys=length) + feed_forward(model, length)
    project = 2 * h * e * length if e != h else 0
    return model.num_hidden_layers * layer + project


def attention(width: int, joined: int, *, queries: int, keys: int) -> int:
    """Queries and output of some tokens, keys and values of some (the same or others), scores and mixture.

    Args:
        width: of the hidden states.
        joined: of all heads together.
        queries: tokens that attend.
        keys: tokens that are attended to.
    """
    return 4 * width * joined * (queries + keys) + 4 * joined * queries * keys


def feed_forward(model: Model, tokens: int) -> int:
    """Two products a token."""
    return 4 * model.hidden_size * model.intermediate_size * tokens


def token_head(model: Model) -> int:
    """One position, through a dense layer and the vocabulary."""
    return 2 * model.embedding_size * model.hidden_size + vocabulary(model)


def vocabulary(model: Model) -> int:
    """One position's logits."""
    return 2 * model.embedding_size * model.vocab_size


def replaced_head(model: Model) -> int:
    """One token."""
    return 2 * model.hidden_size * (model.hidden_size + 1)
