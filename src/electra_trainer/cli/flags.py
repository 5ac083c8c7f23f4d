"""The flags that `finetune`, `glue` and `squad` share: the encoder, the experiment, and what changes a recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from electra_trainer.cli.main import value_of
from electra_trainer.finetuning.recipe import Recipe, recipe

if TYPE_CHECKING:
    from electra_trainer.finetuning.experiment import Plan
    from electra_trainer.finetuning.task import TaskData, TaskSource
    from electra_trainer.finetuning.task_summary import Summary


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


@dataclass(frozen=True, kw_only=True)
class ExperimentFlags:
    """An experiment: an encoder that is fine-tuned with several seeds."""

    model: tyro.conf.Positional[str]
    """Run folder, exported folder, or a Hub name such as google/electra-small-discriminator."""
    out: Path
    """Folder of the experiment: a new one, or one to resume or extend. `finetune` and `squad` put the model into its folder model/."""
    seeds: str = "3"
    """How many, or which: 3 is 1,2,3. Of `finetune` and `squad` the best one's model is exported."""
    recipe: tyro.conf.OmitArgPrefixes[RecipeFlags] = field(default_factory=RecipeFlags)
    """How the encoder is fine-tuned."""
    baselines: Annotated[bool, tyro.conf.arg(aliases=["--floors"])] = False
    """Also score what the encoder has to beat: itself with fresh weights, and baselines without an encoder: the majority class and a bag of
    words; of questions the sentence with most of their words, and never answering (2.0)."""
    parallel: int | None = None
    """Runs at once. Default: as many as the machine has cores or GPUs for."""
    shard: str = "1/1"
    """i/N: do every N-th run, from the i-th on, so that N machines share the work; afterwards the same command without it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print one JSON object."""
    quiet: bool = False
    """Show no progress."""

    def plan(self, *tasks: "TaskSource", keep: 'Literal["none", "best"]') -> "Plan":
        """What is asked for."""
        from electra_trainer.experiments.folder import parse_seeds
        from electra_trainer.finetuning.experiment import Plan

        return Plan(
            model=self.model, tasks=tasks, recipe=self.recipe.recipe, changes=self.recipe.changes(), seeds=parse_seeds(self.seeds),
            floors=self.baselines, keep=keep,
        )  # fmt: skip

    def run(self, plan: "Plan", data: "TaskData | None" = None) -> "Summary | None":
        """Run a plan; None where only a shard of it was asked for, and what follows needs all.

        Args:
            data: what the only task loads, where it is loaded already.
        """
        from electra_trainer.experiments.folder import parse_shard
        from electra_trainer.finetuning.experiment import run_plan

        shard = parse_shard(self.shard)
        summary = run_plan(
            plan, out=self.out, device=self.device, parallel=self.parallel, shard=shard, quiet=self.quiet or self.json, data=data
        )  # fmt: skip
        if shard[1] == 1:
            return summary
        lacking = sum(len(task.missing) + len(task.unmeasured) for task in summary.tasks)
        if self.json:
            print(dumps({"summary": str(self.out / "summary.json"), "shard": self.shard, "missing": lacking}))
        else:
            runs = "1 run is" if lacking == 1 else f"{lacking} runs are"
            print(
                f"{self.out}: shard {self.shard} is done; {runs} missing. When none is: the same command without --shard."
            )
        return None


def recipe_flags(words: Sequence[str], **own: object) -> RecipeFlags:
    """The default of the flags: the recipe that `--recipe` names, with the fields `own` of a task, and what the words name."""
    name = value_of(words, "--recipe") or "paper"
    flags = {word.partition("=")[0].replace("_", "-") for word in words}
    given = tuple(one.name for one in fields(Recipe) if f"--{one.name.replace('_', '-')}" in flags)
    settings = recipe(name, hidden_size=256, **{"epochs": 3.0, **own})  # type: ignore[arg-type]
    return RecipeFlags(recipe=name, settings=settings, given=given)
