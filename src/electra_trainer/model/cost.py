"""What a run costs, from its configuration alone: parameters, operations, memory. No torch here.

Operations are counted in two ways, and every number says which:

    paper  as the authors' script did for Table 1 and Figure 2: backward = forward, embeddings looked up by dense one-hot
           products, pointwise operations included. Only for comparison with the paper.
    real   matrix products alone, as they are done here: look-ups are free, the token head sees masked positions only,
           backward = 2 x forward. For hours and hardware utilisation.

A product of [m, k] and [k, n] is 2mkn operations in both.
"""

from __future__ import annotations

from dataclasses import dataclass

from electra_trainer.config import MLM, Config, Model, generator_shape

# The authors' constants: operations per element of each pointwise function
_DROPOUT, _LAYER_NORM, _GELU, _SOFTMAX = 4, 5, 8, 5
# ... and the share of positions they send through the vocabulary: 20 of 128, 80 of 512
_PAPER_OUTPUT_SHARE = 20 / 128
# Their script counts the LayerNorm after attention once a token instead of once a channel. True keeps their totals.
_PAPER_NORM_SLIP = True

_BYTES = 4  # fp32
_STATE_COPIES = 4  # weight, gradient, and the optimizer's two moments


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trainable parameters of a run, shared embeddings counted once."""

    embeddings: int
    """Word, position and segment tables and their LayerNorm; shared by both networks."""
    encoder: int
    """The kept network's projection and layers, without embeddings."""
    head: int
    """The kept network's pre-training head."""
    generator_encoder: int
    """The generator's own projection and layers; 0 without a generator."""
    generator_head: int
    """The generator's own token head, tied to the embeddings; 0 without a generator."""

    @property
    def backbone(self) -> int:
        """What is fine-tuned: embeddings and encoder."""
        return self.embeddings + self.encoder

    @property
    def kept(self) -> int:
        """The exported network: ELECTRA's discriminator, or BERT with its token head."""
        return self.backbone + self.head

    @property
    def generator(self) -> int:
        """The generator on its own, embeddings included; 0 without a generator."""
        own = self.generator_encoder + self.generator_head
        return self.embeddings + own if own else 0

    @property
    def joint(self) -> int:
        """Everything that is trained."""
        return self.kept + self.generator_encoder + self.generator_head


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Operations, counted as the paper did and as they are done; see the top of this file."""

    paper: float
    real: float


def parameters(config: Config) -> Parameters:
    """Trainable parameters of `config`'s networks."""
    model, generator = config.model, _generator(config)
    width = model.embedding_size
    rows = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    replaced_head = model.hidden_size * (model.hidden_size + 1) + model.hidden_size + 1
    return Parameters(
        embeddings=rows * width + 2 * width,
        encoder=_encoder_parameters(model),
        head=replaced_head if generator else _token_head_parameters(model),
        generator_encoder=_encoder_parameters(generator) if generator else 0,
        generator_head=_token_head_parameters(generator) if generator else 0,
    )


def step_flops(config: Config) -> Flops:
    """Operations of one optimizer step: forward and backward over the whole batch, the optimizer itself left out.

    Attention counts as if every token saw its whole row; rows that hold several pieces need less.
    """
    model, generator, length = config.model, _generator(config), config.batch.sequence_length
    slots = max(1, round(config.masking.fraction * length))
    if generator is None:
        paper = _paper_encoder(model, length) + _paper_token_head(model, length)
        real = _real_encoder(model, length) + slots * _real_token_head(model)
    else:
        paper = _paper_encoder(model, length) + _paper_replaced_head(model, length)
        paper += _paper_encoder(generator, length) + _paper_token_head(generator, length)
        real = _real_encoder(model, length) + length * _real_replaced_head(model)
        real += _real_encoder(generator, length) + slots * _real_token_head(generator)
    return Flops(paper=2 * paper * config.batch.size, real=3.0 * real * config.batch.size)


def infer_flops(config: Config, *, sequence_length: int = 128) -> Flops:
    """Operations of one forward pass of the kept encoder over one row, with a binary head as in Table 1's column."""
    model = config.model
    return Flops(
        paper=_paper_encoder(model, sequence_length) + _paper_replaced_head(model, sequence_length),
        real=float(_real_encoder(model, sequence_length) + sequence_length * _real_replaced_head(model)),
    )


def memory_bytes(config: Config) -> int:
    """An estimate of the bytes that training needs at its peak, in fp32; within a quarter of what CPUs were seen to need.

    Counted: weights, gradients and two moments of everything trainable; what the backward pass of one lane keeps of both
    networks, attention weights included, as where no fused attention kernel serves; the vocabulary-wide tensors at masked
    positions; two layers' worth of working space. Not counted: Python and its libraries (about 0.3 GB on a CPU) and the
    allocator's slack. bf16 and fused attention need less.
    """
    model, generator, length = config.model, _generator(config), config.batch.sequence_length
    slots = max(1, round(config.masking.fraction * length))
    fixed = _STATE_COPIES * parameters(config).joint + _joined_weights(model)
    row = length * _kept_embeddings(model) + (model.num_hidden_layers + 2) * length * _kept_layer(model, length)
    if generator is None:
        row += slots * _kept_token_head(model)
    else:
        fixed += _joined_weights(generator)
        row += length * (3 * model.hidden_size + _kept_embeddings(generator))
        row += generator.num_hidden_layers * length * _kept_layer(generator, length) + slots * _kept_token_head(
            generator
        )
    return _BYTES * round(fixed + config.lane_size * row)


def step_bytes(config: Config, *, width: int) -> float:
    """Bytes that one step moves to and from memory where pointwise work is fused, with activations of `width` bytes.

    Counted: what each product, fused attention, GELU and dropout + residual + LayerNorm of a layer reads and writes, nothing
    staying in a cache; weights, read forward and backward once a lane; gradients and the optimizer in fp32. Not counted:
    embeddings and logits, which can be computed in pieces that stay in a cache.
    """
    model, generator = config.model, _generator(config)
    layers = sum(m.num_hidden_layers * _moved_layer(m) for m in (model, generator) if m is not None)
    # weights forward and backward in `width` bytes; gradient written, and 4 reads and 3 writes of the optimizer, in fp32
    each_parameter = 2 * width * config.batch.lanes + 8 * _BYTES
    return float(width * config.tokens_per_step * layers + each_parameter * parameters(config).joint)


def _generator(config: Config) -> Model | None:
    return None if isinstance(config.objective, MLM) else generator_shape(config)


def _encoder_parameters(model: Model) -> int:
    """Projection (where widths differ) and layers."""
    h, i = model.hidden_size, model.intermediate_size
    attention = 4 * (h * h + h) + 2 * h
    feed_forward = (h * i + i) + (i * h + h) + 2 * h
    project = (model.embedding_size + 1) * h if model.embedding_size != h else 0
    return project + model.num_hidden_layers * (attention + feed_forward)


def _token_head_parameters(model: Model) -> int:
    """Dense, LayerNorm and output bias; the output weight is the word embedding."""
    return (model.hidden_size + 1) * model.embedding_size + 2 * model.embedding_size + model.vocab_size


def _paper_encoder(model: Model, length: int) -> float:
    """Operations of a forward pass over one row, embeddings included."""
    h, i, e = model.hidden_size, model.intermediate_size, model.embedding_size
    products = 4 * 2 * h * h + 2 * 2 * h * i + 2 * 2 * h * length
    on_scores = (1 + _SOFTMAX + _DROPOUT) * length * model.num_attention_heads
    biases = 5 * h + i
    twice_after = 2 * (_DROPOUT + 1) * h  # dropout and residual, after attention and after the feed-forward network
    norms = _LAYER_NORM * (1 if _PAPER_NORM_SLIP else h) + _LAYER_NORM * h
    layer = products + on_scores + biases + twice_after + norms + _GELU * i
    look_ups = 2 * e * (model.vocab_size + length + 2)
    embedding = look_ups + (2 + _LAYER_NORM + _DROPOUT) * e
    project = 2 * h * e + h if e != h else 0
    return float(length * (model.num_hidden_layers * layer + embedding + project))


def _paper_token_head(model: Model, length: int) -> float:
    """Operations of the masked positions' way through the vocabulary, for one row."""
    h, e, v = model.hidden_size, model.embedding_size, model.vocab_size
    slot = 2 * h * e + (1 + _GELU + _LAYER_NORM) * e + (2 * e + _SOFTMAX + 2) * v
    return length * _PAPER_OUTPUT_SHARE * slot


def _paper_replaced_head(model: Model, length: int) -> float:
    h = model.hidden_size
    return float(length * (2 * h * h + (1 + _GELU) * h + 2 * h))


def _real_encoder(model: Model, length: int) -> int:
    """Matrix products of a forward pass over one row."""
    h, e = model.hidden_size, model.embedding_size
    layer = 2 * (4 * h * h + 2 * h * model.intermediate_size) + 4 * length * h
    project = 2 * h * e if e != h else 0
    return length * (model.num_hidden_layers * layer + project)


def _real_token_head(model: Model) -> int:
    """Matrix products of one masked position."""
    return 2 * model.embedding_size * (model.hidden_size + model.vocab_size)


def _real_replaced_head(model: Model) -> int:
    """Matrix products of one token."""
    return 2 * model.hidden_size * (model.hidden_size + 1)


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
    """Elements at one masked position: the head's inside, and logits, probabilities and their gradients."""
    return model.hidden_size + 3 * model.embedding_size + 4 * model.vocab_size
