"""GLUE's scores in the paper's columns (Tables 2 and 7), next to GLUE's own metrics, with notes for their reader. No torch here.

Scores of a summary are shares or correlations; tables print them x100. An average is of the paper's eight tasks (MNLI matched, no WNLI),
or it is not given.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from electra_trainer.experiments.statistics import Spread, spread
from electra_trainer.files.table_writer import Table
from electra_trainer.finetuning.glue.glue_tasks import PAPER, PAPER_COLUMNS, ROWS

if TYPE_CHECKING:
    from electra_trainer.finetuning.task_summary import Summary, TaskSummary

ABSENT = "—"
_OWN = {
    "MRPC F1": ("mrpc", "dev", "f1"), "MRPC acc.": ("mrpc", "dev", "accuracy"), "STS-B Pearson": ("stsb", "dev", "pearson"),
    "STS-B Spearman": ("stsb", "dev", "spearman"), "QQP F1": ("qqp", "dev", "f1"), "QQP acc.": ("qqp", "dev", "accuracy"),
    "MNLI-m": ("mnli", "dev_matched", "accuracy"), "MNLI-mm": ("mnli", "dev_mismatched", "accuracy"),
}  # fmt: skip
_BASELINES = {"untrained": "untrained encoder", "majority": "majority", "bag_of_words": "bag of words"}
_STATISTICS = ("median", "mean", "SD", "best")
"""Rows of a table; in lower case they are fields of a Spread."""


@dataclass(frozen=True, kw_only=True)
class BaselineScore:
    """The score of a baseline in the paper's column."""

    value: float
    title: str
    """In words: "the majority class"."""
    verdict: Literal["beats", "perhaps", "does not beat"] | None = None
    """Of the encoder, over its seeds; `perhaps`: above the baseline, by less than is certain. None: it has no score."""


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """A task's scores on its dev sets."""

    task: str
    scores: Mapping[str, Mapping[str, Spread]]
    """By split, then metric; only those of at least one seed."""
    baselines: Mapping[str, BaselineScore] = field(default_factory=dict)
    """By name: `untrained`, `majority`, `bag_of_words`."""
    notes: tuple[str, ...] = ()
    recipe: str = ""
    """Its name, and its changes."""

    @property
    def folder(self) -> str:
        """GLUE's name of the task."""
        return ROWS[self.task].folder

    @property
    def paper(self) -> Spread | None:
        """The main metric, that of the paper's column; None where no seed finished."""
        split, metric = _main(self.task)
        return self.scores.get(split, {}).get(metric)


@dataclass(frozen=True, kw_only=True)
class GlueTable(Table):
    """A table as it is printed."""

    title: str


def glue_metrics(tasks: Sequence[TaskScores]) -> dict[str, float]:
    """Medians as shares, by the keys of the paper's tables: `glue/cola`, `glue/sst` ... and, if all eight are there, `glue/average`;
    then other tasks, which no average counts, by their names: `glue/wnli`.
    """
    medians = {one.task: one.paper.median for one in tasks if one.paper is not None}
    found = {f"glue/{title.lower()}": medians.pop(name) for name, title in PAPER_COLUMNS.items() if name in medians}
    average = {"glue/average": statistics.fmean(found.values())} if len(found) == len(PAPER) else {}
    return found | average | {f"glue/{name}": median for name, median in medians.items()}


def glue_tables(tasks: Sequence[TaskScores]) -> tuple[GlueTable, ...]:
    """The paper's columns with the baselines, and GLUE's own metrics; then all metrics of tasks that are not among the paper's eight."""
    known = {one.task: one for one in tasks}

    def found(task: str, split: str, metric: str) -> Spread | None:
        return known[task].scores.get(split, {}).get(metric) if task in known else None

    paper = {title: found(name, *_main(name)) for name, title in PAPER_COLUMNS.items()}
    below = {
        title: [known[task].baselines.get(name) if task in known else None for task in PAPER]
        for name, title in _BASELINES.items()
    }
    of_the_paper = (
        _table("GLUE dev: Matthews (CoLA), Spearman (STS), accuracy (others), x100", paper, below, average=True),
        _table("GLUE's own metrics on dev, x100", {title: found(*place) for title, place in _OWN.items()}),
    )
    places = [
        (one, split, metric)
        for one in _others(tasks)
        for split in ROWS[one.task].dev
        for metric in ROWS[one.task].metrics
    ]
    others = {
        f"{one.folder} {metric}" + (f" {split}" if len(ROWS[one.task].dev) > 1 else ""): found(one.task, split, metric)
        for one, split, metric in places
    }
    below = {
        title: [one.baselines.get(name) if place == _main(one.task) else None for one, *place in places]
        for name, title in _BASELINES.items()
    }
    return (
        *(of_the_paper if _asks_for_the_paper_s(tasks) else ()),
        *([_table("Other tasks, on dev, x100", others, below)] if others else []),
    )


def _table(
    title: str,
    columns: Mapping[str, Spread | None],
    below: Mapping[str, Sequence[BaselineScore | None]] | None = None,
    *,
    average: bool = False,
) -> GlueTable:
    """Statistics of the columns, then the rows `below`, those with a value; `average`: with the mean of all columns."""
    spreads = list(columns.values())
    counts = {one.n for one in spreads if one is not None}
    first = f"median of {counts.pop()}" if len(counts) == 1 else "median"
    lines = [
        (first if name == "median" else name, [_statistic(one, name) for one in spreads], _average(spreads, name))
        for name in _STATISTICS
    ]
    for label, scores in (below or {}).items():
        if any(scores):
            values = [None if one is None else one.value for one in scores]
            lines.append((label, values, _mean_of_all(values)))
    return GlueTable(
        title=title,
        head=("", *columns, *(["Avg."] if average else [])),
        rows=tuple((label, *map(_points, [*values, mean] if average else values)) for label, values, mean in lines),
        words=1,
    )


def _statistic(of: Spread | None, name: str) -> float | None:
    """None: it is missing, or the SD of one seed."""
    value: float | None = getattr(of, name.lower(), None)
    return value


def _average(spreads: Sequence[Spread | None], statistic: str) -> float | None:
    """Of all columns; the SD is that of the seeds' averages, if every task has the same seeds."""
    if statistic != "SD":
        return _mean_of_all([_statistic(one, statistic) for one in spreads])
    there = [one.by_seed for one in spreads if one is not None]
    if len(there) < len(spreads) or len({tuple(sorted(by_seed)) for by_seed in there}) != 1:
        return None
    return spread({seed: statistics.fmean(one[seed] for one in there) for seed in there[0]}).sd


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there and len(there) == len(values) else None


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f}"


def _asks_for_the_paper_s(tasks: Sequence[TaskScores]) -> bool:
    return not tasks or len(_others(tasks)) < len(tasks)


def _others(tasks: Sequence[TaskScores]) -> list[TaskScores]:
    return [one for one in tasks if one.task not in PAPER]


def _main(task: str) -> list[str]:
    """Split and metric of a task."""
    return [next(iter(ROWS[task].dev)), ROWS[task].metrics[0]]


def glue_notes(tasks: Sequence[TaskScores]) -> tuple[str, ...]:
    """What a reader of the tables must know: what is missing or partial, what is doubtful, which baselines are not beaten."""
    there = {one.task for one in tasks if one.paper is not None}
    missing = [title for name, title in PAPER_COLUMNS.items() if name not in there]
    notes = []
    if missing and _asks_for_the_paper_s(tasks):
        notes.append(f"{ABSENT}: missing. No average is given without {', '.join(missing)}.")
    seeds = {one.folder: one.paper.n for one in tasks if one.paper is not None}
    if len(set(seeds.values())) > 1:
        notes.append(f"Seeds: {', '.join(f'{folder} {count}' for folder, count in seeds.items())}.")
    by_recipe: dict[str, list[str]] = {}
    for one in tasks:
        if one.recipe:
            by_recipe.setdefault(one.recipe, []).append(one.folder)
    for recipe, folders in by_recipe.items():
        notes.append(f"Recipe {recipe}" + (f": {', '.join(folders)}." if len(by_recipe) > 1 else "."))
    notes += list(dict.fromkeys(note for one in tasks for note in one.notes))
    return (*notes, *_against_baselines(tasks))


def _against_baselines(tasks: Sequence[TaskScores]) -> Iterable[str]:
    """Each baseline that a median does not beat, or not for certain; then the tasks that beat them all."""
    if not any(one.baselines for one in tasks):
        yield "No baselines were measured (--baselines), so what an encoder without training reaches is not known here."
    clear = []
    for one in tasks:
        if {baseline.verdict for baseline in one.baselines.values()} == {"beats"} and one.paper is not None:
            clear.append(one.folder + " (a single seed)" * (one.paper.n == 1))
        for baseline in one.baselines.values():
            median = one.paper.median if one.paper is not None else 0.0
            numbers = f"{_points(median)} against {_points(baseline.value)} ({100 * (median - baseline.value):+.1f})"
            if baseline.verdict == "perhaps":
                yield f"{one.folder} is above {baseline.title}, but not for certain over these seeds: {numbers}."
            elif baseline.verdict == "does not beat":
                yield f"{one.folder} DOES NOT BEAT {baseline.title}: {numbers}."
    if clear:
        yield f"Beat every measured baseline: {', '.join(clear)}."


def markdown(tasks: Sequence[TaskScores]) -> str:
    """The tables and the notes."""
    tables = [f"**{table.title}**\n\n{table.markdown(escaped='|')}\n" for table in glue_tables(tasks)]
    return "\n".join([*tables, *(f"- {note}" for note in glue_notes(tasks)), ""])


def text(tasks: Sequence[TaskScores]) -> str:
    """The same for a terminal."""
    return "\n".join([*(f"{table.title}\n{table.text()}\n" for table in glue_tables(tasks)), *glue_notes(tasks)])


def task_scores(summary: "Summary") -> tuple[TaskScores, ...]:
    """Scores, baselines and notes of GLUE's tasks."""
    return tuple(_scores_of(one, summary.recipe) for one in summary.tasks if one.task in ROWS)


def best_runs(summary: "Summary", *, out: Path) -> dict[str, Path]:
    """The run folder with the best main score of each task that has one; as the paper chose what to submit (Appendix D)."""
    return {one.task: out / one.runs[one.best_seed] for one in summary.tasks if one.best_seed is not None}


def _scores_of(one: "TaskSummary", recipe: str) -> TaskScores:
    title = ROWS[one.task].folder
    missing = [*(f"seed {seed}" for seed in one.missing), *one.unmeasured]
    return TaskScores(
        task=one.task,
        scores=one.scores,
        baselines=_baselines(one),
        recipe=f"`{recipe}`{f' with {one.otherwise}' if one.otherwise else ''}",
        notes=(
            *(f"{title}: {note}" for note in one.notes),
            *(f"{title}: seed {seed} failed: {why}" for seed, why in one.failed.items()),
            *([f"{title}: missing: {'; '.join(missing)}."] if missing else []),
            *(f"{title}: DOUBTFUL: {doubt}" for doubt in one.doubts),
        ),
    )


def _baselines(one: "TaskSummary") -> dict[str, BaselineScore]:
    """Baselines in the main metric, and how the task compares."""
    fresh = one.untrained.get(one.split, {}).get(one.metric)
    values = {"untrained": fresh.median if fresh is not None else None}
    values |= {name: scores.get(one.split, {}).get(one.metric) for name, scores in one.floors.items()}
    compared = {found.floor: (found.title, found.verdict) for found in one.comparisons}
    found = {}
    for name, value in values.items():
        title, verdict = compared.get(name, (name, None))
        if value is not None:
            found[name] = BaselineScore(value=value, title=title, verdict=verdict)
    return found
