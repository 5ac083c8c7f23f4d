"""Figure 2 drawn as in the paper, from left to right, and the same on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from electra_trainer.analysis.figures import caption, rendered
from electra_trainer.analysis.worked_example import WorkedExample
from electra_trainer.report_figures import COLOURS, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Where each column stands, in inches from the left
_ORIGINAL, _MASKED, _GENERATOR, _SAMPLED, _DISCRIMINATOR, _VERDICT = 0.8, 2.3, 3.9, 5.5, 7.1, 8.9
_WIDTH, _ROW = 10.2, 0.42


def draw_example(example: WorkedExample, *, name: str, form: str) -> bytes:
    """The picture as a file's content; `form` is svg, png or pdf (ConfigError otherwise)."""
    return rendered(lambda: _figure(example, name), form)


def terminal_table(example: WorkedExample) -> Table:
    """One row a token: original, masked, sampled, probability and verdict."""
    table = Table(box=None, pad_edge=False)
    for title in ("original", "masked", "sampled", "P(replaced)", "verdict", "truth"):
        table.add_column(title, justify="right" if title == "P(replaced)" else "left", no_wrap=True)
    for index, word in enumerate(example.original):
        verdict, truth = example.verdicts[index], "replaced" if example.replaced[index] else "original"
        table.add_row(
            Text(word),
            Text("[MASK]" if example.masked[index] else word, style="bold" if example.masked[index] else "dim"),
            Text(example.sampled[index], style="bold" if example.masked[index] else "dim"),
            Text(f"{example.probability[index]:.3f}"),
            Text(verdict, style="bold red" if verdict == "replaced" else ""),
            Text(truth, style="" if verdict == truth else "red"),
        )
    return table


def _figure(example: WorkedExample, name: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = len(example.original)
    height = _ROW * (rows + 2)
    figure = Figure(figsize=(_WIDTH, height + 0.5), layout=ConstrainedLayoutEngine())
    axes = figure.add_subplot()
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(-height, 0)
    axes.set_axis_off()
    for at, title in (
        (_ORIGINAL, "original"),
        (_MASKED, "masked"),
        (_SAMPLED, "sampled"),
        (_VERDICT, "verdict, P(replaced)"),
    ):
        axes.text(at, -0.5 * _ROW, title, ha="center", va="center", fontsize=9, color=FAINT)
    for index in range(rows):
        _row(axes, example, index, -(index + 1.5) * _ROW)
    middle = -(rows / 2 + 1) * _ROW
    _box(axes, _GENERATOR, middle, rows, "Generator\n(small MLM)", COLOURS[1])
    _box(axes, _DISCRIMINATOR, middle, rows, "Discriminator\n(ELECTRA)", COLOURS[0])
    caption(
        figure,
        f"Figure 2, from {name}. Samples are drawn with seed {example.seed}. A sample that is the original word counts as original.",
        f"The discriminator is right about {example.right} of {rows} tokens.",
    )
    return figure


def _row(axes: Axes, example: WorkedExample, index: int, y: float) -> None:
    """One token's way from left to right."""
    masked, verdict = example.masked[index], example.verdicts[index]
    right = (verdict == "replaced") == example.replaced[index]
    sample_colour = COLOURS[1] if masked else INK
    _word(axes, _ORIGINAL, y, example.original[index], INK)
    _arrow(axes, _ORIGINAL + 0.62, _MASKED - 0.62, y)
    _word(axes, _MASKED, y, "[MASK]" if masked else example.original[index], COLOURS[1] if masked else INK)
    if masked:
        _arrow(axes, _MASKED + 0.62, _GENERATOR - 0.65, y)
        _arrow(axes, _GENERATOR + 0.65, _SAMPLED - 0.65, y, note="sample")
    _word(axes, _SAMPLED, y, example.sampled[index], sample_colour)
    _arrow(axes, _SAMPLED + 0.62, _DISCRIMINATOR - 0.65, y)
    _arrow(axes, _DISCRIMINATOR + 0.65, _VERDICT - 0.85, y)
    text = f"{verdict} {example.probability[index]:.2f}" + ("" if right else "  (wrong)")
    _word(axes, _VERDICT, y, text, COLOURS[0] if verdict == "replaced" else INK, bold=verdict == "replaced")


def _word(axes: Axes, x: float, y: float, text: str, colour: str, *, bold: bool = False) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=10, color=colour, fontweight="bold" if bold else "normal")


def _arrow(axes: Axes, start: float, end: float, y: float, *, note: str = "") -> None:
    axes.annotate("", (end, y), (start, y), arrowprops={"arrowstyle": "->", "color": FAINT, "linewidth": 1.0})
    if note:
        axes.text((start + end) / 2, y + 0.08, note, ha="center", va="bottom", fontsize=7, color=FAINT)


def _box(axes: Axes, x: float, y: float, rows: int, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    height = _ROW * (rows - 0.2)
    axes.add_patch(
        FancyBboxPatch(
            (x - 0.55, y - height / 2), 1.1, height, boxstyle="round,pad=0.06", facecolor="white", edgecolor=colour, linewidth=1.4,
            zorder=3,
        )
    )  # fmt: skip
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color=colour, fontweight="bold", zorder=4)
