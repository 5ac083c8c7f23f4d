"""The parts of a summary's page: tables in Markdown and on a terminal, and the words of a paired comparison."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from electra_trainer.experiments.statistics import Paired
from electra_trainer.files.table_writer import Table
from electra_trainer.files.terminal import Terminal

ABSENT = "–"
CONTRAST = ("difference", "95 % bootstrap", "95 % Student", "p", "p (Holm)", "80 % power at", "seeds")
LEGEND = (
    "*p*: two-sided paired t; *Holm*: corrected over the declared contrasts. "
    "*80 % power at*: the smallest true difference that this many seeds with this spread would find in four of five "
    "experiments. "
    "*Seeds*: how many would find the observed difference so often."
)


def contrast(found: Paired, p_holm: float | None) -> tuple[str, ...]:
    """A paired comparison in the columns of CONTRAST."""
    bootstrap = f"{_interval(found.interval)} ({found.interval_method})" if found.interval else ABSENT
    power = ABSENT if found.detectable is None else f"{found.detectable:.2g}"
    seeds = ABSENT if found.p is None else "above 10,000" if found.seeds_needed is None else str(found.seeds_needed)
    return (f"{found.mean:+.4g}", bootstrap, _interval(found.t_interval), _p(found.p), _p(p_holm), power, seeds)


def _interval(interval: tuple[float, float] | None) -> str:
    return ABSENT if interval is None else f"{interval[0]:+.3g} to {interval[1]:+.3g}"


def _p(value: float | None) -> str:
    return ABSENT if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def number(value: float) -> str:
    """Four significant digits; whole numbers whole up to a million."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"


def pipes(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, whose cells are Markdown; the first row is its head."""
    return Table(head=rows[0], rows=rows[1:]).markdown(escaped="|").split("\n")


def terminal() -> Terminal:
    """Standard output; a file has no edge to fold at."""
    console = Terminal(highlight=False)
    return console if console.is_terminal else Terminal(highlight=False, width=160)


def print_table(console: Console, rows: Sequence[Sequence[str]], *, title: str, left: int = 1) -> None:
    """A table whose first `left` columns hold words."""
    console.print(Table(head=rows[0], rows=rows[1:], words=left).terminal(title=title))


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Sentences under a table."""
    for line in lines:
        console.print(escape(line), soft_wrap=True)
