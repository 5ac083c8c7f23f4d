"""A summary of fine-tuning for people: a page of Markdown, and a table on a terminal. Scores are printed x100, thresholds as they are."""

import json
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from electra_trainer.experiments import pages, results, statistics
from electra_trainer.files.durable import replace_durably
from electra_trainer.finetuning.task_summary import UNTRAINED, Summary, TaskSummary, summarize, timing

_NOT_ON_TERMINAL = ("mean", "worst")
"""With these, and baselines, a line would not fit into 80 characters."""
_HEAD = ("task", "metric", "n", "median", "mean", "SD", "best", "worst")


def markdown(summary: Summary) -> str:
    """The page: main scores next to the baselines, what they say, every split and metric, every run."""
    seeds = ", ".join(map(str, summary.seeds))
    precision = " and ".join(sorted({str(one.recipe["precision"]) for one in summary.tasks}))
    lines = [
        f"# {summary.model}: {', '.join(one.task for one in summary.tasks)}",
        "",
        f"Recipe `{summary.recipe}`{_otherwise(summary)}; {precision} on {summary.device}; seeds {seeds}; "
        "scores x100 on the dev sets, median over seeds next to the baselines.",
        "",
        *pages.pipes(_main_rows(summary)),
        "",
        *(f"- {line}" for line in remarks(summary)),
        "",
        "## All scores",
        "",
        *pages.pipes([("task", "split", *_HEAD[1:]), *_all_rows(summary)]),
        "",
        *_against(summary),
        "## Runs",
        "",
    ]
    for one in summary.tasks:
        lines += [*pages.pipes(_run_rows(one, summary)), ""]
    return "\n".join(lines)


def write_summary(out: Path) -> Summary:
    """Sum up, and write summary.json, summary.md and timing.json."""
    summary = summarize(out)
    replace_durably(out / "summary.json", (json.dumps(summary.plain(), indent=1) + "\n").encode())
    replace_durably(out / "summary.md", markdown(summary).encode())
    replace_durably(out / "timing.json", (json.dumps(timing(out), indent=1) + "\n").encode())
    return summary


def _otherwise(summary: Summary) -> str:
    """What was changed in the recipe of all tasks, or of each."""
    said = {one.task: one.otherwise for one in summary.tasks}
    if len(set(said.values())) == 1:
        return "".join(f" with {words}" for words in set(said.values()) if words)
    return (
        " (" + "; ".join(f"{task} with {words}" if words else f"{task} as it is" for task, words in said.items()) + ")"
    )


def _against(summary: Summary) -> list[str]:
    """The encoder minus each baseline, where several seeds give it a p-value; corrected over all of them."""
    rows = [
        (one.task, found.floor.replace("_", " "), str(found.paired.n), *pages.contrast(found.paired, found.p_holm))
        for one in summary.tasks
        for found in one.comparisons
        if found.paired.p is not None
    ]
    head = ("task", "baseline", "n", *pages.CONTRAST)
    return ["## Against the baselines", "", pages.LEGEND, "", *pages.pipes([head, *rows]), ""] if rows else []


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
    yield from _at_thresholds(one)
    yield from (note if _names(note, one.task) else f"{one.task}: {note}" for note in one.notes)
    yield from (f"{one.task}: DOUBTFUL: {doubt}" for doubt in one.doubts)
    yield from (f"{one.task}: FAILED: seed {seed}: {why}" for seed, why in one.failed.items())
    missing = [*(f"seed {seed}" for seed in one.missing), *one.unmeasured]
    if missing:
        yield f"{one.task}: missing: {'; '.join(missing)}."


def _at_thresholds(one: TaskSummary) -> Iterator[str]:
    """Of questions that may have no answer: the main score next to the one at the given threshold, medians of both."""
    found = one.scores.get(one.split, {})
    if {"threshold", "best_f1_threshold"} <= found.keys():
        f1, given, best, at = (
            points(found[name].median, name) for name in ("f1", "threshold", "best_f1", "best_f1_threshold")
        )
        yield f"{one.task}: best_f1 {best} at a threshold of {at}, the best on {one.split}; f1 {f1} at the given one, {given}."


def _names(note: str, task: str) -> bool:
    """Whether a note says itself whom it is about: "SST-2: ..." of sst2."""
    return note.lower().replace("-", "").startswith(task.lower().replace("-", ""))


def _main_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Main metric of every task, and all its baselines."""
    baselines = list(dict.fromkeys(name for one in summary.tasks for name in one.floors))
    names = ([UNTRAINED] if any(one.untrained for one in summary.tasks) else []) + baselines
    return [
        (*_HEAD, *(name.replace("_", " ") for name in names)),
        *(
            (one.task, one.metric, *_numbers(one.main, one.metric), *(_baseline(one, name) for name in names))
            for one in summary.tasks
        ),
    ]


def _baseline(one: TaskSummary, name: str) -> str:
    if name == UNTRAINED:
        found = one.untrained.get(one.split, {}).get(one.metric)
        return pages.ABSENT if found is None else points(found.median, one.metric)
    return points(one.floors.get(name, {}).get(one.split, {}).get(one.metric), one.metric)


def _all_rows(summary: Summary) -> list[tuple[str, ...]]:
    return [
        (f"{one.task}{suffix}", split, metric, *_numbers(spread, metric))
        for one in summary.tasks
        for suffix, scores in (("", one.scores), (" (untrained)", one.untrained))
        for split, of_split in scores.items()
        for metric, spread in of_split.items()
    ]


def _run_rows(one: TaskSummary, summary: Summary) -> list[tuple[str, ...]]:
    """One row a seed: scores on all splits, and where the run is."""
    columns = [(split, metric) for split, of_split in one.scores.items() for metric in of_split]
    rows: list[tuple[str, ...]] = [(one.task, *(f"{split} {metric}" for split, metric in columns), "run")]
    for seed in summary.seeds:
        values = [points(one.scores[split][metric].by_seed.get(seed), metric) for split, metric in columns]
        folder = one.runs.get(seed)
        marks = [word for word, which in (("best", one.best_seed), ("median", one.median_seed)) if which == seed]
        link = f"[{folder}]({folder})" if folder else "failed" if seed in one.failed else "missing"
        rows.append((f"seed {seed}{' (' + ', '.join(marks) + ')' if marks else ''}", *values, link))
    return rows


def _numbers(found: statistics.Spread | None, metric: str) -> tuple[str, ...]:
    if found is None:
        return ("0", *[pages.ABSENT] * 5)
    ends = (
        (None, None) if results.is_threshold(metric) else (found.best, found.worst)
    )  # no threshold is better than another
    return (str(found.n), *(points(value, metric) for value in (found.median, found.mean, found.sd, *ends)))


def points(value: float | None, metric: str) -> str:
    """A score for a table."""
    return pages.ABSENT if value is None else results.printed(value, metric)
