"""Plans of experiments as tests make them: on this CPU, one run at a time, quiet."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra_trainer.experiments.summary import Summary
from electra_trainer.finetuning.experiment import Plan, run_plan
from electra_trainer.finetuning.tuning import Tuning
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import TaskData, TaskSource


def request(model: str = "model", *, changes: Mapping[str, Any] | None = None, **fields: Any) -> Tuning:
    """A request with these overrides of the recipe, also where they are its defaults."""
    given: dict[str, Any] = dict(changes or {})
    usual: dict[str, Any] = {"out": Path("out"), "recipe": "paper", "device": "cpu", "parallel": 1, "quiet": True}
    names = tuple(f"--{name}" for name in given)
    return Tuning(model=model, changes=Recipe(**given), typed=names, **usual | fields)


def plan(
    model: str, *tasks: TaskSource, seeds: tuple[int, ...] = (1,), keep_weights: bool = False, **fields: Any
) -> Plan:
    return Plan(request=request(model, **fields), tasks=tasks, seeds=seeds, keep_weights=keep_weights)


def asked(made: Plan, **fields: Any) -> Plan:
    """The plan with other fields of its request."""
    return replace(made, request=replace(made.request, **fields))


def go(made: Plan, out: Path, *, data: TaskData | None = None, **fields: Any) -> Summary:
    """Run it in a folder."""
    return run_plan(asked(made, out=out, **fields), data=data)
