"""From the results on disk to the summary of a fine-tuning experiment: every task over its seeds, next to its baselines.

What is compared is the main metric on the main split. A run's seed decides its head, order and dropout, not its encoder: the interval
is of what fine-tuning again would give, as the paper's medians are (§3.1), not of what pre-training again would. No torch here.
"""

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from electra_trainer.errors import ConfigError, MissingInputError, did_you_mean
from electra_trainer.experiments import folder, results
from electra_trainer.experiments.results import Result
from electra_trainer.experiments.statistics import Paired, Spread, compare_paired, holm, spread
from electra_trainer.settings.records import read_table

Scores = dict[str, dict[str, float]]
"""By split, then metric: see `Result.scores`."""
UNTRAINED = "untrained"
_COUNTED = {"QuestionAnswering": "word overlap"}
"""Baselines without an encoder, by kind of task, in words."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The encoder against a baseline."""

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
    """Differences by seed; a baseline without seeds is the same for each."""
    verdict: Literal["beats", "perhaps", "does not beat"]
    """`perhaps`: above it, by so little that Student's 95 % interval of the mean difference includes 0."""
    sentence: str
    p_holm: float | None = None
    """Corrected over all baselines of all tasks."""


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
    """Baselines that are not done yet."""

    @property
    def otherwise(self) -> str:
        """What was changed in the recipe, in words: "epochs 10, pooling mean"; empty where nothing was."""
        said = {
            name: f"{value:g}" if isinstance(value, float) else str(value).lower()
            for name, value in self.changed.items()
        }
        return ", ".join(f"{name.replace('_', '-')} {value}" for name, value in said.items())

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
    declared = folder.read(out, of="finetune")
    tasks = [_task(out, name, declared) for name in declared.rows]
    p_holm = holm({(one.task, floor.floor): floor.paired.p for one in tasks for floor in one.comparisons})
    return Summary(
        model=declared.about["model"],
        **declared.facts,
        seeds=declared.seeds,
        tasks=tuple(
            replace(one, comparisons=tuple(replace(a, p_holm=p_holm.get((one.task, a.floor))) for a in one.comparisons))
            for one in tasks
        ),
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


def results_of(out: Path, task: str, declared: folder.Declared, kind: folder.Kind) -> dict[int, Result]:
    """The results that are there, by seed."""
    found = {seed: results.read_task(folder.Cell(root=out, key=task, kind=kind, seed=seed)) for seed in declared.seeds}
    return {seed: result for seed, result in found.items() if result is not None}


def best_seed(out: Path, task: str, declared: folder.Declared) -> int | None:
    """The seed with the best main score, the smallest of equals; None where there is no score."""
    row = declared.rows[task]
    main = _spreads(results_of(out, task, declared, "encoder")).get(row["dev"][0], {}).get(row["metric"])
    return main.best_seed if main is not None else None


def _task(out: Path, name: str, declared: folder.Declared) -> TaskSummary:
    row = declared.rows[name]
    split, metric, kind = row["dev"][0], row["metric"], row["task"]["kind"]
    found = results_of(out, name, declared, "encoder")
    fresh = results_of(out, name, declared, "untrained") if declared.floors else {}
    counted = folder.Cell(root=out, key=name, kind="floors").result
    table = read_table(counted) if declared.floors and counted.is_file() else None
    floors: dict[str, Scores] = {key: value for key, value in (table or {}).items() if key != "notes" and value}
    scores, untrained = _spreads(found), _spreads(fresh)
    main = scores.get(split, {}).get(metric)
    lacking = [f"untrained, seed {seed}" for seed in declared.seeds if declared.floors and seed not in fresh]
    if declared.floors and table is None:
        lacking.append(_COUNTED.get(kind, "majority and bag of words"))
    fresh_main = untrained.get(split, {}).get(metric)
    return TaskSummary(
        task=name,
        metric=metric,
        split=split,
        train_rows=row["train_rows"],
        recipe=row["recipe"],
        changed=row["changed"],
        scores=scores,
        untrained=untrained,
        floors=floors,
        comparisons=_comparisons(name, kind, main, fresh_main, {n: s.get(split, {}).get(metric) for n, s in floors.items()}),
        best_seed=main.best_seed if main is not None else None,
        median_seed=main.median_seed if main is not None else None,
        runs={
            seed: f"cells/{name}/seed-{seed}" for seed, result in found.items() if result.failed is None
        },
        notes=(*row["notes"], *(table or {}).get("notes", [])),
        doubts=_doubts(found, fresh),
        failed={seed: result.failed for seed, result in found.items() if result.failed is not None},
        missing=tuple(seed for seed in declared.seeds if seed not in found),
        unmeasured=tuple(lacking),
    )  # fmt: skip


def _spreads(found: Mapping[int, Result]) -> dict[str, dict[str, Spread]]:
    values: dict[str, dict[str, dict[int, float]]] = {}
    for seed, result in found.items():
        for split, scores in result.scores.items():
            for metric, value in scores.items():
                values.setdefault(split, {}).setdefault(metric, {})[seed] = value
    return {split: {metric: spread(by_seed) for metric, by_seed in one.items()} for split, one in values.items()}


def _doubts(found: Mapping[int, Result], fresh: Mapping[int, Result]) -> tuple[str, ...]:
    """Each doubt once, with the seeds that it is about; an untrained encoder may collapse, but not fail."""
    whom: dict[str, list[int]] = {}
    for seed, result in found.items():
        for doubt in result.doubts:
            whom.setdefault(doubt, []).append(seed)
    of_runs = [f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {doubt}" for doubt, seeds in whom.items()]
    failed = [f"untrained, seed {seed}: {result.failed}" for seed, result in fresh.items() if result.failed is not None]
    return (*of_runs, *failed)


def _comparisons(
    name: str, kind: str, main: Spread | None, untrained: Spread | None, floors: Mapping[str, float | None]
) -> tuple[Comparison, ...]:
    if main is None:
        return ()
    majority = {"Regression": "the mean value", "QuestionAnswering": "never answering"}.get(kind, "the majority class")
    titles = {
        UNTRAINED: "the untrained encoder",
        "majority": majority,
        "bag_of_words": "the most frequent tag of each word" if kind == "Tagging" else "the bag of words",
        "word_overlap": "the sentence with most words of the question",
    }
    given = {floor: dict.fromkeys(main.by_seed, value) for floor, value in floors.items() if value is not None}
    against = ({UNTRAINED: untrained.by_seed} if untrained is not None else {}) | given
    found = [_compare(name, floor, titles.get(floor, floor), main, values) for floor, values in against.items()]
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
    says = "is above" if verdict == "perhaps" else verdict
    digits = 5 if 0 < abs(difference) < 0.001 else 3
    words = f"median {main.median:.{digits}f} against {of_floor:.{digits}f}"
    if paired.t_interval is not None and verdict != "does not beat":
        low, high = paired.t_interval
        words += f", mean difference {paired.mean:+.3f}, 95 % from {low:+.3f} to {high:+.3f} over {paired.n} seeds"
    doubt = ", not beyond doubt" if verdict == "perhaps" else ", of a single seed" if main.n == 1 else ""
    return Comparison(
        floor=floor, title=title, median=main.median, floor_median=of_floor, difference=difference, paired=paired, verdict=verdict,
        sentence=f"{name}: {says} {title}{doubt} ({words}).",
    )  # fmt: skip


def timing(out: Path) -> dict[str, Any]:
    """Seconds of training of each run that is done, and the rows that it read a second; all of them together."""
    declared, runs = folder.read(out, of="finetune"), {}
    for cell in declared.cells(out, kinds=("encoder", "untrained")):
        if (result := results.read_task(cell)) is not None:
            epochs = float(declared.rows[cell.key]["recipe"]["epochs"])
            rate = round(result.rows * epochs / result.seconds, 1) if result.seconds else None
            runs[cell.named(cell.folder)] = {"seconds": result.seconds, "rows_per_second": rate}
    total = sum(one["seconds"] or 0.0 for one in runs.values())
    return {"version": 1, "seconds": round(total, 3), "runs": runs}
