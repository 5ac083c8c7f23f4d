"""The summary of a fine-tuning experiment, from the results on disk: every task over its seeds, next to its baselines.
No torch here.

What is compared is the main metric on the main split. A run's seed decides its head, order and dropout, not its
encoder: the interval is of what fine-tuning again would give, as the paper's medians are (§3.1), not of what
pre-training again would. Pages and tables print scores x100, thresholds as they are.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from electra_trainer.errors import ConfigError, MissingInputError, did_you_mean
from electra_trainer.experiments import folder, pages, results
from electra_trainer.experiments.statistics import Paired, Spread, compare_paired, holm, spread
from electra_trainer.files import durable, wording

Scores = results.Scores
Spreads = dict[str, dict[str, Spread]]
"""The same over seeds; empty where no seed is done."""
Verdict = Literal["beats", "perhaps", "does not beat"]
UNTRAINED = "untrained"
_HEAD = ("task", "metric", "n", "median", "mean", "SD", "best", "worst")
_NOT_ON_TERMINAL = ("mean", "worst")
"""With these, and baselines, a line would not fit into 80 characters."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The encoder against a baseline."""

    floor: str
    """`untrained`, `majority`, `bag_of_words`, `word_overlap`, `random_words`."""
    title: str
    """The same in words: "the bag of words"."""
    median: float
    """The encoder's."""
    floor_median: float
    difference: float
    """Of the medians."""
    paired: Paired
    """Differences by seed; a baseline without seeds is the same for each."""
    verdict: Verdict
    """`perhaps`: above it, by so little that Student's 95 % interval of the mean difference includes 0."""
    sentence: str
    p_holm: float | None = None
    """Corrected over all baselines of all tasks, as they were declared: those without a result count too."""


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
    scores: Spreads
    untrained: Spreads
    """Of the encoder with fresh weights."""
    floors: dict[str, Scores]
    """Baselines without an encoder, by name: `majority`, `bag_of_words`, of questions and pairs `word_overlap`, of
    pairs `random_words`.
    """
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
    """Baselines that were declared and have no result."""

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

    @property
    def baselines(self) -> dict[str, float]:
        """Main scores of the baselines that were measured, by name; of fresh weights the median."""
        fresh = self.untrained.get(self.split, {}).get(self.metric)
        floors = {name: scores.get(self.split, {}).get(self.metric) for name, scores in self.floors.items()}
        every = {UNTRAINED: fresh.median if fresh is not None else None, **floors}
        return {name: score for name, score in every.items() if score is not None}

    def remarks(self, title: str) -> Iterator[str]:
        """What a reader of the scores must know: notes, doubts, what failed or is not done yet. `title` names the
        task.
        """
        own = self.task.lower().replace("-", "")  # a note may say itself whom it is about: "SST-2: ..." of sst2
        for note in self.notes:
            yield note if note.lower().replace("-", "").startswith(own) else f"{title}: {note}"
        yield from (f"{title}: DOUBTFUL: {doubt}" for doubt in self.doubts)
        yield from (f"{title}: FAILED: seed {seed}: {why}" for seed, why in self.failed.items())
        if missing := [*(f"seed {seed}" for seed in self.missing), *self.unmeasured]:
            yield f"{title}: missing: {'; '.join(missing)}."


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
    measured = {(one.task, floor.floor): floor.paired.p for one in tasks for floor in one.comparisons}
    p_holm = holm(dict.fromkeys(_family(declared)) | measured)
    return Summary(
        model=declared.about["model"],
        **declared.facts,
        seeds=declared.seeds,
        tasks=tuple(
            replace(one, comparisons=tuple(replace(a, p_holm=p_holm.get((one.task, a.floor))) for a in one.comparisons))
            for one in tasks
        ),
    )


def _family(declared: folder.Declared) -> Iterator[tuple[str, str]]:
    """Tasks and baselines that were asked for before the first run."""
    for task, row in declared.rows.items() if declared.floors else ():
        yield from ((task, floor) for floor in (UNTRAINED, *row.get("baselines", {})))


def best_runs(summary: Summary, *, out: Path) -> dict[str, Path]:
    """The run folder with the best main score, the first of equals, of each task that has one; as the paper chose
    (Appendix D).
    """
    return {one.task: out / one.runs[one.best_seed] for one in summary.tasks if one.best_seed is not None}


def best_run(out: Path, task: str) -> Path:
    """The same of one task; MissingInputError: no run of it is done, or no experiment is there. ConfigError: it has no
    such task.
    """
    summary = summarize(out)
    if summary.task(task).best_seed is None:
        raise MissingInputError(f"{out}: no run of {task} is done. Repeat the command that the experiment began with.")
    return best_runs(summary, out=out)[task]


def results_of(
    out: Path, task: str, declared: folder.Declared, kind: folder.Kind = "encoder"
) -> dict[int, results.Result]:
    """The results that are there, by seed."""
    found = {seed: results.read_task(folder.Cell(root=out, key=task, kind=kind, seed=seed)) for seed in declared.seeds}
    return {seed: result for seed, result in found.items() if result is not None}


def recipe_of(cell: folder.Cell, declared: folder.Declared) -> dict[str, Any]:
    """The recipe of a cell; that of the untrained encoder may be its own."""
    own = declared.parts.get("floors", {}).get("recipes", {}) if cell.kind == "untrained" else {}
    found: dict[str, Any] = own.get(cell.key, declared.rows[cell.key]["recipe"])
    return found


def best_cell(cell: folder.Cell, declared: folder.Declared) -> folder.Cell | None:
    """The run of a cell's task with the best main score, the smallest seed of equals; None where there is no score."""
    row = declared.rows[cell.key]
    main = _spreads(results_of(cell.root, cell.key, declared)).get(row["dev"][0], {}).get(row["metric"])
    return None if main is None else replace(cell, kind="encoder", seed=main.best_seed)


def _task(out: Path, name: str, declared: folder.Declared) -> TaskSummary:
    row = declared.rows[name]
    split, metric, titles = row["dev"][0], row["metric"], row.get("baselines", {})
    found, fresh = results_of(out, name, declared), results_of(out, name, declared, "untrained")
    table = results.read_floors(folder.Cell(root=out, key=name, kind="floors"))
    floors: dict[str, Scores] = {key: value for key, value in (table or {}).items() if key != "notes" and value}
    scores, untrained = _spreads(found), _spreads(fresh)
    main = scores.get(split, {}).get(metric)
    lacking = [f"untrained, seed {seed}" for seed in declared.seeds if seed not in fresh]
    if (absent := [key for key in titles if key not in floors]) or table is None:
        lacking.append(" and ".join(absent).replace("_", " ") or "baselines without an encoder")
    one = TaskSummary(
        task=name, metric=metric, split=split, train_rows=row["train_rows"], recipe=row["recipe"], changed=row["changed"],
        scores=scores, untrained=untrained, floors=floors, comparisons=(),
        best_seed=main.best_seed if main is not None else None, median_seed=main.median_seed if main is not None else None,
        runs={seed: f"cells/{name}/seed-{seed}" for seed, result in found.items() if result.failed is None},
        notes=(*row["notes"], *(table["notes"] if table else [])), doubts=_doubts(found, fresh),
        failed={seed: result.failed for seed, result in found.items() if result.failed is not None},
        missing=tuple(seed for seed in declared.seeds if seed not in found), unmeasured=tuple(lacking) if declared.floors else (),
    )  # fmt: skip
    return replace(one, comparisons=tuple(_comparisons(one, {UNTRAINED: "the untrained encoder", **titles})))


def _spreads(found: Mapping[int, results.Result]) -> Spreads:
    values: dict[str, dict[str, dict[int, float]]] = {}
    for seed, result in found.items():
        for split, scores in result.scores.items():
            for metric, value in scores.items():
                values.setdefault(split, {}).setdefault(metric, {})[seed] = value
    return {split: {metric: spread(by_seed) for metric, by_seed in one.items()} for split, one in values.items()}


def _doubts(found: Mapping[int, results.Result], fresh: Mapping[int, results.Result]) -> tuple[str, ...]:
    """Each doubt once, with the seeds that it is about; an untrained encoder may collapse, but not fail."""
    whom: dict[str, list[int]] = {}
    for seed, result in found.items():
        for doubt in result.doubts:
            whom.setdefault(doubt, []).append(seed)
    of_runs = [f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}: {doubt}" for doubt, seeds in whom.items()]
    failed = [f"untrained, seed {seed}: {result.failed}" for seed, result in fresh.items() if result.failed is not None]
    return (*of_runs, *failed)


def _comparisons(one: TaskSummary, titles: Mapping[str, str]) -> Iterator[Comparison]:
    """The main scores against each baseline that shares a seed with them; those without seeds are the same for each."""
    main = one.main
    if main is None:
        return
    for floor, of_floor in one.baselines.items():
        fresh = one.untrained[one.split][one.metric].by_seed if floor == UNTRAINED else None
        if (paired := compare_paired(main.by_seed, fresh or dict.fromkeys(main.by_seed, of_floor))) is not None:
            yield _compare(one.task, floor, titles.get(floor, floor.replace("_", " ")), main, of_floor, paired)


def _compare(name: str, floor: str, title: str, main: Spread, of_floor: float, paired: Paired) -> Comparison:
    difference = main.median - of_floor
    low, high = paired.t_interval or (difference, difference)
    verdict: Verdict = "does not beat" if difference <= 0 else "beats" if low > 0 else "perhaps"
    says = "is above" if verdict == "perhaps" else verdict
    digits = 5 if 0 < abs(difference) < 0.001 else 3
    words = f"median {main.median:.{digits}f} against {of_floor:.{digits}f}"
    if paired.t_interval is not None and verdict != "does not beat":
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


def timing(out: Path) -> dict[str, Any]:
    """Seconds of training of each run that is done, and the rows that it read a second; all of them together."""
    declared, runs = folder.read(out, of="finetune"), {}
    for cell in declared.cells(out, kinds=("encoder", "untrained")):
        if (result := results.read_task(cell)) is not None:
            epochs = float(recipe_of(cell, declared)["epochs"])
            rate = round(result.rows * epochs / result.seconds, 1) if result.seconds else None
            runs[cell.named(cell.folder)] = {"seconds": result.seconds, "rows_per_second": rate}
    return {"version": 1, "seconds": round(sum(one["seconds"] or 0.0 for one in runs.values()), 3), "runs": runs}


def write_summary(out: Path) -> Summary:
    """Sum up, and write summary.json, summary.md and timing.json."""
    summary = summarize(out)
    for name, table in (("summary.json", summary.plain()), ("timing.json", timing(out))):
        durable.replace_durably(out / name, (json.dumps(table, indent=1) + "\n").encode())
    durable.replace_durably(out / "summary.md", markdown(summary).encode())
    return summary


def markdown(summary: Summary) -> str:
    """The page: main scores next to the baselines, what they say, every split and metric, every run."""
    every = [
        (f"{one.task}{suffix}", split, metric, *_numbers(spread, metric))
        for one in summary.tasks
        for suffix, scores in (("", one.scores), (" (untrained)", one.untrained))
        for split, of_split in scores.items()
        for metric, spread in of_split.items()
    ]
    contrasts = [
        (one.task, found.floor.replace("_", " "), str(found.paired.n), *pages.contrast(found.paired, found.p_holm))
        for one in summary.tasks
        for found in one.comparisons
        if found.paired.p is not None
    ]
    return wording.render(
        "finetuning_summary.md",
        summary=summary,
        otherwise=_otherwise(summary),
        precisions=sorted({str(one.recipe["precision"]) for one in summary.tasks}),
        main=pages.pipes(_main_rows(summary)),
        remarks=remarks(summary),
        every=pages.pipes([("task", "split", *_HEAD[1:]), *every]),
        contrasts=contrasts and pages.pipes([("task", "baseline", "n", *pages.CONTRAST), *contrasts]),
        legend=pages.LEGEND,
        runs=[pages.pipes(_run_rows(one, summary)) for one in summary.tasks],
    )


def _otherwise(summary: Summary) -> str:
    """What was changed in the recipe of all tasks, or of each."""
    said = {one.task: one.otherwise for one in summary.tasks}
    if len(set(said.values())) == 1:
        return "".join(f" with {words}" for words in set(said.values()) if words)
    return f" ({'; '.join(f'{task} with {words}' if words else f'{task} as it is' for task, words in said.items())})"


def print_summary(summary: Summary, *, console: Console | None = None) -> None:
    """The main scores next to the baselines, and what must be said of them."""
    console = console or pages.terminal()
    left_out = [_HEAD.index(name) for name in _NOT_ON_TERMINAL]
    rows = [[cell for index, cell in enumerate(row) if index not in left_out] for row in _main_rows(summary)]
    pages.print_table(console, rows, title="x100, on the dev sets", left=2)
    pages.print_lines(console, remarks(summary))


def remarks(summary: Summary) -> list[str]:
    """Sentences on each task: the baselines, notes, doubts, what failed or is missing."""
    return [line for one in summary.tasks for line in _remarks(one)]


def _remarks(one: TaskSummary) -> Iterator[str]:
    yield from (comparison.sentence for comparison in one.comparisons)
    found = one.scores.get(one.split, {})
    if {"threshold", "best_f1_threshold"} <= found.keys():  # questions that may have no answer
        names = ("f1", "threshold", "best_f1", "best_f1_threshold")
        f1, given, best, at = (_points(found[name].median, name) for name in names)
        yield (
            f"{one.task}: best_f1 {best} at a threshold of {at}, the best on {one.split}; f1 {f1} at the given one, "
            f"{given}."
        )
    yield from one.remarks(one.task)


def _main_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Main metric of every task, and all its baselines."""
    untrained = [UNTRAINED] if any(one.untrained for one in summary.tasks) else []
    names = [*untrained, *dict.fromkeys(name for one in summary.tasks for name in one.floors)]
    rows: list[tuple[str, ...]] = [(*_HEAD, *(name.replace("_", " ") for name in names))]
    for one in summary.tasks:
        baselines = (_points(one.baselines.get(name), one.metric) for name in names)
        rows.append((one.task, one.metric, *_numbers(one.main, one.metric), *baselines))
    return rows


def _run_rows(one: TaskSummary, summary: Summary) -> list[tuple[str, ...]]:
    """One row a seed: scores on all splits, and where the run is."""
    columns = [(split, metric) for split, of_split in one.scores.items() for metric in of_split]
    rows: list[tuple[str, ...]] = [(one.task, *(f"{split} {metric}" for split, metric in columns), "run")]
    for seed in summary.seeds:
        values = [_points(one.scores[split][metric].by_seed.get(seed), metric) for split, metric in columns]
        run = one.runs.get(seed)
        marks = [word for word, which in (("best", one.best_seed), ("median", one.median_seed)) if which == seed]
        link = f"[{run}]({run})" if run else "failed" if seed in one.failed else "missing"
        rows.append((f"seed {seed}{' (' + ', '.join(marks) + ')' if marks else ''}", *values, link))
    return rows


def _numbers(found: Spread | None, metric: str) -> tuple[str, ...]:
    """Seeds, median, mean, SD, best and worst; no threshold is better than another."""
    if found is None:
        return ("0", *[pages.ABSENT] * 5)
    ends = (None, None) if results.is_threshold(metric) else (found.best, found.worst)
    return (str(found.n), *(_points(value, metric) for value in (found.median, found.mean, found.sd, *ends)))


def _points(value: float | None, metric: str) -> str:
    return pages.ABSENT if value is None else results.printed(value, metric)
