"""A summary for people: a page of Markdown, and tables on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from electra_trainer.experiments.compared import UNTRAINED
from electra_trainer.experiments.compared_results import FACTS
from electra_trainer.experiments.compared_summary import CellState, Contrast, Summary
from electra_trainer.experiments.statistics import Group, Paired

_UNITS = {
    "paper-flops": "FLOPs as the paper counts", "real-flops": "FLOPs of matrix products", "steps": "steps", "time": "seconds",
}  # fmt: skip
_HEAD = (
    "metric",
    "arm",
    "n",
    "difference",
    "95 % bootstrap",
    "95 % Student",
    "p",
    "p (Holm)",
    "80 % power at",
    "seeds",
)
_ON_TERMINAL = (0, 1, 2, 3, 4, 7, 8)
"""Of these columns, what fits into 100 characters."""
_LEGEND = (
    "Differences are arm minus reference within a seed. *p*: two-sided paired t; *Holm*: corrected over the declared contrasts. "
    "*80 % power at*: the smallest true difference that this many seeds with this spread would find in four of five experiments. "
    "*Seeds*: how many would find the observed difference so often."
)


def markdown(summary: Summary) -> str:
    """The page: what was compared, every cell, all means, all differences."""
    lines = [f"# {summary.preset}: {', '.join(summary.arms)}", "", *_introduction(summary), ""]
    lines += ["## Means ± SD over seeds", "", *_pipes(_means(summary, _all_metrics(summary))), ""]
    declared = [one for one in summary.contrasts if one.declared]
    others = [one for one in summary.contrasts if not one.declared]
    lines += [f"## Declared contrasts: differences to {summary.reference}", "", _LEGEND, ""]
    lines += [*_pipes([_HEAD, *map(_row, declared)]), "", *_notes(declared), *_not_compared(summary), ""]
    if others:
        lines += ["## Other differences, uncorrected", "", *_pipes([_HEAD, *map(_row, others)]), ""]
    lines += ["## Runs", "", *_pipes([("arm", "seed", "state", *FACTS, "run"), *map(_cell_row, summary.cells)]), ""]
    return "\n".join(lines)


def print_summary(summary: Summary, *, console: Console | None = None) -> None:
    """Means and differences of the declared metrics, and what failed or is missing."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)  # a file has no edge to fold at
    means = _means(summary, [*summary.declared, "steps", "seconds"])
    _print_table(console, list(zip(*means, strict=True)), title="mean ± SD (seeds)")
    shown = [one for one in summary.contrasts if one.metric in summary.declared]
    if shown:
        rows = [[row[column] for column in _ON_TERMINAL] for row in (_HEAD, *map(_row, shown))]
        _print_table(console, rows, title=f"\ndifferences to {summary.reference}, paired by seed")
        for line in _notes(shown):
            console.print(escape(line), soft_wrap=True)
    for line in [*_not_compared(summary), *_unfinished(summary)]:
        console.print(escape(line), soft_wrap=True)


def _introduction(summary: Summary) -> list[str]:
    seeds = ", ".join(map(str, summary.seeds))
    return [
        f"Matched on {_UNITS[summary.match]}, {number(summary.amount)} an arm; seeds {seeds}; reference {summary.reference}. "
        "Runs with one seed share initial weights where names and shapes agree, order of data and masks.",
        *_unfinished(summary),
    ]


def _unfinished(summary: Summary) -> list[str]:
    failed = [f"FAILED: {one.arm}, seed {one.seed}: {one.message}" for one in summary.cells if one.state == "failed"]
    missing = [f"{one.arm} seed {one.seed}" for one in summary.cells if one.state == "missing"]
    return failed + ([f"Missing: {', '.join(missing)}."] if missing else [])


def _not_compared(summary: Summary) -> list[str]:
    """Trained arms that no declared metric compares with the reference, though both were measured."""
    compared = {one.arm for one in summary.contrasts if one.declared}
    measured = {one.arm for one in summary.cells if one.state == "done"}
    arms = [arm for arm in summary.arms if arm in measured - compared - {summary.reference, UNTRAINED}]
    if not arms or summary.reference not in measured:
        return []
    return [
        f"Not compared: {', '.join(arms)} with {summary.reference}: no declared metric is of like networks at the same tokens in both. "
        "Ask all arms the same, for example with --probe pos=TREEBANK."
    ]


def _all_metrics(summary: Summary) -> list[str]:
    return list(dict.fromkeys(name for values in summary.arms.values() for name in values))


def _means(summary: Summary, metrics: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a table: metrics down, arms across."""
    names = dict.fromkeys(metrics)
    return [
        ("metric", *summary.arms),
        *((name, *(_group(values.get(name)) for values in summary.arms.values())) for name in names),
    ]


def _group(group: Group | None) -> str:
    if group is None:
        return "–"
    return number(group.mean) + (f" ± {group.sd:.2g}" if group.sd is not None else "") + f" ({group.n})"


def _row(one: Contrast) -> tuple[str, ...]:
    found = one.found
    bootstrap = f"{_interval(found.interval)} ({found.interval_method})" if found.interval else "–"
    return (
        one.metric,
        one.arm + (" (floor)" if one.arm == UNTRAINED else ""),
        str(found.n),
        f"{found.mean:+.4g}",
        bootstrap,
        _interval(found.t_interval),
        _p(found.p),
        _p(one.p_holm),
        "–" if found.detectable is None else f"{found.detectable:.2g}",
        _seeds(found),
    )


def _seeds(found: Paired) -> str:
    if found.p is None:
        return "–"
    return "above 10,000" if found.seeds_needed is None else str(found.seeds_needed)


def _interval(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:+.3g} to {interval[1]:+.3g}"


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _notes(contrasts: Sequence[Contrast]) -> list[str]:
    """Each note once, with whom it concerns."""
    whom: dict[str, list[str]] = {}
    for one in contrasts:
        if one.found.note is not None:
            whom.setdefault(one.found.note, []).append(f"{one.arm} {one.metric}")
    return [
        f"Note: {note}" + ("." if len(names) == len(contrasts) else f" ({', '.join(names)}).")
        for note, names in whom.items()
    ]


def _cell_row(one: CellState) -> tuple[str, ...]:
    state = one.state if one.message is None else f"{one.state}: {one.message}"
    return (
        one.arm, str(one.seed), state, *(number(one.values[name]) if one.values else "–" for name in FACTS),
        one.run if one.state == "missing" else f"[{one.run}]({one.run})",
    )  # fmt: skip


def number(value: float) -> str:
    """Four digits that count; whole numbers whole up to a million."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.4g}"


def _pipes(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _print_table(console: Console, rows: Sequence[Sequence[str]], *, title: str) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for index, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=index < 2, overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(escape, row))
    console.print(table)
