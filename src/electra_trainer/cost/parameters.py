"""Count a run's trainable parameters, and estimate the bytes that it needs. No torch here."""

from dataclasses import dataclass

from electra_trainer.settings.config import Config, Model, generator_shape, guesser_shape
from electra_trainer.settings.methods import HardMLM, Learned


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Trainable parameters; what the networks share is counted with the main one."""

    embeddings: int
    """The main network's word, position and segment tables and their LayerNorm."""
    encoder: int
    """The main network's projection and layers, without embeddings."""
    head: int
    """The main network's pre-training head: that of a discriminator, or a token head."""
    extra: int
    """The objective's separate layer (All-Tokens MLM's copy, the adversarial baseline, the sentence head), a token head
    beside a discriminator's, and hard-mlm's guesser without the embeddings; 0 otherwise."""
    generator: int
    """The generator on its own, with all that it shares; 0 if it is not a network."""
    generator_own: int
    """The generator without what it shares with the main network."""

    @property
    def backbone(self) -> int:
        """The part that is fine-tuned: embeddings and encoder."""
        return self.embeddings + self.encoder

    @property
    def kept(self) -> int:
        """The exported network: ELECTRA's discriminator, or an encoder with its token head."""
        return self.backbone + self.head

    @property
    def joint(self) -> int:
        """Everything that is trained."""
        return self.kept + self.extra + self.generator_own


def parameters(config: Config) -> Parameters:
    """Trainable parameters of `config`'s networks."""
    model, generator, objective = config.model, learned_generator(config), config.objective
    tables, (width, _), discriminates = _embeddings(model), single_output(config), objective.keeps == "discriminator"
    extra = width + 1 if width else 0
    if discriminates and objective.predicts != "none":
        extra += _token_head(model)
    if (guesser := guesser_of(config)) is not None:
        extra += _encoder(guesser)
    whole = shared = 0
    if generator is not None:
        whole = tables + _encoder(generator) + _token_head(generator)
        apart = (model.type_vocab_size + 2) * model.embedding_size * (model.block == "bert")  # segments and LayerNorm
        sharing = {"tables": tables - apart, "embeddings": tables, "all": tables + _encoder(model)}
        shared = sharing.get(config.sharing, 0)
    return Parameters(
        embeddings=tables,
        encoder=_encoder(model),
        head=_replaced_head(model) if discriminates else _token_head(model),
        extra=extra,
        generator=whole,
        generator_own=whole - shared,
    )


def _embeddings(model: Model) -> int:
    """Without biases in the modern block, whose word table alone is shared."""
    if model.block == "modern":
        return model.vocab_size * model.embedding_size
    rows = model.vocab_size + model.max_position_embeddings + model.type_vocab_size
    return (rows + 2) * model.embedding_size


def _encoder(model: Model) -> int:
    """Projection (where widths differ) and layers; in the modern block also the norms of embeddings and of the last
    layer.
    """
    h, i = model.hidden_size, model.inner_size
    if model.block == "modern":
        project = model.embedding_size * h if model.embedding_size != h else 0
        return project + model.num_hidden_layers * h * (4 * h + inner_matrices(model) * i + 2) + h
    attention = 4 * (h * h + h) + 2 * h
    feed_forward = (h * i + i) + (i * h + h) + 2 * h
    project = (model.embedding_size + 1) * h if model.embedding_size != h else 0
    return project + model.num_hidden_layers * (attention + feed_forward)


def _token_head(model: Model) -> int:
    """Dense, LayerNorm and output bias; the output weight is the word embedding."""
    h, e = model.hidden_size, model.embedding_size
    return model.vocab_size + (h * h + h if model.block == "modern" else (h + 1) * e + 2 * e)


def _replaced_head(model: Model) -> int:
    """Two dense layers, the second with one output; or w."""
    h = model.hidden_size
    if model.block == "modern":
        return h * h + h + h + 1
    return h * (h + 1) + h + 1 if model.replaced_head == "two-layers" else h


def learned_generator(config: Config) -> Model | None:
    """Shape of the generator; None if there is none or it is not a network (`unigram`, `uniform`)."""
    learned = config.objective.uses_generator and isinstance(config.generator, Learned)
    return generator_shape(config) if learned else None


def guesser_of(config: Config) -> Model | None:
    """Shape of hard-mlm's guesser; None for other objectives."""
    return guesser_shape(config) if isinstance(config.objective, HardMLM) else None


def slots(config: Config) -> int:
    """Positions of a full row that are chosen."""
    return config.masking.positions(config.batch.sequence_length)


def predicted(config: Config) -> int:
    """Positions of a full row that the main network sends through the vocabulary."""
    return {"none": 0, "masked": slots(config), "all": config.batch.sequence_length}[config.objective.predicts]


def single_output(config: Config) -> tuple[int, int]:
    """Width of an objective's separate layer [width -> 1] and how many positions of a row it reads; (0, 0) where there
    is none.

    All-Tokens MLM copies at every token; the adversarial baseline reads the generator at the chosen ones; the sentence
    head reads the [CLS] of each input, counted as one a row.
    """
    width = config.model.hidden_size
    match config.objective.single_output:
        case "none":
            return 0, 0
        case "kept tokens":
            return width, config.batch.sequence_length
        case "kept inputs":
            return width, 1
        case "guesser tokens":
            return guesser_shape(config).hidden_size, config.batch.sequence_length
        case "generator slots":
            return generator_shape(config).hidden_size, slots(config)


_BYTES = 4  # fp32
_STATE_COPIES = 4  # weight, gradient, and the optimizer's two moments
STATE_BYTES = _BYTES * _STATE_COPIES  # of a parameter
_LOGITS_AT_ONCE = 4_000_000  # where all tokens are predicted: kernels/vocabulary_softmax.py's chunk
_LOGITS_COPIES = 4  # logits, probabilities and their gradients


_CUBLAS_BYTES = 150_000_000  # its workspaces, and blocks that are not full
_CACHED = 1.05  # blocks that the allocator keeps
_EVALUATED = 1.6 * 64  # copies of the logits of evaluation's rows, next to the recorded step's memory


def memory_bytes(config: Config, *, gpu: int = 0) -> int:
    """An estimate of the bytes that training needs at its peak, in fp32; within a quarter of what CPUs were seen to
    need.

    Args:
        config: the run.
        gpu: bytes of an activation on a GPU, 2 or 4; 0: on a CPU.

    Counted: weights, gradients and two moments of everything trainable; what the backward pass of one lane keeps of
    both
    networks, attention weights included, as where no fused attention kernel serves; the vocabulary-wide tensors at
    masked positions; two layers' worth of working space. Not counted: Python and its libraries (about 0.3 GB on a CPU)
    and the allocator's slack. bf16 and fused attention need less, and so does two-stage training, whose stages are not
    there at once.

    On a GPU a compiled, recorded step (train/fast_step.py) keeps, next to weights, gradients and moments: in bf16 the
    layers' matrices once more, with gradients; the sum over several lanes; and of each row what a layer keeps, without
    attention weights, and of the logits their gradient. PyTorch's allocator needed 3.0 GB of a pretended card for Small
    (128 rows) and 20.3 GB for Base (64 rows). The GPU's context is extra.
    """
    model, generator, length = config.model, learned_generator(config), config.batch.sequence_length
    networks = [m for m in (model, generator, guesser_of(config)) if m is not None]
    joint = parameters(config).joint
    all_tokens, logits = config.objective.predicts == "all", 1 if gpu else _LOGITS_COPIES
    chunk = _LOGITS_COPIES * _LOGITS_AT_ONCE if all_tokens else 0  # logits of all tokens are computed a chunk at a time
    pairs = 0 if gpu else length  # attention weights are kept without a fused kernel
    row = sum(length * (2.25 * m.embedding_size + m.hidden_size) for m in networks)  # sum, norm, mask, projection
    row += sum(length * m.num_hidden_layers * _kept_layer(m, pairs) for m in networks)
    row += predicted(config) * (_kept_token_head(model) + (0 if all_tokens else logits * model.vocab_size))
    if generator is not None:
        row += slots(config) * (_kept_token_head(generator) + logits * generator.vocab_size)
    if gpu:
        row += 3 * length * model.hidden_size + length**2
        row += sum(length * m.num_hidden_layers * m.hidden_size for m in networks)  # kept by the compiler
        each_parameter = _BYTES * (_STATE_COPIES + (config.batch.lanes > 1)) + (2 * gpu if gpu < _BYTES else 0)
        needed = each_parameter * joint + _BYTES * chunk + gpu * config.lane_size * row
        evaluation = _EVALUATED * slots(config) * model.vocab_size * _BYTES
        return round(_CACHED * needed + evaluation) + _CUBLAS_BYTES
    row += 2 * length * _kept_layer(model, length) + 3 * length * model.hidden_size * config.objective.uses_generator
    # BERT's block joins query, key and value weights for one product, which the backward pass needs
    products = sum(m.num_hidden_layers * 3 * m.hidden_size**2 for m in networks if m.block == "bert")
    fixed = _STATE_COPIES * joint + chunk + products
    return _BYTES * round(fixed + config.lane_size * row)


def inner_matrices(model: Model) -> int:
    """Number of matrices in a layer's feed-forward network, each as large as the hidden size times `inner_size`."""
    return 3 if model.block == "modern" else 2


def _kept_layer(model: Model, length: int) -> float:
    """Elements at one token that the backward pass through a layer needs.

    Queries, keys, values and mixture (4h), two sums before a LayerNorm and two results (4h), two dropout masks of a
    byte (h/2), the feed-forward network's inside before and after GELU (2i), and for each head the attention weights
    before and after dropout with the mask (2.25 a pair of tokens). In the modern block inputs and outputs of both norms
    (4h), queries, keys, values and mixture (5h) and dropout masks, and inside the feed-forward network both halves, the
    first once more, its GELU and the product (5i).
    """
    scores = 2.25 * model.num_attention_heads * length
    if model.block == "modern":
        return 9.5 * model.hidden_size + 5 * model.inner_size + scores
    return 8.5 * model.hidden_size + 2 * model.inner_size + scores


def _kept_token_head(model: Model) -> int:
    """Elements at one predicted position, logits left out: the head's inside."""
    return model.hidden_size + 3 * model.embedding_size
