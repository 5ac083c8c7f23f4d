"""Operations of a forward pass over one row, counted as the authors did for Table 1 and Figure 2 (Appendix E). No torch here.

A product of [m, k] and [k, n] is 2mkn operations; embeddings are looked up by products with one-hot vectors; pointwise functions count
some operations an element. Only for comparison with the paper: products.py counts what is needed.
"""

from electra_trainer.settings.config import Model

# The authors' constants: operations per element of each pointwise function
_DROPOUT, _LAYER_NORM, _GELU, _SOFTMAX = 4, 5, 8, 5

OUTPUT_SHARE = 20 / 128
"""Share of the positions that masked language models send through the vocabulary, whatever is masked: 20 of 128, 80 of 512."""

NORM_SLIP = True
"""The authors count the LayerNorm after attention once a token instead of once a channel. True keeps their totals."""


def encoder(
    model: Model, length: int, *, attentions: int = 1, head_size: int | None = None, norm_slip: bool = NORM_SLIP
) -> float:
    """Embeddings and layers.

    Args:
        model: the shape.
        length: tokens a row.
        attentions: attentions in a layer: 2 in a decoder, whose second reads an encoder's states of the same length.
        head_size: width of a head where the heads together are wider than the hidden states (T5).
        norm_slip: see NORM_SLIP.
    """
    e, h = model.embedding_size, model.hidden_size
    layer = attentions * _attention(model, length, head_size, norm_slip) + _feed_forward(model)
    look_ups = 2 * e * (model.vocab_size + length + 2)
    project = 2 * h * e + h if e != h else 0
    embedding = look_ups + (2 + _LAYER_NORM + _DROPOUT) * e + project
    return float(length * (model.num_hidden_layers * layer + embedding))


def token_head(model: Model, length: int, *, share: float = OUTPUT_SHARE) -> float:
    """A share of the positions, through a dense layer and the vocabulary."""
    h, e, v = model.hidden_size, model.embedding_size, model.vocab_size
    slot = 2 * h * e + (1 + _GELU + _LAYER_NORM) * e + (2 * e + _SOFTMAX + 2) * v
    return length * share * slot


def replaced_head(model: Model, length: int) -> float:
    """A discriminator's head at every position; also what the authors put on an encoder to count its inference."""
    h = model.hidden_size
    return float(length * (2 * h * h + (1 + _GELU) * h + 2 * h))


def _attention(model: Model, length: int, head_size: int | None, norm_slip: bool) -> int:
    """One token's."""
    h, heads = model.hidden_size, model.num_attention_heads
    joined = h if head_size is None else heads * head_size
    # queries, keys and values; scores; mixture and output, which the authors count h wide also where the heads are wider
    products = 6 * h * joined + 2 * joined * length + 2 * h * length + 2 * h * h
    on_scores = (1 + _SOFTMAX + _DROPOUT) * length * heads
    biases = 3 * joined + h
    return products + on_scores + biases + (_DROPOUT + 1) * h + _LAYER_NORM * (1 if norm_slip else h)


def _feed_forward(model: Model) -> int:
    """One token's."""
    h, i = model.hidden_size, model.intermediate_size
    return 4 * h * i + (1 + _GELU) * i + h + (_DROPOUT + 1) * h + _LAYER_NORM * h
