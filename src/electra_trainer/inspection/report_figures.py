"""The figures of a report: {name: PNG}. Matplotlib is imported inside functions and its global state is left alone."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.inspection.run_read import Row, Run, finite
from electra_trainer.train.measures import binary_entropy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = tuple[NDArray[np.float64], NDArray[np.float64]]

# Distinguishable with any colour vision (Okabe and Ito), dark enough for thin lines on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#3AA0DC", "#666666")
INK, FAINT = "#333333", "#8c8c8c"
STYLE: Any = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.8, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "xtick.major.size": 3, "ytick.major.size": 3,
    "legend.frameon": False, "lines.solid_capstyle": "round",
}  # fmt: skip
"""The look of every figure of this package, as matplotlib's settings."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    figure: str
    """Name of the figure that it is part of."""
    key: str
    """Name in metrics.jsonl."""
    title: str
    unit: str
    """Label of the vertical axis."""
    dashed: str = ""
    """Meaning of the dashed line."""
    reference: Callable[[Run], Points] | None = None
    """The dashed line."""
    log: bool = False
    exact: bool = False
    """Not noisy: drawn without smoothing."""


def _constant_guess(run: Run) -> Points:
    """Loss in nats of always answering with the fake rate: its entropy (held out where known, else of the smoothed rate)."""
    steps, values = _series(run.valid, "discriminator_constant_loss")
    if len(steps) > 1:
        return steps, values
    steps, rate = _series(run.train, "fake_rate")
    rate = np.clip(smooth(rate), 1e-9, 1 - 1e-9)
    return steps, np.array([binary_entropy(one) for one in rate.tolist()])


def _level(value: Callable[[Run], float]) -> Callable[[Run], Points]:
    """A horizontal line over all steps of a run."""

    def line(run: Run) -> Points:
        steps = [row["step"] for row in run.train + run.valid]
        return np.array([min(steps), max(steps)]), np.full(2, value(run))

    return line


_chance, _uniform_guess = _level(lambda _: 0.5), _level(lambda run: run.vocabulary_entropy)
PANELS = (
    Panel("losses", "generator_loss", "Generator loss", "nats per masked token"),
    Panel("losses", "discriminator_loss", "Discriminator loss", "nats per token", "constant guess (entropy of the fake rate)", _constant_guess),
    Panel("discrimination", "discriminator_auc", "Discriminator AUC", "area under ROC", "chance", _chance),
    Panel("discrimination", "fake_rate", "Fake rate", "share of tokens replaced"),
    Panel("generator", "generator_accuracy", "Generator accuracy", "share of masked tokens"),
    Panel("generator", "generator_entropy", "Generator entropy", "nats", "uniform guess (log of the vocabulary size)", _uniform_guess),
    Panel("optimizer", "learning_rate", "Learning rate", "step size", exact=True),
    Panel("optimizer", "gradient_norm", "Gradient norm", "L2 norm before clipping", log=True),
)  # fmt: skip


def draw(runs: Sequence[Run]) -> dict[str, bytes]:
    """All figures that the runs have numbers for, as PNGs."""
    import matplotlib

    shown = [panel for panel in PANELS if any(finite(run.train + run.valid, panel.key) for run in runs)]
    with matplotlib.rc_context(STYLE):
        figures = dict.fromkeys(panel.figure for panel in shown)
        return {name: _picture(runs, [panel for panel in shown if panel.figure == name]) for name in figures}


def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moving average over a twentieth of the points: centred, narrower at the start, one-sided at the end."""
    half = len(values) // 40
    if half == 0:
        return values
    total = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    left = np.minimum(half, index)
    right = np.minimum(left, len(values) - 1 - index)
    average: NDArray[np.float64] = (total[index + right + 1] - total[index - left]) / (left + right + 1)
    return average


def _series(rows: Sequence[Row], name: str) -> Points:
    """Steps and finite values of one quantity."""
    points = np.array(finite(rows, name), dtype=np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


_HELD_OUT: Any = {"linewidth": 0.9, "marker": "o", "markersize": 4.5, "markerfacecolor": "white"}
_REFERENCE: Any = {"linewidth": 1.1, "linestyle": (0, (4, 2))}


def _picture(runs: Sequence[Run], panels: Sequence[Panel]) -> bytes:
    """Panels in a row under one legend."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.lines import Line2D

    columns, several = max(2, len(panels)), len(runs) > 1
    figure = Figure(figsize=(4.3 * columns, 3.4), dpi=100, layout=ConstrainedLayoutEngine(w_pad=0.08, wspace=0.04))
    grid = figure.add_gridspec(1, columns)
    coloured = [(run, COLOURS[index % len(COLOURS)]) for index, run in enumerate(runs)]
    drawn: set[str] = set()
    for column, panel in enumerate(panels):
        axes = figure.add_subplot(grid[0, column])
        for run, colour in coloured:
            drawn |= _curve(axes, run, panel, colour, colour if several else INK)
        _decorate(axes, panel)
    handles = [Line2D([], [], color=colour, linewidth=3, label=f" {run.name}") for run, colour in coloured if several]
    colour, reference = (FAINT, FAINT) if several else (COLOURS[0], INK)
    marks: dict[str, Any] = {
        "train": {"color": colour, "linewidth": 1.6, "label": "training, smoothed"},
        "valid": {"color": colour, **_HELD_OUT, "label": "held out"},
        "reference": {
            "color": reference,
            **_REFERENCE,
            "label": next((panel.dashed for panel in panels if panel.dashed), ""),
        },
    }
    handles += [Line2D([], [], **mark) for name, mark in marks.items() if name in drawn]
    legend = figure.legend(
        handles=handles, loc="outside upper left", ncols=min(4, len(handles)), fontsize=9, handlelength=1.8, columnspacing=1.6
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)  # a run may have any name
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=160, facecolor="white")
    return png.getvalue()


def _curve(axes: "Axes", run: Run, panel: Panel, colour: str, reference_colour: str) -> set[str]:
    """Draw a run's training curve, held-out points and dashed line; returns those of "train", "valid", "reference" that it has."""
    drawn: set[str] = set()
    steps, values = _series(run.train, panel.key)
    if len(steps):
        smoothed = values if panel.exact else smooth(values)
        if smoothed is not values:
            axes.plot(steps, values, color=colour, alpha=0.22, linewidth=0.8)
        axes.plot(steps, smoothed, color=colour, linewidth=1.6, marker="." if len(steps) == 1 else "")
        drawn.add("train")
    steps, values = _series(run.valid, panel.key)
    if len(steps):
        every = max(1, len(steps) // 25)
        axes.plot(steps, values, color=colour, **_HELD_OUT, markeredgewidth=1.2, markevery=every, zorder=3)
        drawn.add("valid")
    if panel.reference is not None and drawn:
        steps, level = panel.reference(run)
        if len(steps) and np.isfinite(level).any():
            axes.plot(steps, level, color=reference_colour, **_REFERENCE, zorder=2.5)
            drawn.add("reference")
    return drawn


def _decorate(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set(title=panel.title, xlabel="step", ylabel=panel.unit)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    axes.margins(x=0.02)
    if panel.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
