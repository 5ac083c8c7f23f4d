"""How an encoder is fine-tuned (Table 6), as the paper says and as the released code does. No torch here."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from electra_trainer.errors import ConfigError, probability, require, require_known
from electra_trainer.settings.config import Optimizer, Schedule
from electra_trainer.settings.records import ADDED


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All of a fine-tuning run but its encoder, its task and its seed; each field is a flag or a key of a file. The
    defaults are Table 6's for Small.
    """

    learning_rate: float = 3e-4
    """Peak learning rate of the head; lower layers learn more slowly. Table 6: 3e-4 for Small and narrower, 1e-4 for
    Base, 5e-5 for Large.
    """
    layer_decay: float = 0.8
    """Each layer's learning rate as a share of that of the layer above it; 1: all alike. Table 6: 0.9 for Large."""
    top_layer_power: int = 1
    """The top layer learns at learning-rate * layer-decay ** this; 2 is the released code's exponent, which is off by
    one.
    """
    epochs: float = 3.0
    """Passes over the training rows. Default: 3 for most tasks, 10 or more for small own files."""
    batch_size: int = 32
    """Rows per step."""
    micro_batch: int | None = None
    """Rows computed at once, for devices with little memory. The gradient is still the batch's. Default: the whole
    batch.
    """
    batches: Literal["by-length", "random"] = "by-length"
    """by-length: rows of like length are read together, so that little is computed on padding; random: as they come, as
    in the paper and the released code."""
    max_length: int = 128
    """Tokens of a row; a longer text is cut, a longer context read in windows. Default: 128, of questions 512."""
    warmup_fraction: float = 0.1
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["linear", "released"] = "linear"
    """linear: up over the warm-up, then down to 0. released: decay and warm-up multiplied, from step 0."""
    weight_decay: float = 0.0
    """Decay per unit of learning rate; biases and LayerNorm are excluded."""
    dropout: float = 0.1
    """Dropout after embeddings, attention, feed-forward, and before the head; where it is given, also on attention
    weights unless these are given.
    """
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    head_dropout: Literal["all", "texts"] = "all"
    """Tasks with dropout before the head: all, or only those that judge whole texts."""
    pooling: Literal["auto", "cls", "mean", "pair"] | None = None
    """Representation of a whole text: [CLS], as in the paper, or the mean of its row's tokens, for encoders trained for
    hours, not days. pair: two texts are compared, token by token too. auto: mean for one text, pair for two."""
    reduction: Literal["mean", "sum"] = "mean"
    """Loss of a batch: the mean or the sum of its rows'; the gradient that clip-norm limits is of this loss."""
    clip_norm: float = 1.0
    """Largest global norm of the gradient; 0: not clipped."""
    double_unordered: bool = False
    """Train on pairs without an order (MRPC, STS-B) in both orders."""
    windows: bool = field(default=False, metadata=ADDED)
    """Read a longer text in overlapping windows and average their outputs; not for pairs, tags and questions."""
    keep: Literal["last", "best"] = field(default="last", metadata=ADDED)
    """The weights that are scored and exported: the last epoch's, or those of the epoch with the best dev score, which
    makes dev scores too good (--test FILE: scores that chose nothing)."""
    bias_correction: bool = field(default=False, metadata=ADDED)
    """Adam with bias correction, as PyTorch has it; the released code has none, so that its first hundred steps are
    three to five times as long.
    """
    zero_head: bool = field(default=False, metadata=ADDED)
    """The last linear layer begins at zero, so that no random outputs disturb the encoder in the first steps."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the forward pass; weights stay fp32. auto: as the experiment began, else bf16 where the device is
    faster with it.
    """

    def __post_init__(self) -> None:
        for name, fits, expected in (
            ("learning_rate", self.learning_rate > 0, "a number above 0"),
            ("layer_decay", 0 < self.layer_decay <= 1, "above 0 and at most 1"),
            ("top_layer_power", self.top_layer_power >= 0, "0 or more"),
            ("epochs", 0 < self.epochs <= 10_000, "above 0 and at most 10,000"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("micro_batch", self.micro_batch is None or self.micro_batch >= 1, "at least 1"),
            ("max_length", self.max_length >= 8, "at least 8"),
            ("warmup_fraction", 0 <= self.warmup_fraction < 1, "from 0 to below 1"),
            ("weight_decay", self.weight_decay >= 0, "0 or more"),
            ("clip_norm", self.clip_norm >= 0, "0 or more"),
            ("pooling", self.pooling in (None, "auto", "cls", "mean", "pair"), "auto, cls, mean or pair"),
            ("precision", self.precision in ("auto", "fp32", "bf16"), "auto, fp32 or bf16"),
        ):
            require(fits, name, getattr(self, name), expected)
        probability("dropout", self.dropout)
        probability("attention_dropout", self.attention_dropout)

    def fitted(self, longest: int) -> "Recipe":
        """The recipe for an encoder that reads rows of up to `longest` tokens."""
        return replace(self, max_length=min(self.max_length, longest))

    @property
    def optimizer(self) -> Optimizer:
        """Adam with Table 6's epsilon and betas."""
        return Optimizer(
            name="adamw" if self.bias_correction else "adam",
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
        )

    def schedule_of(self, steps: int) -> Schedule:
        """The learning rate over a run of `steps` steps."""
        return Schedule(steps=steps, warmup_steps=int(steps * self.warmup_fraction), shape=self.schedule)

    def warmup_of(self, steps: int) -> float:
        """Steps of warm-up: whole ones, as BERT counts; 2.7 of 27 in the released code, which does not round
        (optimization.py).
        """
        return steps * self.warmup_fraction if self.schedule == "released" else self.schedule_of(steps).warmup_steps


def paper(*, hidden_size: int, epochs: float = 3.0) -> Recipe:
    """Table 6: 3e-4 for Small and narrower, 1e-4 for Base, 5e-5 and layer decay 0.9 for Large; no weight decay."""
    rate, decay = (3e-4, 0.8) if hidden_size < 512 else (1e-4, 0.8) if hidden_size < 1024 else (5e-5, 0.9)
    return Recipe(learning_rate=rate, layer_decay=decay, epochs=epochs)


def released(*, hidden_size: int, epochs: float = 3.0) -> Recipe:
    """Recipe that google-research/electra runs, where it differs from the paper."""
    rate, decay = (1e-4, 0.8) if hidden_size < 1024 else (5e-5, 0.9)
    return Recipe(
        learning_rate=rate,
        layer_decay=decay,
        top_layer_power=2,
        epochs=epochs,
        schedule="released",
        weight_decay=0.01,
        head_dropout="texts",
        reduction="sum",
        double_unordered=True,
    )


RECIPES: dict[str, Callable[..., Recipe]] = {"paper": paper, "released": released}
AUTO = "auto"
"""Name of the recipe that is the paper's, with `for_own_rows` where a task is made of own tables."""
SMALL, SHALLOW, FEW_LAYERS = 10_000, 6, 4
"""Fewer training rows are a small table. At most `SHALLOW` layers learn at one rate; at most `FEW_LAYERS`, of encoders
that are trained for hours, at a higher one."""
FEWEST_EPOCHS, BATCH, FEWEST_STEPS = 10.0, 16, 200
"""Passes over the rows of a small table at least (Table 6: 10 for the small RTE and STS-B, 3 for others); with `auto`
its rows a step, and its steps at least.
"""


def for_own_rows(rows: int, layers: int, *, classes: bool) -> dict[str, object]:
    """Changes of the paper's recipe for own tables of texts: see docs/finetuning.md for the measurements.

    Args:
        rows: training rows.
        layers: of the encoder; deeper ones keep the paper's learning rates.
        classes: one class a text; what is new of Adam, of the head and of the layers' rates was measured there alone.
    """
    changes: dict[str, object] = {"pooling": "auto"}
    if rows < SMALL:
        of_an_epoch = max(1, rows // BATCH)
        changes |= {"batch_size": BATCH, "epochs": max(FEWEST_EPOCHS, float(math.ceil(FEWEST_STEPS / of_an_epoch)))}
        changes |= {"learning_rate": 1e-3} if layers <= FEW_LAYERS else {}
        changes |= {"bias_correction": True, "zero_head": True} if classes else {}
        changes |= {"layer_decay": 1.0} if classes and layers <= SHALLOW else {}
    return changes


def deviations(asked: Recipe, base: Recipe) -> str:
    """Fields in which `asked` differs from `base`, in words: "epochs 10, pooling mean"; without precision."""
    changed = {
        field: value
        for field, value in asdict(asked).items()
        if value != getattr(base, field) and field != "precision" and (field, value) != ("pooling", "cls")
    }
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value).lower() for name, value in changed.items()}
    return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in shown.items())


def recipe(name: str, *, hidden_size: int, epochs: float, **changes: object) -> Recipe:
    """The recipe of that name for an encoder of that width, with the fields in `changes` that are not None.

    Raises:
        ConfigError: no such recipe, or an impossible value.
    """
    require_known(f"--recipe {name}: unknown", name, (*RECIPES, AUTO))
    changed = {field: value for field, value in changes.items() if value is not None}
    found = RECIPES.get(name, paper)(hidden_size=hidden_size, epochs=epochs)
    return replace(found, **changed)  # type: ignore[arg-type]


def settle(recipe: Recipe, *, task: str, pooling: str | None, compares: bool, windows: bool, pairs: bool) -> Recipe:
    """The recipe with the pooling that a task has under it; None where the task has none. `auto` is `pair` for a task
    that can compare two texts, else `mean`; for one text `pair` is `mean`.

    Args:
        task: its name.
        pooling: the task's own; None: it pools nothing.
        compares: it has a head that compares two texts.
        windows: it can read a long text in windows.
        pairs: its examples are pairs of texts.

    Raises:
        ConfigError: the recipe asks for windows, a pooling or the head of pairs, and the task does not have it.
    """
    if recipe.windows and not windows:
        raise ConfigError(
            f"--windows: {task} is not read in windows here. Only classification and regression of one text can be "
            "(contexts of questions always are). Leave it out."
        )
    asked = recipe.pooling or pooling
    if asked is None or (asked == "auto" and pooling is None):
        return replace(recipe, pooling=None)
    if asked == "auto":
        asked = "pair" if compares else "mean"
    if asked == "pair" and not pairs:
        asked = "mean"
    if pooling is None or (asked == "pair" and not compares):
        raise ConfigError(
            f"--pooling {asked}: {task} has no such representation of a text; classification and regression have it. "
            "Leave it out."
        )
    return replace(recipe, pooling=asked)  # type: ignore[arg-type]
