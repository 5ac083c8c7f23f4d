"""The summary of an experiment -> what GLUE's tables are made of: the one place that knows both. No torch here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from electra_trainer.finetune.glue import ROWS
from electra_trainer.finetune.glue_table import Floor, Spread, TaskScores

if TYPE_CHECKING:
    from electra_trainer.finetune.summary import Summary, TaskSummary


def task_scores(summary: Summary) -> tuple[TaskScores, ...]:
    """Scores, floors and what must be said, of GLUE's tasks."""
    return tuple(_of(one, summary.recipe) for one in summary.tasks if one.task in ROWS)


def best_runs(summary: Summary, *, out: Path) -> dict[str, Path]:
    """The run folder with the best main score of each task that has one; as the paper chose what to submit (Appendix D)."""
    return {one.task: out / one.runs[one.best_seed] for one in summary.tasks if one.best_seed is not None}


def _of(one: TaskSummary, recipe: str) -> TaskScores:
    title = ROWS[one.task].folder
    failed = [f"{title}: seed {seed} failed: {why}" for seed, why in one.failed.items()]
    missing = [*(f"seed {seed}" for seed in one.missing), *one.unmeasured]
    return TaskScores(
        task=one.task,
        scores={
            split: {metric: Spread(by_seed=found.by_seed) for metric, found in metrics.items()}
            for split, metrics in one.scores.items()
        },
        floors=_floors(one),
        recipe=f"`{recipe}`{f' with {one.otherwise}' if one.otherwise else ''}",
        notes=(
            *(f"{title}: {note}" for note in one.notes),
            *failed,
            *([f"{title}: missing: {'; '.join(missing)}."] if missing else []),
            *(f"{title}: DOUBTFUL: {doubt}" for doubt in one.doubts),
        ),
    )


def _floors(one: TaskSummary) -> dict[str, Floor]:
    """Floors in the main metric, and how the task compares."""
    fresh = one.untrained.get(one.split, {}).get(one.metric)
    values = {"untrained": fresh.median} if fresh is not None else {}
    for name, scores in one.floors.items():
        if one.metric in scores.get(one.split, {}):
            values[name] = scores[one.split][one.metric]
    compared = {found.floor: found for found in one.comparisons}
    return {
        name: Floor(
            value=value,
            title=compared[name].title if name in compared else name,
            verdict=compared[name].verdict if name in compared else None,
        )
        for name, value in values.items()
    }
