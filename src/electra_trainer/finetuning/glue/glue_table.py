"""GLUE's scores in the paper's columns (Tables 2 and 7), GLUE's own metrics beside them, and what must be said below. No torch here.

Scores of a summary are shares or correlations; tables print them x100. An average is of the paper's eight tasks (MNLI matched, no WNLI)
or is not given.

The summary of an experiment -> what GLUE's tables are made of: the one place that knows both. No torch here.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from electra_trainer.finetuning.glue.glue_tasks import PAPER, PAPER_COLUMNS, ROWS

if TYPE_CHECKING:
    from electra_trainer.finetuning.task_summary import Summary, TaskSummary

ABSENT = "—"
_OWN = (
    ("MRPC F1", "mrpc", "dev", "f1"), ("MRPC acc.", "mrpc", "dev", "accuracy"), ("STS-B Pearson", "stsb", "dev", "pearson"),
    ("STS-B Spearman", "stsb", "dev", "spearman"), ("QQP F1", "qqp", "dev", "f1"), ("QQP acc.", "qqp", "dev", "accuracy"),
    ("MNLI-m", "mnli", "dev_matched", "accuracy"), ("MNLI-mm", "mnli", "dev_mismatched", "accuracy"),
)  # fmt: skip
_FLOORS = {"untrained": "untrained encoder", "majority": "majority", "bag_of_words": "bag of words"}
Statistic = Literal["median", "mean", "sd", "best"]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over the seeds."""

    by_seed: Mapping[int, float]

    def of(self, statistic: Statistic) -> float | None:
        """None: one seed has no SD."""
        values = list(self.by_seed.values())
        match statistic:
            case "median":
                return statistics.median(values)
            case "mean":
                return statistics.fmean(values)
            case "best":
                return max(values)
            case "sd":
                return statistics.stdev(values) if len(values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What is to be had without the encoder, in the paper's column."""

    value: float
    title: str
    """In words: "the majority class"."""
    verdict: Literal["beats", "perhaps", "does not beat"] | None = None
    """Of the encoder, over its seeds; `perhaps`: above the floor, by less than is certain. None: it has no score."""


@dataclass(frozen=True, kw_only=True)
class TaskScores:
    """A task's scores on its dev sets."""

    task: str
    scores: Mapping[str, Mapping[str, Spread]]
    """By split, then metric; only what at least one seed has."""
    floors: Mapping[str, Floor] = field(default_factory=dict)
    """By name: `untrained`, `majority`, `bag_of_words`."""
    notes: tuple[str, ...] = ()
    recipe: str = ""
    """Its name, and what was changed in it."""

    @property
    def paper(self) -> Spread | None:
        """What stands in the paper's column, the main one; None where no seed finished."""
        split, metric = _main(self.task)
        return self.scores.get(split, {}).get(metric)


@dataclass(frozen=True, kw_only=True)
class GlueTable:
    """A table as it is printed."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    """The first is the head."""


def glue_metrics(tasks: Sequence[TaskScores]) -> dict[str, float]:
    """Medians as shares, by the keys of the paper's tables: `glue/cola`, `glue/sst` ... and, if all eight are there, `glue/average`;
    then other tasks, which no average counts, by their names: `glue/wnli`.
    """
    known = _by_name(tasks)
    found = {
        f"glue/{title.lower()}": spread.of("median") or 0.0
        for name, title in PAPER_COLUMNS.items()
        if name in known and (spread := known[name].paper) is not None
    }
    average = {"glue/average": statistics.fmean(found.values())} if len(found) == len(PAPER) else {}
    others = {f"glue/{one.task}": one.paper.of("median") or 0.0 for one in _others(tasks) if one.paper is not None}
    return found | average | others


def glue_tables(tasks: Sequence[TaskScores]) -> tuple[GlueTable, ...]:
    """The paper's columns with the floors, and GLUE's own metrics; then tasks that are not among the paper's eight, if there are any."""
    others = _others(tasks)
    return (*(_of_the_paper(tasks) if _asks_for_the_paper_s(tasks) else ()), *([_of_others(others)] if others else []))


def _asks_for_the_paper_s(tasks: Sequence[TaskScores]) -> bool:
    return not tasks or len(_others(tasks)) < len(tasks)


def _others(tasks: Sequence[TaskScores]) -> list[TaskScores]:
    return [one for one in tasks if one.task not in PAPER]


def _of_others(tasks: Sequence[TaskScores]) -> GlueTable:
    """All of their metrics; a floor stands under a task's main one."""
    columns = [
        (one, split, metric) for one in tasks for split in ROWS[one.task].dev for metric in ROWS[one.task].metrics
    ]
    found = [one.scores.get(split, {}).get(metric) for one, split, metric in columns]
    titles = [
        f"{ROWS[one.task].folder} {metric}" + (f" {split}" if len(ROWS[one.task].dev) > 1 else "")
        for one, split, metric in columns
    ]
    rows: list[tuple[str, ...]] = [("", *titles)]
    rows += [(label, *(_points(_of(spread, which)) for spread in found)) for label, which in _labels(found)]
    for name, title in _FLOORS.items():
        if any(name in one.floors for one in tasks):
            floors = [
                one.floors[name].value if name in one.floors and (split, metric) == _main(one.task) else None
                for one, split, metric in columns
            ]
            rows.append((title, *map(_points, floors)))
    return GlueTable(title="Other tasks, on dev, x100", rows=tuple(rows))


def _of_the_paper(tasks: Sequence[TaskScores]) -> tuple[GlueTable, GlueTable]:
    known = _by_name(tasks)
    paper = [known[name].paper if name in known else None for name in PAPER]
    rows: list[tuple[str, ...]] = [("", *PAPER_COLUMNS.values(), "Avg.")]
    rows += [
        _line(label, [_of(one, which) for one in paper], _average(paper, which)) for label, which in _labels(paper)
    ]
    for name, title in _FLOORS.items():
        floors = [known[task].floors.get(name) if task in known else None for task in PAPER]
        if any(floors):
            values = [None if floor is None else floor.value for floor in floors]
            rows.append(_line(title, values, _mean_of_all(values)))
    own = [known[task].scores.get(split, {}).get(metric) if task in known else None for _, task, split, metric in _OWN]
    beside: list[tuple[str, ...]] = [("", *(title for title, *_ in _OWN))]
    beside += [(label, *(_points(_of(one, which)) for one in own)) for label, which in _labels(own)]
    return (
        GlueTable(title="GLUE dev: Matthews (CoLA), Spearman (STS), accuracy (others), x100", rows=tuple(rows)),
        GlueTable(title="GLUE's own metrics on dev, x100", rows=tuple(beside)),
    )


def glue_notes(tasks: Sequence[TaskScores]) -> tuple[str, ...]:
    """What a reader of the tables must know: what is missing or partial, what is doubtful, which floors are not beaten."""
    known = _by_name(tasks)
    missing = [title for name, title in PAPER_COLUMNS.items() if name not in known or known[name].paper is None]
    notes = []
    if missing and _asks_for_the_paper_s(tasks):
        notes.append(f"{ABSENT}: missing. No average is given without {', '.join(missing)}.")
    seeds = {ROWS[one.task].folder: len(one.paper.by_seed) for one in tasks if one.paper is not None}
    if len(set(seeds.values())) > 1:
        notes.append(f"Seeds: {', '.join(f'{folder} {count}' for folder, count in seeds.items())}.")
    notes += _recipes(tasks)
    notes += list(dict.fromkeys(note for one in tasks for note in one.notes))
    return (*notes, *_against_floors(tasks))


def _recipes(tasks: Sequence[TaskScores]) -> list[str]:
    """How the tasks were fine-tuned; which of them, where it was not all alike."""
    by_recipe: dict[str, list[str]] = {}
    for one in tasks:
        if one.recipe:
            by_recipe.setdefault(one.recipe, []).append(ROWS[one.task].folder)
    if len(by_recipe) == 1:
        return [f"Recipe {recipe}." for recipe in by_recipe]
    return [f"Recipe {recipe}: {', '.join(folders)}." for recipe, folders in by_recipe.items()]


def _against_floors(tasks: Sequence[TaskScores]) -> list[str]:
    """Each floor that a median does not beat, or not for certain; then the tasks that beat them all."""
    if not any(one.floors for one in tasks):
        return ["No floors were measured (--floors): what an encoder without training reaches is not known here."]
    said, clear = [], []
    for one in tasks:
        verdicts = {floor.verdict for floor in one.floors.values()}
        if verdicts == {"beats"}:
            single = one.paper is not None and len(one.paper.by_seed) == 1
            clear.append(ROWS[one.task].folder + " (a single seed)" * single)
        said += [_against(one, floor) for floor in one.floors.values() if floor.verdict in ("perhaps", "does not beat")]
    return said + ([f"Beat every floor that was measured: {', '.join(clear)}."] if clear else [])


def _against(one: TaskScores, floor: Floor) -> str:
    median = _of(one.paper, "median") or 0.0
    numbers = f"{_points(median)} against {_points(floor.value)} ({100 * (median - floor.value):+.1f})"
    if floor.verdict == "perhaps":
        return f"{ROWS[one.task].folder} is above {floor.title}, but not for certain over these seeds: {numbers}."
    return f"{ROWS[one.task].folder} DOES NOT BEAT {floor.title}: {numbers}."


def markdown(tasks: Sequence[TaskScores]) -> str:
    """The tables and the notes."""
    lines: list[str] = []
    for table in glue_tables(tasks):
        head, *rows = (("| " + " | ".join(row) + " |") for row in table.rows)
        lines += [f"**{table.title}**", "", head, "| --- |" + " --: |" * (len(table.rows[0]) - 1), *rows, ""]
    return "\n".join([*lines, *(f"- {note}" for note in glue_notes(tasks)), ""])


def text(tasks: Sequence[TaskScores]) -> str:
    """The same for a terminal."""
    lines: list[str] = []
    for table in glue_tables(tasks):
        widths = [max(map(len, column)) for column in zip(*table.rows, strict=True)]
        lines.append(table.title)
        for row in table.rows:
            first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  ".join([row[0].ljust(len(first)), *others]).rstrip())
        lines.append("")
    return "\n".join([*lines, *glue_notes(tasks)])


def _main(task: str) -> tuple[str, str]:
    """Split and metric of a task."""
    return next(iter(ROWS[task].dev)), ROWS[task].metrics[0]


def _by_name(tasks: Sequence[TaskScores]) -> dict[str, TaskScores]:
    return {one.task: one for one in tasks}


def _labels(spreads: Sequence[Spread | None]) -> list[tuple[str, Statistic]]:
    """The rows of a table; the first says how many seeds there are, if that is the same everywhere."""
    counts = {len(one.by_seed) for one in spreads if one is not None}
    first = f"median of {counts.pop()}" if len(counts) == 1 else "median"
    return [(first, "median"), ("mean", "mean"), ("SD", "sd"), ("best", "best")]


def _of(spread: Spread | None, statistic: Statistic) -> float | None:
    return None if spread is None else spread.of(statistic)


def _average(spreads: Sequence[Spread | None], statistic: Statistic) -> float | None:
    """Of the eight; the SD is that of the seeds' averages, where every task has the same seeds."""
    if statistic != "sd":
        return _mean_of_all([_of(one, statistic) for one in spreads])
    there = [one for one in spreads if one is not None]
    if len(there) < len(spreads) or len({tuple(sorted(one.by_seed)) for one in there}) > 1:
        return None
    averages = {seed: statistics.fmean(one.by_seed[seed] for one in there) for seed in there[0].by_seed}
    return Spread(by_seed=averages).of("sd")


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if len(there) == len(values) else None


def _line(label: str, values: Sequence[float | None], average: float | None) -> tuple[str, ...]:
    return (label, *map(_points, values), _points(average))


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f}"


def task_scores(summary: "Summary") -> tuple[TaskScores, ...]:
    """Scores, floors and what must be said, of GLUE's tasks."""
    return tuple(_scores_of(one, summary.recipe) for one in summary.tasks if one.task in ROWS)


def best_runs(summary: "Summary", *, out: Path) -> dict[str, Path]:
    """The run folder with the best main score of each task that has one; as the paper chose what to submit (Appendix D)."""
    return {one.task: out / one.runs[one.best_seed] for one in summary.tasks if one.best_seed is not None}


def _scores_of(one: "TaskSummary", recipe: str) -> TaskScores:
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


def _floors(one: "TaskSummary") -> dict[str, Floor]:
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
