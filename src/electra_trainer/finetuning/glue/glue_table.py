"""GLUE's scores in the paper's columns (Tables 2 and 7), next to GLUE's own metrics, with notes for their reader. No
torch here.

Scores of a summary are shares or correlations; tables print them x100. An average is of the paper's eight tasks (MNLI
matched, no WNLI), or it is not given. Tasks of the summary that are not GLUE's are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from electra_trainer.experiments.statistics import Spread, spread
from electra_trainer.experiments.summary import Summary, row_remarks
from electra_trainer.files.table_writer import Table
from electra_trainer.finetuning.glue.glue_tasks import PAPER, PAPER_COLUMNS, ROWS

ABSENT = "—"
_OWN = {
    "MRPC F1": ("mrpc", "dev", "f1"),
    "MRPC acc.": ("mrpc", "dev", "accuracy"),
    "STS-B Pearson": ("stsb", "dev", "pearson"),
    "STS-B Spearman": ("stsb", "dev", "spearman"),
    "QQP F1": ("qqp", "dev", "f1"),
    "QQP acc.": ("qqp", "dev", "accuracy"),
    "MNLI-m": ("mnli", "dev_matched", "accuracy"),
    "MNLI-mm": ("mnli", "dev_mismatched", "accuracy"),
}
_BASELINES = {
    "untrained": "untrained encoder",
    "majority": "majority",
    "bag_of_words": "bag of words",
    "word_overlap": "word overlap",
    "random_words": "pair features, random",
}
_STATISTICS = ("median", "mean", "SD", "best")
"""Rows of a table; in lower case they are fields of a Spread."""


def glue_metrics(medians: Mapping[str, float]) -> dict[str, float]:
    """Main scores of tasks by the keys of the paper's tables: `glue/cola`, `glue/sst` ... and, if all eight are there,
    `glue/average`;
    then other tasks, which no average counts, by their names: `glue/wnli`.
    """
    found = {f"glue/{title.lower()}": medians[name] for name, title in PAPER_COLUMNS.items() if name in medians}
    average = {"glue/average": fmean(found.values())} if len(found) == len(PAPER) else {}
    return found | average | {f"glue/{name}": median for name, median in medians.items() if name not in PAPER}


def medians(summary: Summary) -> dict[str, float]:
    """The main score of each task that has one, as `glue_metrics` takes it."""
    return {task: main.median for task in _tasks(summary) if (main := summary.main(task)) is not None}


def glue_tables(summary: Summary) -> dict[str, Table]:
    """Tables by title: the paper's columns with the baselines, and GLUE's own metrics; then all metrics of tasks that
    are not among the paper's eight.
    """
    known = _tasks(summary)
    others = {
        f"{row.folder} {metric}" + (f" {split}" if len(row.dev) > 1 else ""): (row.name, split, metric)
        for row in (ROWS[name] for name in known if name not in PAPER)
        for split in row.dev
        for metric in row.metrics
    }
    tables = {}
    if _asks_for_the_papers(known):
        title = "GLUE dev: Matthews (CoLA), Spearman (STS), accuracy (others), x100"
        paper = {title: _main(name) for name, title in PAPER_COLUMNS.items()}
        tables[title] = _table(summary, paper, average=True)
        tables["GLUE's own metrics on dev, x100"] = _table(summary, _OWN, baselines={})
    if others:
        tables["Other tasks, on dev, x100"] = _table(summary, others)
    return tables


def _tasks(summary: Summary) -> list[str]:
    return [row for row in summary.declared.rows if row in ROWS]


def _asks_for_the_papers(known: Sequence[str]) -> bool:
    return not known or any(name in PAPER for name in known)


def _main(task: str) -> tuple[str, str, str]:
    """Task, split and metric of the paper's column."""
    return task, next(iter(ROWS[task].dev)), ROWS[task].metrics[0]


def _table(
    summary: Summary,
    columns: Mapping[str, tuple[str, str, str]],
    *,
    baselines: Mapping[str, str] = _BASELINES,
    average: bool = False,
) -> Table:
    """Statistics of the columns (task, split, metric), then the baselines that have a score; `average`: with the mean
    of all columns.
    """
    places = columns.values()
    spreads = [summary.rows.get(task, {}).get(f"{split}/{metric}") for task, split, metric in places]
    counts = {one.n for one in spreads if one is not None}
    lines: list[tuple[str, list[float | None], float | None]] = []
    for name in _STATISTICS:
        values = [getattr(one, name.lower(), None) for one in spreads]  # None: missing, or the SD of one seed
        label = f"median of {next(iter(counts))}" if name == "median" and len(counts) == 1 else name
        lines.append((label, values, _sd_of_average(spreads) if name == "SD" else _mean(values)))
    for name, label in baselines.items():
        found = [summary.baselines(place[0]).get(name) if place == _main(place[0]) else None for place in places]
        if any(value is not None for value in found):
            lines.append((label, found, _mean(found)))
    return Table(
        head=("", *columns, *(["Avg."] if average else [])),
        rows=tuple((label, *map(_points, [*values, mean] if average else values)) for label, values, mean in lines),
        words=1,
    )


def _sd_of_average(spreads: Sequence[Spread | None]) -> float | None:
    """Spread of the seeds' averages over all columns, if every task has the same seeds."""
    there = [one.by_seed for one in spreads if one is not None]
    if len(there) < len(spreads) or len({tuple(sorted(by_seed)) for by_seed in there}) != 1:
        return None
    return spread({seed: fmean(one[seed] for one in there) for seed in there[0]}).sd


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if there and len(there) == len(values) else None


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f}"


def glue_notes(summary: Summary) -> tuple[str, ...]:
    """Notes for a reader of the tables: missing or partial scores, doubts, baselines that are not beaten."""
    known = _tasks(summary)
    missing = [title for name, title in PAPER_COLUMNS.items() if name not in medians(summary)]
    notes = []
    if missing and _asks_for_the_papers(known):
        notes.append(f"{ABSENT}: missing. No average is given without {', '.join(missing)}.")
    seeds = {ROWS[task].folder: main.n for task in known if (main := summary.main(task)) is not None}
    if len(set(seeds.values())) > 1:
        notes.append(f"Seeds: {', '.join(f'{title} {count}' for title, count in seeds.items())}.")
    for key, row in summary.declared.rows.items():
        if (title := ROWS.get(key if row.reference is None else row.reference)) is not None:
            notes += row_remarks(summary, key, title.folder, verdicts=False)
    return (*dict.fromkeys(notes), *_against_baselines(summary))


def _against_baselines(summary: Summary) -> Iterator[str]:
    """Each baseline that a median does not beat, or not for certain; then the tasks that beat them all."""
    known = _tasks(summary)
    if not any(summary.baselines(task) for task in known):
        yield "No baselines were measured (--baselines), so what an encoder without training reaches is not known here."
    clear = []
    for task in known:
        name = ROWS[task].folder
        found = [one for one in summary.contrasts if one.reference == task]
        main = summary.main(task)
        if main is not None and found and all(one.verdict == "beats" for one in found):
            clear.append(name + " (a single seed)" * (main.n == 1))
        for one in found:
            mine, other = reversed(one.medians)
            title = summary.declared.rows[one.row].baseline
            numbers = f"{_points(mine)} against {_points(other)} ({100 * (mine - other):+.1f})"
            if one.verdict == "perhaps":
                yield f"{name} is above {title}, but not for certain over these seeds: {numbers}."
            elif one.verdict == "does not beat":
                yield f"{name} DOES NOT BEAT {title}: {numbers}."
    if clear:
        yield f"Beat every measured baseline: {', '.join(clear)}."


def markdown(summary: Summary) -> str:
    """The tables and the notes."""
    tables = [f"**{title}**\n\n{table.markdown(escaped='|')}\n" for title, table in glue_tables(summary).items()]
    return "\n".join([*tables, *(f"- {note}" for note in glue_notes(summary)), ""])


def text(summary: Summary) -> str:
    """The tables and the notes for a terminal."""
    tables = [f"{title}\n{table.text()}\n" for title, table in glue_tables(summary).items()]
    return "\n".join([*tables, *glue_notes(summary)])
