"""The flags that change a recipe, shared by `glue`, `squad` and `finetune`.

The flags that say how text files are read, shared by `tokenizer` and `prepare`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from electra_trainer.cli.preset_flags import value_of
from electra_trainer.finetuning.recipe import Recipe, recipe

if TYPE_CHECKING:
    from electra_trainer.data.corpus import CorpusReport
    from electra_trainer.data.prepare import PrepareSettings


@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How the encoder is fine-tuned. Defaults shown are the recipe's for Small; the encoder's width decides."""

    recipe: str = "paper"
    """`paper` (Table 6) or `released`, what google-research/electra runs."""
    settings: Annotated[Recipe, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff] = field(default_factory=Recipe)
    given: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Fields that the command line names."""

    def changes(self) -> dict[str, object]:
        """The fields of the recipe that were given."""
        changed: dict[str, object] = {name: getattr(self.settings, name) for name in self.given}
        return ({"attention_dropout": changed["dropout"]} if "dropout" in changed else {}) | changed


def recipe_flags(words: Sequence[str], **own: object) -> RecipeFlags:
    """The default of the flags: the recipe that `--recipe` names, with the fields `own` of a task, and what the words name."""
    name = value_of(words, "--recipe") or "paper"
    flags = {word.partition("=")[0].replace("_", "-") for word in words}
    given = tuple(one.name for one in fields(Recipe) if f"--{one.name.replace('_', '-')}" in flags)
    settings = recipe(name, hidden_size=256, **{"epochs": 3.0, **own})  # type: ignore[arg-type]
    return RecipeFlags(recipe=name, settings=settings, given=given)


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
