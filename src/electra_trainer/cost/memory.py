"""Estimate the bytes that a run needs, and the bytes that a step moves. No torch here."""

from electra_trainer.cost.parameters import learned_generator, parameters, predicted, slots
from electra_trainer.settings.config import Config, Model

_BYTES = 4  # fp32
_STATE_COPIES = 4  # weight, gradient, and the optimizer's two moments
_LOGITS_AT_ONCE = 4_000_000  # where all tokens are predicted: objectives/vocabulary_softmax.py's chunk
_LOGITS_COPIES = 4  # logits, probabilities and their gradients


def memory_bytes(config: Config, *, processes: int = 1) -> int:
    """An estimate of the bytes that training needs at its peak, in fp32; within a quarter of what CPUs were seen to need.

    Args:
        config: the run.
        processes: number that divide weights, gradients and moments (`--shard`); the estimate is for one of them, and was not measured.

    Counted: weights, gradients and two moments of everything trainable; what the backward pass of one lane keeps of both
    networks, attention weights included, as where no fused attention kernel serves; the vocabulary-wide tensors at masked
    positions; two layers' worth of working space. Not counted: Python and its libraries (about 0.3 GB on a CPU) and the
    allocator's slack. bf16 and fused attention need less, and so does two-stage training, whose stages are not there at once.
    """
    model, generator, length = config.model, learned_generator(config), config.batch.sequence_length
    fixed = _STATE_COPIES * parameters(config).joint / processes + _joined_weights(model)
    if processes > 1:
        fixed += _together(config)
    row = length * _kept_embeddings(model) + (model.num_hidden_layers + 2) * length * _kept_layer(model, length)
    row += predicted(config) * _kept_token_head(model)
    if config.objective.predicts == "all":  # a chunk at a time
        fixed += _LOGITS_COPIES * _LOGITS_AT_ONCE
    else:
        row += predicted(config) * _LOGITS_COPIES * model.vocab_size
    if config.objective.uses_generator:
        row += 3 * length * model.hidden_size
    if generator is not None:
        fixed += _joined_weights(generator)
        row += length * _kept_embeddings(generator)
        row += generator.num_hidden_layers * length * _kept_layer(generator, length)
        row += slots(config) * (_kept_token_head(generator) + _LOGITS_COPIES * generator.vocab_size)
    return _BYTES * round(fixed + config.lane_size * row)


def state_bytes(config: Config) -> int:
    """Bytes of weights, gradients and moments alone, undivided."""
    return _BYTES * _STATE_COPIES * parameters(config).joint


def step_bytes(config: Config, *, width: int) -> float:
    """Bytes that one step moves to and from memory where pointwise work is fused, with activations of `width` bytes.

    Counted: what each product, fused attention, GELU and dropout + residual + LayerNorm of a layer reads and writes, nothing
    staying in a cache; weights, read forward and backward once a lane; gradients and the optimizer in fp32. Not counted:
    embeddings and logits, which can be computed in pieces that stay in a cache.
    """
    model, generator = config.model, learned_generator(config)
    layers = sum(m.num_hidden_layers * _moved_layer(m) for m in (model, generator) if m is not None)
    # weights forward and backward in `width` bytes; gradient written, and 4 reads and 3 writes of the optimizer, in fp32
    each_parameter = 2 * width * config.batch.lanes + 8 * _BYTES
    return float(width * config.tokens_per_step * layers + each_parameter * parameters(config).joint)


def _together(config: Config) -> int:
    """Elements that one of several processes has gathered at once: weights and gradients of two layers and of everything outside layers."""
    generator = learned_generator(config) if config.sharing != "all" else None
    layers = sum(m.num_hidden_layers * _matrices(m) for m in (config.model, generator) if m is not None)
    return 2 * (parameters(config).joint - layers + 2 * _matrices(config.model))


def _matrices(model: Model) -> int:
    """Elements of the matrices of a layer."""
    return model.hidden_size * (4 * model.hidden_size + 2 * model.intermediate_size)


def _joined_weights(model: Model) -> int:
    """Elements of the query, key and value weights joined for one product, which the backward pass needs."""
    return model.num_hidden_layers * 3 * model.hidden_size * model.hidden_size


def _moved_layer(model: Model) -> int:
    """Elements that a layer reads and writes for one token, forward (20h + 4i) and backward (38h + 7i).

    Forward: joined query, key and value 4h, attention 4h, its output 2h, two residual LayerNorms 4h each, feed-forward h + i
    and i + h, GELU 2i. Backward: each product twice, LayerNorms 4h each, residual sums 3h each, attention 8h, GELU 3i.
    """
    return 58 * model.hidden_size + 11 * model.intermediate_size


def _kept_layer(model: Model, length: int) -> float:
    """Elements at one token that the backward pass through a layer needs.

    Queries, keys, values and mixture (4h), two sums before a LayerNorm and two results (4h), two dropout masks of a byte
    (h/2), the feed-forward network's inside before and after GELU (2i), and for each head the attention weights before and
    after dropout with the mask (2.25 a pair of tokens).
    """
    return 8.5 * model.hidden_size + 2 * model.intermediate_size + 2.25 * model.num_attention_heads * length


def _kept_embeddings(model: Model) -> float:
    """Elements at one token: sum, LayerNorm, dropout mask, projection."""
    return 2.25 * model.embedding_size + model.hidden_size


def _kept_token_head(model: Model) -> int:
    """Elements at one predicted position, logits left out: the head's inside."""
    return model.hidden_size + 3 * model.embedding_size
