"""Figures 1, 3 and 4 from experiments. Matplotlib is imported inside functions, and its global state does not change.

Points are means over seeds with one standard deviation; thin lines are single seeds during training. The caption names
the arms that belong in the figure but are missing.
"""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.cell import PLUS
from electra_trainer.experiments.statistics import Spread
from electra_trainer.experiments.summary import Summary
from electra_trainer.inspection.report import COLOURS, FAINT, INK, rendered
from electra_trainer.paper import measured, published
from electra_trainer.paper.measured import Reading
from electra_trainer.settings.config import Config

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str, Sequence[str]]
"""A figure, the end of its title, and the arms that belong into it (none: all that were planned)."""
ALGORITHMS = ("electra", "mlm", "two-stage", "adversarial")
"""The arms in the right panel of Figure 3."""
_FLOPS_LABEL = "training FLOPs, as the paper counts"
_OWN_TASK = (
    "A held-out metric is each arm's own task: it compares arms whose generators and counted tokens are alike, and no "
    "others."
)
_POINTS = (
    "Points: mean over seeds, bars: one standard deviation (none for one seed); thin lines: single seeds in training."
)


def draw_figure(number: int, experiments: Sequence[Summary], *, metric: str | None, form: str) -> bytes:
    """A figure as a file's content.

    Args:
        metric: name as in result.json; None: the first that all arms share.
        form: svg, png or pdf.

    Raises:
        ConfigError: no such figure, format or metric.
        DataError: nothing to draw.
    """
    if number not in FIGURES:
        raise ConfigError(f"figure {number}: expected 1, 3 or 4 with experiments, or 2 with a run.")
    name = measured.choose_metric(experiments, metric)

    def make() -> "Figure":
        shown = measured.readings(experiments, name)
        figure, title, also = FIGURES[number](experiments, shown, name)
        absent = ", ".join(measured.missing_arms(experiments, shown, also=also))
        missing = f"Missing (not trained, not done, or without this metric): {absent}." if absent else ""
        begin = f"Figure {number}. {_words(name)}"
        caption(figure, begin + title, _OWN_TASK if name.startswith("held-out/") else "", _POINTS, missing)
        return figure

    return rendered(make, form)


def _new_figure(columns: int) -> "tuple[Figure, list[Axes]]":
    """A figure with axes side by side."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(4.6 * max(columns, 1.5), 3.9), layout=ConstrainedLayoutEngine(w_pad=0.08, wspace=0.04))
    grid = figure.add_gridspec(1, columns)
    return figure, [figure.add_subplot(grid[0, column]) for column in range(columns)]


def caption(figure: "Figure", *sentences: str) -> None:
    """The sentences under the figure, wrapped to its width."""
    width = int(figure.get_figwidth() * 15)
    text = textwrap.fill(" ".join(sentence for sentence in sentences if sentence), width)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=INK)


def _figure_1(experiments: Sequence[Summary], shown: Sequence[Reading], metric: str) -> Drawn:
    """Score against training FLOPs; the paper's GLUE scores in a second panel, or behind ours on an axis of GLUE."""
    glue = metric == "glue/average"
    figure, axes = _new_figure(1 if glue else 2)
    if glue:
        _published(axes[0], grey=True)
    title = "Ours and the paper's" if glue else "Ours"
    _against_flops(axes[0], title, shown, metric, several=len(experiments) > 1)
    if not glue:
        _published(axes[1], grey=False)
        axes[1].set_title("The paper's (Tables 1 and 2)")
    return figure, " against training compute.", ()


def _figure_3(experiments: Sequence[Summary], shown: Sequence[Reading], metric: str) -> Drawn:
    """Left: sizes of the generator. Right: training algorithms."""
    figure, axes = _new_figure(2)
    _generator_sizes(axes[0], experiments, shown, metric)
    compared = [reading for reading in shown if reading.entry.arm in ALGORITHMS]
    _against_flops(axes[1], "Training algorithms", compared, metric, several=len(experiments) > 1)
    title = ". Left: size of the generator. Right: training algorithms at their cost."
    sizes = [size for reading in shown if (size := measured.generator_size(reading)) is not None]
    absent = () if any(size.label.endswith("(1x)") for size in sizes) else ("same-size",)
    return figure, title, ("unigram", *absent, *ALGORITHMS)


def _generator_sizes(axes: "Axes", experiments: Sequence[Summary], shown: Sequence[Reading], metric: str) -> None:
    """Sizes at equal distances, those without hidden units first; a line joins an experiment's learned generators."""
    sized = [(size, reading) for reading in shown if (size := measured.generator_size(reading)) is not None]
    places = sorted({size for size, _ in sized})
    for index, experiment in enumerate(experiments):
        colour, line = COLOURS[index % len(COLOURS)], []
        for size, reading in sorted(sized, key=lambda pair: pair[0].order):
            if reading.entry.experiment is not experiment:
                continue
            at = places.index(size)
            _error_bar(axes, at, reading.score, colour, label=None)
            # of a swept width the axis says the size
            arm = reading.entry.arm if size.order < 0 or PLUS not in reading.entry.arm else ""
            axes.annotate(arm, (at, reading.score.mean), xytext=(6, 4), textcoords="offset points", fontsize=7.5)
            line += [(at, reading.score.mean)] if size.order > 0 else []
        axes.plot([at for at, _ in line], [mean for _, mean in line], color=colour, label=_labelled(experiment))
    axes.set_xticks(range(len(places)), [label for _, label in places])
    axes.margins(x=0.15)
    _name_axes(axes, "Generator sizes", "generator's hidden units (share of the discriminator's)", metric, sized)


def _figure_4(experiments: Sequence[Summary], shown: Sequence[Reading], metric: str) -> Drawn:
    """Left: BERT next to ELECTRA for each size. Centre: the gain. Right: the smallest model's curves."""
    shown = [reading for reading in shown if reading.entry.arm in ("electra", "mlm")]
    if not shown:
        raise DataError(
            f"figure 4: no finished cell of electra or mlm has {metric}. Run electra compare --arms electra,mlm."
        )
    figure, axes = _new_figure(3)
    ordered = sorted(
        (experiment for experiment in experiments if any(reading.entry.experiment is experiment for reading in shown)),
        key=_kept_parameters,
    )
    by_place = {(ordered.index(reading.entry.experiment), reading.entry.arm): reading for reading in shown}
    for arm, name, colour in (("electra", "ELECTRA", COLOURS[0]), ("mlm", "BERT", COLOURS[1])):
        points = [(at, by_place[at, arm].score) for at in range(len(ordered)) if (at, arm) in by_place]
        for index, (at, score) in enumerate(points):
            _error_bar(axes[0], at, score, colour, label=f"{name} ({arm})" if index == 0 else None)
        axes[0].plot([at for at, _ in points], [score.mean for _, score in points], color=colour)
    for at in range(len(ordered)):
        if (at, "electra") in by_place and (at, "mlm") in by_place:
            gain = measured.paired_gain(by_place[at, "electra"], by_place[at, "mlm"], metric)
            if gain is not None:
                _error_bar(axes[1], at, gain, INK, label=None)
    axes[1].axhline(0, color=FAINT, linewidth=1.1, linestyle=(0, (4, 2)))
    for each in axes[:2]:
        each.set_xticks(range(len(ordered)), [_labelled(experiment) for experiment in ordered])
        each.set_xlim(-0.5, len(ordered) - 0.5)
    _name_axes(axes[0], "Model sizes", "model", metric, shown)
    _name_axes(axes[1], "ELECTRA minus BERT, paired seeds", "model", metric, [])
    smallest = [reading for reading in shown if reading.entry.experiment is ordered[0]]
    _against_flops(axes[2], f"Convergence, {measured.preset_of(ordered[0])}", smallest, metric, several=False)
    title = ". BERT and ELECTRA for several model sizes; the smallest during training."
    return figure, title, ("electra", "mlm")


FIGURES: dict[int, Callable[[Sequence[Summary], Sequence[Reading], str], Drawn]] = {
    1: _figure_1,
    3: _figure_3,
    4: _figure_4,
}


def _against_flops(axes: "Axes", title: str, shown: Sequence[Reading], metric: str, *, several: bool) -> None:
    """Each seed's curve, thin, and the mean at the end; a line joins the checkpoints of one run that were
    fine-tuned.
    """
    for index, group in enumerate(_along_training(shown)):
        entry, colour = group[0].entry, COLOURS[index % len(COLOURS)]
        again = index // len(COLOURS)  # the colours begin again, with other marks
        dashes: Any = "-" if again == 0 else (0, (3, 1.5))
        named = entry.run.name if entry.run is not None and len(group) > 1 else entry.experiment.name
        label = entry.arm + (f" ({named})" if several else "")
        for reading in group:
            for curve in reading.curves:
                if curve:
                    axes.plot(*zip(*curve, strict=True), color=colour, alpha=0.45, linewidth=1.0, linestyle=dashes)
            shown_label = label if reading is group[0] else None
            _error_bar(axes, reading.flops, reading.score, colour, label=shown_label, mark="os^Dv"[again % 5])
        flops, means = [reading.flops for reading in group], [reading.score.mean for reading in group]
        axes.plot(flops, means, color=colour, linewidth=1.3, linestyle=dashes)
    _powers(axes)
    _name_axes(axes, title, _FLOPS_LABEL, metric, shown)


def _along_training(shown: Sequence[Reading]) -> list[list[Reading]]:
    """The readings, those of checkpoints of one run together and by their FLOPs."""
    groups: dict[object, list[Reading]] = {}
    for reading in shown:
        groups.setdefault(reading.entry.run or id(reading), []).append(reading)
    return [sorted(group, key=lambda one: one.flops) for group in groups.values()]


def _powers(axes: "Axes") -> None:
    """A logarithmic axis of FLOPs, at least a decade wide, with powers of ten as the paper writes them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    first, last = axes.get_xlim()
    if last < 10 * first:
        axes.set_xlim(first / 3, last * 3)
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"1e{round(math.log10(value))}" if value > 0 else ""))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _error_bar(axes: "Axes", at: float, score: Spread, colour: str, *, label: str | None, mark: str = "o") -> None:
    axes.errorbar(
        [at],
        [score.mean],
        yerr=None if score.sd is None else [score.sd],
        color=colour,
        marker=mark,
        markersize=5.5,
        capsize=3,
        linestyle="none",
        label=label,
        zorder=3,
    )


def _name_axes(axes: "Axes", title: str, across: str, metric: str, shown: Sequence[object]) -> None:
    axes.set(title=title, xlabel=across, ylabel=_words(metric))
    if shown and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)
    elif not shown and not axes.has_data():
        axes.text(0.5, 0.5, "missing", transform=axes.transAxes, ha="center", va="center", color=FAINT)


def _published(axes: "Axes", *, grey: bool) -> None:
    """The paper's points, with names; in grey where ours are in front of them."""
    tints = (FAINT, FAINT, FAINT) if grey else (COLOURS[0], COLOURS[1], FAINT)
    for (family, points), colour, mark in zip(published.published_points().items(), tints, "osD", strict=True):
        flops, scores = [point[0] for point in points], [point[1] for point in points]
        label = f"{family} (paper)"
        line = "none" if family == "others" else "-"
        axes.plot(flops, scores, color=colour, marker=mark, markersize=4, linewidth=1, linestyle=line, label=label)
        for x, y, name in points:
            left = family == "ELECTRA" or name == "RoBERTa-100K"  # away from the other families' lines and names
            place: Any = {"xytext": (-5, 2), "ha": "right"} if left else {"xytext": (5, -9), "ha": "left"}
            if name in ("RoBERTa", "XLNet"):
                place["xytext"] = (5, 0)
            axes.annotate(name, (x, y), textcoords="offset points", fontsize=6.5, color=FAINT, **place)
    axes.margins(x=0.2)
    _powers(axes)
    axes.set(xlabel=_FLOPS_LABEL, ylabel="GLUE score, dev set")
    axes.legend(fontsize=8, loc="lower right")


def _configs(experiment: Summary) -> list[Config]:
    found = (measured.config_of(experiment, row) for row in experiment.declared.rows)
    return [config for config in found if config is not None]


def _kept_parameters(experiment: Summary) -> float:
    return min((parameters(config).kept for config in _configs(experiment)), default=float("inf"))


def _labelled(experiment: Summary) -> str:
    """The preset with the discriminator's width, and the folder where it says more."""
    config, preset = next(iter(_configs(experiment)), None), measured.preset_of(experiment)
    name = preset if config is None else f"{preset} ({config.model.hidden_size})"
    return name if experiment.name == preset else f"{name}\n{experiment.name}"


def _words(metric: str) -> str:
    if metric == "glue/average":
        return "GLUE score"
    return f"{metric} (points)" if measured.factor(metric) > 1 else metric
