"""From the results on disk to the summary of a fine-tuning experiment: every task over its seeds, beside its floors.

What is compared is the main metric on the main split. A run's seed decides its head, order and dropout, not its encoder: the interval
is of what fine-tuning again would give, as the paper's medians are (§3.1), not of what pre-training again would. No torch here.
"""

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.experiment_file import Cell, Declared, DeclaredTask, Kind, read
from electra_trainer.experiments.results import Result, read_result
from electra_trainer.experiments.statistics import Paired, compare_paired
from electra_trainer.files.durable import replace_durably
from electra_trainer.settings.records import read_table

Scores = dict[str, dict[str, float]]
"""By split, then metric: see `Result.scores`."""
UNTRAINED = "untrained"
_COUNTED = {"QuestionAnswering": "word overlap"}
"""Floors without an encoder, by kind of task, in words."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over the seeds."""

    n: int
    median: float
    mean: float
    sd: float | None
    """Sample standard deviation; None for one seed."""
    best: float
    worst: float
    by_seed: dict[int, float]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The encoder against a floor."""

    floor: str
    """`untrained`, `majority`, `bag_of_words`, `word_overlap`."""
    title: str
    """The same in words: "the bag of words"."""
    median: float
    """The encoder's."""
    floor_median: float
    difference: float
    """Of the medians."""
    paired: Paired
    """Differences by seed; a floor without seeds is the same beside each."""
    verdict: Literal["beats", "perhaps", "does not beat"]
    """`perhaps`: above it, by so little that Student's 95 % interval of the mean difference has 0 in it."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """All that an experiment says of a task."""

    task: str
    metric: str
    """The main one."""
    split: str
    """The main one."""
    train_rows: int
    recipe: dict[str, Any]
    changed: dict[str, Any]
    """Fields of the recipe that were asked for otherwise than its name says."""
    scores: dict[str, dict[str, Spread]]
    """By split, then metric; empty where no seed is done."""
    untrained: dict[str, dict[str, Spread]]
    """The same of the encoder with fresh weights."""
    floors: dict[str, Scores]
    """By name: `majority`, `bag_of_words`, of questions `word_overlap`."""
    comparisons: tuple[Comparison, ...]
    best_seed: int | None
    """The run with the best main score, the first of equals."""
    median_seed: int | None
    """The run in the middle; of an even number the lower of the two."""
    runs: dict[int, str]
    """Folders of the runs that are done, relative to the experiment's."""
    notes: tuple[str, ...]
    """What a reader of the scores must know."""
    doubts: tuple[str, ...]
    """What looks wrong."""
    failed: dict[int, str]
    """Seeds without a score, and why."""
    missing: tuple[int, ...]
    """Seeds that are not done yet."""
    unmeasured: tuple[str, ...]
    """Floors that are not done yet."""

    @property
    def otherwise(self) -> str:
        """What was changed in the recipe, in words: "epochs 10, pooling mean"; empty where nothing was."""
        return ", ".join(f"{name.replace('_', '-')} {_value(value)}" for name, value in self.changed.items())

    @property
    def main(self) -> Spread | None:
        """The main metric on the main split; None where no seed is done."""
        return self.scores.get(self.split, {}).get(self.metric)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All that an experiment says."""

    model: str
    model_sha256: str
    recipe: str
    device: str
    threads: int
    seeds: tuple[int, ...]
    tasks: tuple[TaskSummary, ...]

    def task(self, name: str) -> TaskSummary:
        """The summary of a task.

        Raises:
            ConfigError: the experiment has no such task.
        """
        names = [one.task for one in self.tasks]
        if name not in names:
            raise ConfigError(f"{name}: no such task here.{did_you_mean(name, names)} Known: {', '.join(names)}.")
        return self.tasks[names.index(name)]

    def plain(self) -> dict[str, Any]:
        """The same as summary.json has it."""
        return {"version": 1, **asdict(self)}


def summarize(out: Path) -> Summary:
    """The summary of whatever results are in an experiment's folder.

    Raises:
        MissingInputError: no experiment is there. DataError: a result is not one.
    """
    declared = read(out)
    return Summary(
        model=declared.model,
        model_sha256=declared.model_sha256,
        recipe=declared.recipe,
        device=declared.device,
        threads=declared.threads,
        seeds=declared.seeds,
        tasks=tuple(_task(out, name, declared) for name in declared.tasks),
    )


def best_run(out: Path, task: str) -> Path:
    """The run folder with the best score on a task, the first of equals.

    Raises:
        MissingInputError: no experiment is there, or no run of this task is done. ConfigError: it has no such task.
    """
    found = summarize(out).task(task)
    if found.best_seed is None:
        raise MissingInputError(f"{out}: no run of {task} is done. Repeat the command that the experiment began with.")
    return out / found.runs[found.best_seed]


def best_seed(results: Mapping[int, Result], *, split: str, metric: str) -> int | None:
    """The seed with the best score, the smallest of equals; None where there is no score."""
    scores = {seed: result.scores[split][metric] for seed, result in results.items() if result.failed is None}
    return min(scores, key=lambda seed: (-scores[seed], seed), default=None)


def spread(by_seed: Mapping[int, float]) -> Spread:
    """Of at least one seed."""
    values = list(by_seed.values())
    return Spread(
        n=len(values),
        median=statistics.median(values),
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        best=max(values),
        worst=min(values),
        by_seed=dict(by_seed),
    )


def results_of(out: Path, task: str, declared: Declared, kind: Kind) -> dict[int, Result]:
    """The results that are there, by seed."""
    cells = [Cell(out=out, task=task, kind=kind, seed=seed) for seed in declared.seeds]
    return {cell.seed: _read_own(cell) for cell in cells if cell.result.is_file()}


def _read_own(cell: Cell) -> Result:
    result = read_result(cell.folder)
    if (result.task, result.seed) != (cell.task, cell.seed):
        raise DataError(f"{cell.result}: is not the result of {cell}. Delete it, and the run is repeated.")
    return result


def _task(out: Path, name: str, declared: Declared) -> TaskSummary:
    task = declared.tasks[name]
    split, metric = task.dev[0], task.metric
    results = results_of(out, name, declared, "encoder")
    fresh = results_of(out, name, declared, "untrained") if declared.floors else {}
    floors_cell = Cell(out=out, task=name, kind="floors")
    table = read_table(floors_cell.result) if declared.floors and floors_cell.result.is_file() else None
    floors: dict[str, Scores] = {key: value for key, value in (table or {}).items() if key != "notes" and value}
    scores, untrained = _spreads(results), _spreads(fresh)
    main = scores.get(split, {}).get(metric)
    done = [seed for seed, result in results.items() if result.failed is None]
    lacking = [seed for seed in declared.seeds if declared.floors and seed not in fresh]
    return TaskSummary(
        task=name,
        metric=metric,
        split=split,
        train_rows=task.train_rows,
        recipe=task.recipe,
        changed=task.changed,
        scores=scores,
        untrained=untrained,
        floors=floors,
        comparisons=_comparisons(name, task, main, untrained.get(split, {}).get(metric), floors),
        best_seed=best_seed(results, split=split, metric=metric),
        median_seed=_median_seed(main),
        runs={seed: _relative(out, name, seed) for seed in done},
        notes=(*task.notes, *(table or {}).get("notes", [])),
        doubts=_doubts(results, fresh),
        failed={seed: result.failed for seed, result in results.items() if result.failed is not None},
        missing=tuple(seed for seed in declared.seeds if seed not in results),
        unmeasured=(
            *(f"untrained, seed {seed}" for seed in lacking),
            *(
                [_COUNTED.get(task.task["kind"], "majority and bag of words")]
                if declared.floors and table is None
                else []
            ),
        ),
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _relative(out: Path, task: str, seed: int) -> str:
    return Cell(out=out, task=task, kind="encoder", seed=seed).folder.relative_to(out).as_posix()


def _spreads(results: Mapping[int, Result]) -> dict[str, dict[str, Spread]]:
    values: dict[str, dict[str, dict[int, float]]] = {}
    for seed, result in results.items():
        for split, scores in result.scores.items():
            for metric, value in scores.items():
                values.setdefault(split, {}).setdefault(metric, {})[seed] = value
    return {
        split: {metric: spread(by_seed) for metric, by_seed in of_split.items()} for split, of_split in values.items()
    }


def _median_seed(main: Spread | None) -> int | None:
    if main is None:
        return None
    ordered = sorted(main.by_seed, key=lambda seed: (main.by_seed[seed], seed))
    return ordered[(len(ordered) - 1) // 2]


def _doubts(results: Mapping[int, Result], fresh: Mapping[int, Result]) -> tuple[str, ...]:
    """Each doubt once, with the seeds that it is about; an untrained encoder may collapse, but not fail."""
    whom: dict[str, list[int]] = {}
    for seed, result in results.items():
        for doubt in result.doubts:
            whom.setdefault(doubt, []).append(seed)
    of_runs = [f"seed{'s' * (len(seeds) > 1)} {_listed(seeds)}: {doubt}" for doubt, seeds in whom.items()]
    failed = [f"untrained, seed {seed}: {result.failed}" for seed, result in fresh.items() if result.failed is not None]
    return (*of_runs, *failed)


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds))


def _comparisons(
    name: str, task: DeclaredTask, main: Spread | None, untrained: Spread | None, floors: Mapping[str, Scores]
) -> tuple[Comparison, ...]:
    if main is None:
        return ()
    kind = task.task["kind"]
    titles = {
        UNTRAINED: "the untrained encoder",
        "majority": {"Regression": "the mean value", "QuestionAnswering": "never answering"}.get(
            kind, "the majority class"
        ),
        "bag_of_words": "the most frequent tag of each word" if kind == "Tagging" else "the bag of words",
        "word_overlap": "the sentence with most words of the question",
    }
    beside: dict[str, dict[int, float]] = {UNTRAINED: untrained.by_seed} if untrained is not None else {}
    for floor, scores in floors.items():
        value = scores.get(task.dev[0], {}).get(task.metric)
        if value is not None:
            beside[floor] = dict.fromkeys(main.by_seed, value)
    found = [_compare(name, floor, titles.get(floor, floor), main, values) for floor, values in beside.items()]
    return tuple(one for one in found if one is not None)


def _compare(name: str, floor: str, title: str, main: Spread, values: dict[int, float]) -> Comparison | None:
    paired = compare_paired(main.by_seed, values)
    if paired is None:
        return None
    of_floor = statistics.median(values.values())
    difference = main.median - of_floor
    low = paired.t_interval[0] if paired.t_interval is not None else difference
    verdict: Literal["beats", "perhaps", "does not beat"] = (
        "does not beat" if difference <= 0 else "beats" if low > 0 else "perhaps"
    )
    says = {"perhaps": "is above", "beats": "beats", "does not beat": "does not beat"}[verdict]
    digits = 5 if 0 < abs(difference) < 0.001 else 3
    words = f"median {main.median:.{digits}f} against {of_floor:.{digits}f}"
    if paired.t_interval is not None and verdict != "does not beat":
        low, high = paired.t_interval
        words += f", mean difference {paired.mean:+.3f}, 95 % from {low:+.3f} to {high:+.3f} over {paired.n} seeds"
    doubt = ", not beyond doubt" if verdict == "perhaps" else ", of a single seed" if main.n == 1 else ""
    return Comparison(
        floor=floor,
        title=title,
        median=main.median,
        floor_median=of_floor,
        difference=difference,
        paired=paired,
        verdict=verdict,
        sentence=f"{name}: {says} {title}{doubt} ({words}).",
    )


def write_summary(out: Path, summary: Summary) -> None:
    """Write summary.json, summary.md and timing.json."""
    from electra_trainer.experiments.pages import markdown

    replace_durably(out / "summary.json", (json.dumps(summary.plain(), indent=1) + "\n").encode())
    replace_durably(out / "summary.md", markdown(summary).encode())
    replace_durably(out / "timing.json", (json.dumps(timing(out), indent=1) + "\n").encode())


def timing(out: Path) -> dict[str, Any]:
    """Seconds of training of each run that is done, and the rows that it read a second; all of them together."""
    declared, runs = read(out), {}
    for cell in declared.cells(out, kinds=("encoder", "untrained")):
        if cell.result.is_file():
            result, epochs = _read_own(cell), float(declared.tasks[cell.task].recipe["epochs"])
            rate = round(result.rows * epochs / result.seconds, 1) if result.seconds else None
            runs[cell.folder.relative_to(out).as_posix()] = {"seconds": result.seconds, "rows_per_second": rate}
    total = sum(one["seconds"] or 0.0 for one in runs.values())
    return {"version": 1, "seconds": round(total, 3), "runs": runs}
