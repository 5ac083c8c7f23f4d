"""The flags that change a recipe, shared by `glue`, `squad` and `finetune`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated

import tyro

from electra_trainer.cli.preset_flags import value_of
from electra_trainer.finetuning.recipe import Recipe, recipe


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
