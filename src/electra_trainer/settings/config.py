"""Every knob of a run, as frozen dataclasses. No torch here.

A `Config` and a seed decide a run: batches, masks, samples, dropout and learning rate at step s follow from them. Each
field says its unit and where it comes from; each class checks its values when an instance is made. `§`, `Table` and
`Appendix` refer to the paper (Clark et al., 2020), "released" to google-research/electra.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar, Literal

from electra_trainer.errors import ConfigError, refuse_if, require
from electra_trainer.settings import methods

Block = Literal["bert", "modern"]
MODERN_NORM_EPS = 1e-5
"""Added to the variance in LayerNorm by the modern block."""
_RULES: dict[str, Callable[[float], bool]] = {
    "at least 0": lambda value: value >= 0,
    "at least 1": lambda value: value >= 1,
    "a number above 0": lambda value: value > 0,
    "a number from 0 to below 1": lambda value: 0 <= value < 1,
    "a share between 0 and 1": lambda value: 0 <= value <= 1,
}


def _check(group: str, settings: object, names: str, expected: str) -> None:
    """Raise ConfigError unless some fields of a group of settings are what one of the rules expects."""
    for name in names.split():
        value = getattr(settings, name)
        require(_RULES[expected](value), f"{group}.{name}", value, expected)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Shape of the main network's encoder: the discriminator, or BERT's own encoder (Table 5). Names as in
    transformers.
    """

    FORMER: ClassVar = ("position_initializer",)
    """Fields in files of earlier versions that are ignored: how positions that have been trained since began."""
    block: Block = "bert"
    """The layers: BERT's and ELECTRA's (Appendix A), or ModernBERT's (model/modern.py), without a table of positions
    and segments.
    """
    vocab_size: int = 30522
    """Words in the vocabulary; `pretrain` takes it from the prepared data."""
    embedding_size: int = 128
    """Width of the embeddings, shared by both networks (§3.2)."""
    hidden_size: int = 256
    """Width of the encoder."""
    num_hidden_layers: int = 12
    """Transformer layers."""
    num_attention_heads: int = 4
    """Attention heads; `hidden_size` must be a multiple."""
    intermediate_size: int = 1024
    """Inner width of the feed-forward network; the modern block, with three matrices there, has two thirds of it
    (`inner_size`).
    """
    max_position_embeddings: int = 512
    """Longest row, in tokens."""
    type_vocab_size: int = 2
    """Segments (A and B)."""
    hidden_dropout_prob: float = 0.1
    """Dropout after embeddings, attention and feed-forward."""
    attention_probs_dropout_prob: float = 0.1
    """Dropout on attention weights."""
    layer_norm_eps: float = 1e-12
    """Added to the variance in LayerNorm (released); in the modern block 1e-5."""
    rotary_theta: float = 10_000.0
    """Base of the angles by which the modern block turns queries and keys (rotary positions)."""
    local_attention: int = 0
    """Window of the modern block's local layers, in tokens: each token sees half of it to either side (ModernBERT:
    128). 0: every layer sees the whole piece.
    """
    global_attn_every_n_layers: int = 3
    """With a window, the layers that see the whole piece: the first and every that many after it."""
    local_rotary_theta: float = 10_000.0
    """Base of the angles in layers with a window."""
    replaced_head: Literal["two-layers", "linear"] = "two-layers"
    """The discriminator's head: dense, GELU, dense (released), or `linear`, sigmoid(w·h) without a bias, as the paper
    prints it (§2).
    """
    initializer: Literal["truncated-normal", "fan-in"] = "truncated-normal"
    """`truncated-normal`: standard deviation `initializer_range`, cut at two of them (released). `fan-in`:
    1/sqrt(inputs), for narrow models.
    """
    initializer_range: float = 0.02
    """Standard deviation of the truncated normal."""
    word_initializer: Literal["random", "co-occurrence"] = "random"
    """First values of the word embeddings: `random` as all weights (released), or vectors of the same length whose
    directions come from the `co-occurrence` of word pieces in the training rows (data/co_occurrence.py). With trained
    weights (`--init`) these are mixed into their own, half and half (train/begin/word_start.py)."""

    def __post_init__(self) -> None:
        widths = "vocab_size embedding_size hidden_size intermediate_size max_position_embeddings type_vocab_size"
        _check("model", self, f"num_hidden_layers num_attention_heads {widths}", "at least 1")
        heads, segments, modern = self.num_attention_heads, self.type_vocab_size, self.block == "modern"
        expected = f"a multiple of {'twice ' * modern}model.num_attention_heads = {heads}"
        require(self.hidden_size % (heads * (1 + modern)) == 0, "model.hidden_size", self.hidden_size, expected)
        require(segments >= 2, "model.type_vocab_size", segments, "at least 2 (segments A and B)")
        windows = ("local_attention", "global_attn_every_n_layers", "local_rotary_theta")
        for name in ("layer_norm_eps", "replaced_head") if modern else ("rotary_theta", *windows):
            value, only = getattr(self, name), getattr(type(self), name)
            require(value == only, f"model.{name}", value, f"{only}, the default, with model.block = {self.block}")
        _check("model", self, "hidden_dropout_prob attention_probs_dropout_prob", "a share between 0 and 1")
        _check("model", self, "layer_norm_eps initializer_range rotary_theta local_rotary_theta", "a number above 0")
        _check("model", self, "local_attention", "at least 0")
        _check("model", self, "global_attn_every_n_layers", "at least 1")
        possible = self.word_initializer == "random" or self.embedding_size <= self.vocab_size
        most = f"at most model.vocab_size = {self.vocab_size}, or --model.word-initializer random"
        require(possible, "model.embedding_size", self.embedding_size, most)

    @property
    def inner_size(self) -> int:
        """Inner width as built: in the modern block two thirds, in multiples of 32, for about as many parameters."""
        return self.intermediate_size if self.block == "bert" else max(32, 2 * self.intermediate_size // 3 // 32 * 32)

    def is_local(self, layer: int) -> bool:
        """Whether the tokens of that layer, counted from 0, see a window of the piece."""
        return self.local_attention > 0 and layer % self.global_attn_every_n_layers > 0

    @property
    def has_windows(self) -> bool:
        """Whether any layer is local."""
        return self.local_attention > 0 and self.global_attn_every_n_layers > 1 and self.num_hidden_layers > 1


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Positions to predict, and their replacement. Specials and padding are never chosen."""

    fraction: float = 0.15
    """Share of the n real tokens of a row of T (specials counted) that is chosen: exactly k of them, see `rounding`."""
    rounding: Literal["nearest", "up"] = "nearest"
    """`nearest`: k = round(fraction * n), at most int((fraction + 0.005) * T), as released: 15 % are 9 of 64 tokens and
    4 of 32. `up`: k = ⌈fraction * n⌉ (the paper, §2).
    """
    mask_share: float = 0.85
    """Share of the chosen that becomes [MASK] (released: 0.85; the paper: 1.0; BERT: 0.8)."""
    random_share: float = 0.0
    """Share of the chosen that becomes a random word (BERT: 0.1). The rest stays as it is."""
    draw: Literal["distinct", "with-replacement"] = "distinct"
    """`distinct`: k different positions. `with-replacement`: as released, where about 7 % of the choices repeat one."""
    unit: Literal["token", "word", "span"] = "token"
    """`word`: whole-word masking, as in BERT's later release: words are drawn, each with all its tokens, and one that
    is longer than what is left of k is passed over. `span`: the same with spans of tokens, of geometric lengths
    (replaced span detection, §3.4). Each token is then replaced on its own (`mask_share`). docs/training.md says what
    a word is."""
    rarity: float = 0.0
    """Strategic masking (Appendix H): a position's chance of being drawn is proportional to its word's frequency to the
    power of minus this, so that 0 masks all alike and 0.5 masks a word that is a hundred times rarer ten times as
    often."""

    def __post_init__(self) -> None:
        require(0 < self.fraction < 1, "masking.fraction", self.fraction, "a share above 0 and below 1")
        _check("masking", self, "mask_share random_share", "a share between 0 and 1")
        both = self.mask_share + self.random_share
        require(both <= 1 + 1e-9, "masking.mask_share + masking.random_share", both, "at most 1")
        require(0 <= self.rarity <= 8, "masking.rarity", self.rarity, "a number from 0 to 8")
        single, distinct = self.unit == "token", self.draw == "distinct"
        tokens = "0 unless single tokens are drawn, distinct"
        require(self.rarity == 0 or (single and distinct), "masking.rarity", self.rarity, tokens)
        require(single or distinct, "masking.draw", self.draw, f"distinct with masking.unit = {self.unit}")

    def positions(self, tokens: int, length: int | None = None) -> int:
        """Masked positions k of a row of `length` tokens, `tokens` of them real (all if None); 1 at least."""
        share = self.fraction * tokens
        if self.rounding == "up":
            return max(1, math.ceil(share - 1e-9))  # 0.15 is no binary number: 0.07 * 100 is 7.000000000000001
        return max(1, min(round(share), self.most(length or tokens)))

    def most(self, length: int) -> int:
        """The most positions that are chosen in a row of `length` tokens."""
        return self.positions(length) if self.rounding == "up" else max(1, int((self.fraction + 0.005) * length))


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """How weights move (Appendix A, Table 5)."""

    name: Literal["adam", "adamw", "lamb", "muon"] = "adam"
    """`adam`: released, no bias correction, decoupled decay. `adamw`: PyTorch's, with bias correction. `lamb`: the
    paper's table. `muon`: orthogonal steps for the matrices of the layers of every network, `adamw` for all else
    (Jordan et al., 2024)."""
    learning_rate: float = 5e-4
    """Peak learning rate."""
    muon_learning_rate: float = 0.01
    """Peak learning rate of the matrices of the layers, with `muon`."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.999
    """Decay of the mean of squared gradients."""
    epsilon: float = 1e-6
    """Added outside the square root."""
    weight_decay: float = 0.01
    """Decay per unit of learning rate; biases and LayerNorm are excluded."""
    clip_norm: float = 1.0
    """Largest global norm of the gradient (released); 0 turns clipping off."""

    def __post_init__(self) -> None:
        _check("optimizer", self, "learning_rate muon_learning_rate epsilon", "a number above 0")
        _check("optimizer", self, "beta1 beta2", "a number from 0 to below 1")
        _check("optimizer", self, "weight_decay", "at least 0")
        require(self.clip_norm >= 0, "optimizer.clip_norm", self.clip_norm, "a number of at least 0 (0 = off)")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long, and the learning rate over it."""

    steps: int = 1_000_000
    """Optimizer steps of the whole run."""
    warmup_steps: int = 10_000
    """Steps of linear warm-up."""
    shape: Literal["released", "linear", "wsd"] = "released"
    """`released`: decay from step 0 times warm-up, so the peak is never quite reached. `linear`: up to the peak, then
    down to 0. `wsd`: up to the peak, flat, and down to 0 over the last `decay_share` of the steps."""
    decay_share: float = 0.3
    """Share of the steps over which `wsd` decays."""

    def __post_init__(self) -> None:
        _check("schedule", self, "steps", "at least 1")
        _check("schedule", self, "decay_share", "a share between 0 and 1")
        _check("schedule", self, "warmup_steps", "at least 0")
        most = f"at most schedule.steps = {self.steps}"
        require(self.warmup_steps <= self.steps, "schedule.warmup_steps", self.warmup_steps, most)


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """How many tokens a step reads, and in what portions."""

    size: int = 128
    """Rows a step."""
    sequence_length: int = 128
    """Tokens a row; `pretrain` takes it from the prepared data."""
    lanes: int = 1
    """Micro-batches (gradient accumulation): the batch is computed in that many equal parts, and more of them need less
    memory. Fixed when a run begins, since masks, samples and dropout are keyed by lane."""

    def __post_init__(self) -> None:
        _check("batch", self, "size lanes", "at least 1")
        require(self.sequence_length >= 8, "batch.sequence_length", self.sequence_length, "at least 8")
        require(self.size % self.lanes == 0, "batch.lanes", self.lanes, f"a divisor of batch.size = {self.size}")


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Held-out evaluation during the run, always on the same rows with the same masks."""

    every: int = 10_000
    """Steps between evaluations."""
    rows: int = 2048
    """Held-out rows that are read; 0 turns evaluation off."""

    def __post_init__(self) -> None:
        _check("evaluation", self, "every", "at least 1")
        _check("evaluation", self, "rows", "at least 0")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """How often the run is saved."""

    every: int = 1000
    """Steps between checkpoints."""
    keep: int = 2
    """Number of newest checkpoints that are kept."""

    def __post_init__(self) -> None:
        _check("checkpoint", self, "every keep", "at least 1")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A complete run."""

    preset: str = "small"
    """Model and recipe to begin with: tiny, mini, small, base, large, …; `electra show all` lists them."""
    seed: int = 1
    """Seed of weights, order, masks, samples and dropout."""
    model: Model = field(default_factory=Model)
    generator: methods.Generator = field(default_factory=methods.Learned)
    sharing: Literal["none", "tables", "embeddings", "all", "disentangled"] = "embeddings"
    """Weights that the generator shares with the main network (§3.2): `none`; `tables`: word and position embeddings,
    as the paper says; `embeddings`: type embeddings and LayerNorm too, as released; `all`: the whole encoder, which
    needs a generator of the same size; `disentangled`: the tables without their gradient, plus a difference of the main
    network's own (DeBERTaV3)."""
    objective: methods.ObjectiveSettings = field(default_factory=methods.RTD)
    losses: Literal["means", "sums"] = "means"
    """Quantities that the weights of the objective weigh: `means` over positions, as released; or `sums` over
    positions, means over rows, as the paper prints them (§2). λ = 50 of means is 7.5 of sums where 15 % are masked."""
    phases: methods.Phases = field(default_factory=methods.Joint)
    masking: Masking = field(default_factory=Masking)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    batch: BatchShape = field(default_factory=BatchShape)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the forward and backward pass; weights stay fp32. `auto`: bf16 where the hardware gains by it."""
    deterministic: bool = False
    """Add up the gradients of lanes and processes in one order (`ranks/world.py`), so that 1, 2 or 4 processes give the
    same bits. Lanes have to be a power of two. Without it the same rows, masks and samples, and sums that differ in
    their last digits."""
    log_every: int = 50
    """Steps between rows of metrics.jsonl."""
    last_layer: Literal["all", "read"] = "read"
    """Positions at which the last layer computes more than keys and values: those that are `read`, in BERT and in a
    generator the masked ones, or `all`, as in runs of earlier versions, which continue so. Results differ in their last
    digits."""

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", self.seed, "an integer from 0 to below 2**63")
        require(self.log_every >= 1, "log_every", self.log_every, "at least 1")
        length, most, lanes = self.batch.sequence_length, self.model.max_position_embeddings, self.batch.lanes
        require(length <= most, "batch.sequence_length", length, f"at most model.max_position_embeddings = {most}")
        pairs = self.lane_size % self.objective.rows_together == 0
        require(pairs, "batch.size", self.batch.size, "an even number of rows in each lane with neighbour_weight")
        if self.deterministic:
            require(lanes & (lanes - 1) == 0, "batch.lanes", lanes, "a power of two with --deterministic")
        _check_combination(self)

    @property
    def first_stage_steps(self) -> int:
        """Steps of two-stage training that train the generator; 0 in joint training."""
        return self.phases.first_steps(self.schedule.steps)

    @property
    def drawn(self) -> Masking:
        """The masking that the rows get: `masking`, or for hard-mlm, which chooses among them, more positions, at most
        all.
        """
        if not isinstance(self.objective, methods.HardMLM):
            return self.masking
        return dataclasses.replace(self.masking, fraction=min(0.999, self.objective.pool * self.masking.fraction))

    @property
    def lane_size(self) -> int:
        """Rows in one lane."""
        return self.batch.size // self.batch.lanes

    @property
    def tokens_per_step(self) -> int:
        """Positions a step reads, padding included."""
        return self.batch.size * self.batch.sequence_length


def _check_combination(config: Config) -> None:
    """Refuse choices that exclude one another: two-stage and adversarial training need a generator that learns, and
    more.
    """
    objective, generator, phases, sharing = config.objective, config.generator, config.phases, config.sharing
    learned = isinstance(generator, methods.Learned)
    # raises if the multiplier gives no possible shape
    smaller = objective.uses_generator and learned and generator_shape(config) != config.model
    plain = isinstance(generator, methods.Learned) and generator.temperature == 1 and not generator.disallow_correct
    if isinstance(objective, methods.HardMLM):
        guesser_shape(config)
        require(config.masking.draw == "distinct", "masking.draw", config.masking.draw, "distinct with hard-mlm")
        require(config.masking.unit == "token", "masking.unit", config.masking.unit, "token with hard-mlm")
    two_stage, adversarial = isinstance(phases, methods.TwoStage), isinstance(objective, methods.Adversarial)
    from_generator = getattr(phases, "start", None) == "generator"
    shared, same = sharing == "all", "Set --generator.width 1 --generator.depth 1"
    faults = {
        "sharing = 'all' shares the generator's encoder, and a generator without one is configured. Use --generator "
        "learned or --sharing embeddings.": objective.uses_generator and shared and not learned,
        f"sharing = 'all' needs a generator of the discriminator's size (§3.2). {same} or --sharing embeddings.": shared
        and smaller,
        "phases.start = 'generator' begins the discriminator from the generator's weights, which needs the same size "
        f"(§3.2). {same}, or --phases.start fresh.": smaller and from_generator,
        "phases = two-stage trains a generator, then a discriminator (§3.2). Use --objective rtd or rtd-mlm and "
        "--generator learned, or --phases joint.": two_stage and not (learned and isinstance(objective, methods.RTD)),
        f"sharing = {sharing!r}: two-stage training freezes the generator while the discriminator moves, so they "
        "cannot share. Set --sharing none.": two_stage and sharing != "none",
        "objective = adversarial trains the distribution that it samples from (Appendix F). Use --generator learned, "
        "with temperature 1 and the correct word allowed.": adversarial and not plain,
        "objective = adversarial: the networks play against each other. Use --sharing embeddings.": adversarial
        and shared,
        "objective = adversarial: where a position is drawn twice, neither sample is what the discriminator sees. Use "
        "--masking.draw distinct.": adversarial and config.masking.draw != "distinct",
    }
    refuse_if(faults)


def generator_shape(config: Config) -> Model:
    """Shape of a learned generator: width multiplies hidden size, feed-forward size and heads; depth the layers (Table
    5).
    """
    assert isinstance(config.generator, methods.Learned)
    return _scaled(config.model, config.generator.width, config.generator.depth, where="generator.width")


def guesser_shape(config: Config) -> Model:
    """Shape of hard-mlm's guesser, as deep as the main network."""
    assert isinstance(config.objective, methods.HardMLM)
    return _scaled(config.model, config.objective.width, 1.0, where="objective.width")


def _scaled(model: Model, width: float, depth: float, *, where: str) -> Model:
    head_size = model.hidden_size // model.num_attention_heads
    hidden = round(model.hidden_size * width)
    heads = max(1, hidden // head_size)
    if hidden < 1 or hidden % heads:
        raise ConfigError(
            f"{where} = {width}: gives a hidden size of {hidden}, which {heads} heads of {head_size} do not divide. "
            f"Choose a multiplier that gives a multiple of {head_size}, for example {head_size / model.hidden_size:g}."
        )
    return dataclasses.replace(
        model,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=round(model.intermediate_size * width),
        num_hidden_layers=max(1, round(model.num_hidden_layers * depth)),
    )


FOLLOWS_FROM_STEPS = ("schedule.", "evaluation.every", "checkpoint.every", "log_every")
"""Prefixes of the dotted names that `with_steps` sets."""


def with_steps(config: Config, steps: int, *, defaults: Config, keep: Collection[str] = ()) -> Config:
    """The run over another number of steps.

    Settings that still equal `defaults` are fitted to the new length: warm-up is at most a tenth of
    the run, and there are some 20 evaluations and checkpoints and 200 logged steps.

    Args:
        keep: dotted names of settings that are not fitted.
    """
    require(steps >= 1, "steps", steps, "at least 1")
    twentieth = max(10, steps // 20)

    def fitted(name: str, most: int) -> int:
        value = attrgetter(name)
        mine: int = value(config)
        return mine if mine != value(defaults) or name in keep else min(mine, most)

    return changed(
        dataclasses.replace(config, log_every=fitted("log_every", max(1, steps // 200))),
        schedule={"steps": steps, "warmup_steps": fitted("schedule.warmup_steps", max(1, steps // 10))},
        evaluation={"every": fitted("evaluation.every", twentieth)},
        checkpoint={"every": fitted("checkpoint.every", twentieth)},
    )


def changed(config: Config, **groups: Mapping[str, Any]) -> Config:
    """The run with other values of some fields: `changed(config, batch={"size": 4})`."""
    return dataclasses.replace(
        config, **{name: dataclasses.replace(getattr(config, name), **fields) for name, fields in groups.items()}
    )
