"""Summaries of GLUE's tasks that nobody trained."""

from typing import Any

from electra_trainer.experiments.statistics import Paired, Spread, spread
from electra_trainer.finetuning.glue.glue_tasks import ROWS
from electra_trainer.finetuning.task_summary import UNTRAINED, Comparison, Summary, TaskSummary

Scores = dict[str, dict[str, Spread]]
Baseline = tuple[float, str, Any]
"""Score, title and verdict; None: not compared."""


def task_summary(
    task: str, scores: Scores, *, baselines: dict[str, Baseline] | None = None, **more: Any
) -> TaskSummary:
    """A task with these scores, and baselines by name in its main metric."""
    split, metric = next(iter(ROWS[task].dev)), ROWS[task].metrics[0]
    main, given = scores.get(split, {}).get(metric), baselines or {}
    values = {name: value for name, (value, _, _) in given.items()}
    fresh = {split: {metric: spread({1: values.pop(UNTRAINED)})}} if UNTRAINED in values else {}
    compared = [
        Comparison(
            floor=name, title=title, median=main.median, floor_median=value, difference=main.median - value,
            paired=Paired(n=main.n, mean=main.mean - value), verdict=verdict, sentence="",
        )
        for name, (value, title, verdict) in given.items()
        if verdict is not None and main is not None
    ]  # fmt: skip
    facts: dict[str, Any] = {
        "train_rows": 9, "recipe": {}, "changed": {}, "best_seed": None, "median_seed": None, "runs": {}, "notes": (), "doubts": (),
        "failed": {}, "missing": (), "unmeasured": (),
    }  # fmt: skip
    return TaskSummary(
        task=task, metric=metric, split=split, scores=scores, untrained=fresh, comparisons=tuple(compared),
        floors={name: {split: {metric: value}} for name, value in values.items()}, **(facts | more),
    )  # fmt: skip


def summary(*tasks: TaskSummary, recipe: str = "paper") -> Summary:
    return Summary(
        model="runs/mine", model_sha256="0", recipe=recipe, device="cpu", threads=1, seeds=(1, 2, 3), tasks=tasks
    )
