"""Summaries of GLUE's tasks that nobody trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.experiments.cell import Declared, DeclaredRow, Result
from electra_trainer.experiments.summary import Summary
from electra_trainer.tasks.glue_tasks import ROWS

Scores = Mapping[str, Mapping[int, float]]
"""SPLIT/METRIC -> seed -> value."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task with its results."""

    task: str
    scores: Scores
    baselines: Mapping[str, tuple[float, str]]
    """Name -> main score, name in sentences."""
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    failed: Mapping[int, str] | None = None


def task_summary(
    task: str, scores: Scores, *, baselines: Mapping[str, tuple[float, str]] | None = None, **more: Any
) -> Task:
    return Task(task=task, scores=scores, baselines=baselines or {}, **more)


def summary(
    *tasks: Task, recipe: str = "paper", path: Path = Path("exp"), seeds: Sequence[int] | None = None
) -> Summary:
    """An experiment of some tasks; by default of the seeds that they have."""
    rows: dict[str, DeclaredRow] = {}
    results: dict[str, dict[int, Result]] = {}
    known: set[int] = set()
    for one in tasks:
        metric = f"{next(iter(ROWS[one.task].dev))}/{ROWS[one.task].metrics[0]}"
        rows[one.task] = DeclaredRow(settings={}, metrics=(metric,), notes=one.notes)
        found = {seed for by_seed in one.scores.values() for seed in by_seed}
        known |= found
        results[one.task] = {
            seed: Result(
                key=one.task, seed=seed, scores={name: by_seed[seed] for name, by_seed in one.scores.items()},
                doubts=one.doubts,
            )
            for seed in sorted(found)
        } | {seed: Result(key=one.task, seed=seed, failed=why) for seed, why in (one.failed or {}).items()}  # fmt: skip
        for name, (value, title) in one.baselines.items():
            key = f"{one.task}+{name}"
            rows[key] = DeclaredRow(settings={}, metrics=(metric,), reference=one.task, baseline=title, seeded=False)
            results[key] = {0: Result(key=key, seed=0, scores={metric: value})}
    declared = Declared(
        verb="finetune",
        facts={"recipe": recipe, "device": "cpu"},
        rows=rows,
        seeds=tuple(seeds or sorted(known) or (1,)),
        about={"model": "runs/mine"},
    )
    return Summary(path=path, declared=declared, results=results)
