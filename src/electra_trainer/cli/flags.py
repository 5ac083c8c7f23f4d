"""The flags that change a recipe, shared by `glue`, `squad` and `finetune`.

The flags that say how text files are read, shared by `tokenizer` and `prepare`.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from electra_trainer.data.corpus import CorpusReport
    from electra_trainer.data.prepare import PrepareSettings


@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How the encoder is fine-tuned; what is not given is the recipe's."""

    recipe: str = "paper"
    """`paper` (Table 6) or `released`, what google-research/electra runs."""
    learning_rate: float | None = None
    """Peak learning rate of the head. Default: 3e-4 for Small and narrower, 1e-4 for Base, 5e-5 for Large."""
    layer_decay: float | None = None
    """Each layer's learning rate as a share of that of the layer above it; 1: all alike."""
    top_layer_power: int | None = None
    """The top layer learns at learning-rate * layer-decay ** this: the paper 1, the released code 2."""
    epochs: float | None = None
    """Passes over the training rows. Default: the task's, 3 for most."""
    batch_size: int | None = None
    """Rows a step."""
    micro_batch: int | None = None
    """Rows that are computed together, for devices with little memory; the gradient stays the batch's."""
    max_length: int | None = None
    """Longest row in tokens, at most the encoder's; longer texts are cut. Default: 128, of questions 512."""
    precision: Literal["auto", "fp32", "bf16"] | None = None
    """Of the forward pass. Default: what --out began with; else auto, bf16 where the device is faster with it."""
    warmup_fraction: float | None = None
    """Share of the steps over which the learning rate rises."""
    schedule: Literal["linear", "released"] | None = None
    """linear: up, then down to 0. released: decay and warm-up multiplied, from step 0."""
    dropout: float | None = None
    """Dropout everywhere, on attention weights too where --attention-dropout does not say otherwise."""
    attention_dropout: float | None = None
    """Dropout on attention weights."""
    head_dropout: Literal["all", "texts"] | None = None
    """Dropout before the head: in all tasks, or where whole texts are judged, as the released code has it."""
    pooling: Literal["cls", "mean"] | None = None
    """What stands for a whole text: [CLS], as the paper, or the mean over its tokens, for encoders that trained for hours, not days."""
    weight_decay: float | None = None
    """Decay of weights per unit of learning rate."""
    reduction: Literal["mean", "sum"] | None = None
    """Of the losses of a batch, before the gradient is clipped: the paper's mean, or the released code's sum."""
    clip_norm: float | None = None
    """Largest global norm of the gradient; 0: not clipped."""
    double_unordered: bool | None = None
    """Train on pairs without an order (MRPC, STS-B) in both orders, as the released code does."""

    def changes(self) -> dict[str, object]:
        """The fields of `Recipe` that were given."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "recipe"}
        changed = {name: value for name, value in given.items() if value is not None}
        return ({"attention_dropout": self.dropout} if self.dropout is not None else {}) | changed


@dataclass(frozen=True, kw_only=True)
class CorpusFlags:
    """How text files are read."""

    documents: Literal["blank", "line", "file"] = "blank"
    """What ends a document in .txt: a blank line, every line, or the end of the file."""
    text_field: str = "text"
    """Field of .jsonl that holds the text."""
    on_bad_text: Literal["error", "skip", "replace"] = "error"
    """Bytes that are not UTF-8, NUL bytes, unusable JSON: stop, leave the line out, or repair it."""


def settings(flags: CorpusFlags, **more: object) -> "PrepareSettings":
    """The settings that the flags make."""
    from electra_trainer.data.prepare import PrepareSettings

    return PrepareSettings(
        boundary=flags.documents,
        text_field=flags.text_field,
        on_bad_text=flags.on_bad_text,
        **more,  # type: ignore[arg-type]
    )


def print_corpus(report: "CorpusReport") -> None:
    """What was read, and what was wrong with it."""
    for line in report.summary():
        print(line)
