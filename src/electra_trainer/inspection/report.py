"""Run folders -> one self-contained page with pictures: curves, health, real sentences, settings.

    RUN/metrics.jsonl      curves, headline numbers, health     needed
    RUN/examples.jsonl     sentences                            optional
    RUN/config.json        table of settings                    optional
    RUN/environment.json   table of the machine and versions    optional

The page is HTML without scripts or outside resources. Half a line, left by a run that was killed while writing, is
skipped and noted. Matplotlib is imported inside functions, and its global state does not change.
"""

import base64
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.errors import ConfigError, MissingInputError, StorageError, storage_error
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.wording import duration, number, power, render
from electra_trainer.inspection.run_read import Row, Run, finite, read_run, runs_in, title_of
from electra_trainer.train import measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLD = 0.5
"""Probability from which a token counts as called replaced."""
ROWS, TOKENS = 12, 192
"""Most sentences on the page, and most tokens of each."""


def write_report(runs: Sequence[str | Path], *, out: str | Path | None = None) -> Path:
    """Write the page of one run, or of several overlaid, and its pictures.

    Args:
        runs: run folders, or experiments with all their runs, in the order of legends and tables.
        out: the page (`.html`) or a folder for it; None: the first run's folder. PNGs go to `figures/` next to the
            page.

    Returns:
        The page.

    Raises:
        MissingInputError: a run or its metrics.jsonl does not exist.
        DataError: a metrics.jsonl has no usable line.
        StorageError: a file cannot be read or written.
    """
    if not runs:
        raise MissingInputError("No run was named. Type: electra report RUN")
    folders = [run for given in runs for run in runs_in(Path(given))]
    names = [title_of(path) for path in folders]
    read = [
        read_run(path, name=name if names.count(name) == 1 else str(path))
        for path, name in zip(folders, names, strict=True)
    ]
    target = Path(runs[0]) if out is None else Path(out)
    target = target if out is not None and target.suffix == ".html" else target / "report.html"
    figures, pictures = target.parent / "figures", draw(read)
    try:
        figures.mkdir(parents=True, exist_ok=True)
        if figures.is_symlink():
            raise StorageError(
                f"{figures}: is a link, and pictures are written there. Remove it, or choose another --out."
            )
    except OSError as error:
        raise storage_error(error, target) from error
    for name, png in pictures.items():
        replace_durably(figures / f"{name}.png", png)
    replace_durably(target, _page(read, pictures).encode("utf-8", "replace"))  # a name may hold bytes that are not text
    return target


def _page(runs: Sequence[Run], pictures: Mapping[str, bytes]) -> str:
    """The whole document."""
    return render(
        "report.html",
        runs=runs,
        title=" · ".join(run.name for run in runs),
        threshold=THRESHOLD,
        compared=_by_name([_values(run) for run in runs]),
        held_out=all(run.valid for run in runs),
        health=[health(run) for run in runs],
        notes=[note for run in runs for note in run.notes],
        pictures={name: base64.b64encode(png).decode() for name, png in pictures.items()},
        sentences=[_sentences(run) for run in runs if run.examples],
        tables=[
            _settings("Settings", [run.config for run in runs]),
            _settings("Environment", [run.environment for run in runs]),
        ],
    )


def health(run: Run) -> tuple[str, str]:
    """("good" | "bad" | "", a sentence): is the run learning? With the verdict of the log (train/measures.py)."""
    entropy, uniform = run.last("generator_entropy"), run.vocabulary_entropy
    loss, constant, auc, standard = (
        run.last(f"discriminator_{name}") for name in ("loss", "constant_loss", "auc", "standard_auc")
    )
    if math.isnan(loss) and math.isnan(run.last("generator_loss")):
        return "", f"Fine-tuning at a training loss of {number(run.last('loss'))}."
    if math.isnan(loss):
        text = f"Masked language model at a loss of {number(run.last('generator_loss'))} nats"
        if math.isnan(uniform):
            return "", f"{text}."
        better = run.last("generator_loss") < 0.9 * uniform  # as word frequencies alone make it: no verdict on learning
        verdict = "better than that" if better else "no better than guessing yet"
        return "" if better else "bad", f"{text} against {uniform:.2f} for a uniform guess: {verdict}."
    if math.isnan(constant):
        rate = run.last("fake_rate")
        constant = measures.binary_entropy(rate) if 0 < rate < 1 else math.nan
    text = f"Discriminator {number(loss)} against {number(constant)} for the constant guess, AUC {number(auc)}"
    if entropy > 0.9 * uniform:
        return "bad", f"{text}: the generator is still close to a uniform guess ({entropy:.2f} of {uniform:.2f} nats)."
    if math.isnan(standard):  # not evaluated, or by an earlier version
        return "", f"{text}."
    words = measures.verdict(standard)
    kind = {measures.LEARNING: "good", measures.BEGINNING: ""}.get(words, "bad")
    return kind, f"{text}; AUC on standard fakes {number(standard)}: {words}."


_QUALITY = {
    "AUC on standard fakes": "discriminator_standard_auc",
    "discriminator AUC": "discriminator_auc",
    "discriminator loss": "discriminator_loss",
    "loss of the constant guess": "discriminator_constant_loss",
    "fake rate": "fake_rate",
    "generator loss": "generator_loss",
    "generator accuracy": "generator_accuracy",
}
"""Headline numbers of quality, by their names in metrics.jsonl."""


def _values(run: Run) -> dict[str, str]:
    """Headline numbers that the run has; held out wherever it was evaluated."""
    newest = {
        name: max((value for _, value in finite(run.train + run.valid, name)), default=math.nan)
        for name in ("step", "tokens", "flops", "seconds")
    }
    speeds = [speed for _, speed in finite(run.train, "tokens_per_second")]
    numbers = {title: run.last(name) for title, name in _QUALITY.items()} | {
        "steps": newest["step"],
        "tokens": newest["tokens"],
        "FLOPs": newest["flops"],
        "time": newest["seconds"],
        "tokens per second": statistics.median_high(speeds) if speeds else math.nan,
    }
    worded = {"FLOPs": power, "time": duration}
    return {name: worded.get(name, number)(value) for name, value in numbers.items() if math.isfinite(value)}


def _by_name(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Name -> its value in each table; a dash where a table lacks it."""
    return {name: [table.get(name, "–") for table in tables] for table in tables for name in table}


def _settings(title: str, tables: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Settings by name, one column per run; those that differ are tinted and come first."""
    rows = [
        {"name": name, "cells": cells, "differs": len({table.get(name) for table in tables}) > 1}
        for name, cells in _by_name(tables).items()
    ]
    rows.sort(key=lambda row: not row["differs"])
    return {"title": title, "rows": rows, "differing": sum(bool(row["differs"]) for row in rows)}


def _sentences(run: Run) -> dict[str, Any]:
    """Held-out text as the discriminator read it, and how many of its guesses were right."""
    rows = run.examples[:ROWS]
    judged = all(row.get("probability") is not None for row in rows)
    pairs = [pair for row in rows for pair in zip(_replaced(row), row["probability"], strict=True)] if judged else []
    called = [replaced for replaced, probability in pairs if probability >= THRESHOLD]
    fakes = sum(replaced for replaced, _ in pairs)
    return {
        "run": run.name,
        "step": run.examples_step,
        "judged": judged,
        "hits": sum(called),
        "fakes": fakes,
        "alarms": len(called) - sum(called),
        "originals": len(pairs) - fakes,
        "sentences": [tokens_of(row) for row in rows],
    }


def _replaced(row: Mapping[str, Any]) -> list[bool]:
    """Replaced tokens; none in a run without a discriminator."""
    return row.get("replaced") or [False] * len(row["original"])


def tokens_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Fields of each token for sentence.html.j2: kind, text before and after, the probability of "replaced", a space
    before it.
    """
    chances = row.get("probability") or [math.nan] * len(row["original"])
    columns = zip(row["original"], row["input"], row["masked"], _replaced(row), chances, strict=True)
    tokens: list[dict[str, str]] = []
    for index, (original, read, masked, replaced, chance) in enumerate(columns):
        if original == "[PAD]":
            continue
        if index == TOKENS:
            return [*tokens, {"kind": "", "original": "…", "read": "…", "chance": "", "space": " "}]
        called = chance >= THRESHOLD
        kinds = {"hit": replaced and called, "miss": replaced, "alarm": called, "masked": masked}
        special = "special" if original in ("[CLS]", "[SEP]") else ""
        token = {
            "kind": next((kind for kind, holds in kinds.items() if holds), special),
            "original": original.removeprefix("##"),
            "read": read.removeprefix("##"),
            "chance": "" if math.isnan(chance) else f"{chance:.0%}",
            "space": "" if not tokens or read.startswith("##") else " ",
        }
        tokens.append(token)
    return tokens


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
    """Loss in nats of always answering with the fake rate: its entropy (held out where known, else of the smoothed
    rate).
    """
    steps, values = _series(run.valid, "discriminator_constant_loss")
    if len(steps) > 1:
        return steps, values
    steps, rate = _series(run.train, "fake_rate")
    rate = np.clip(smooth(rate), 1e-9, 1 - 1e-9)
    return steps, np.array([measures.binary_entropy(one) for one in rate.tolist()])


def _level(value: Callable[[Run], float]) -> Callable[[Run], Points]:
    """A horizontal line over all steps of a run."""

    def line(run: Run) -> Points:
        steps = [row["step"] for row in run.train + run.valid]
        return np.array([min(steps), max(steps)]), np.full(2, value(run))

    return line


_chance, _uniform_guess = _level(lambda _: 0.5), _level(lambda run: run.vocabulary_entropy)
PANELS = (
    Panel("losses", "generator_loss", "Generator loss", "nats per masked token"),
    Panel("losses", "discriminator_loss", "Discriminator loss", "nats per token", "constant guess (entropy of the "
                                                                                  "fake rate)", _constant_guess),
    Panel("discrimination", "discriminator_auc", "Discriminator AUC", "area under ROC", "chance", _chance),
    Panel("discrimination", "discriminator_standard_auc", "AUC on standard fakes", "area under ROC", "chance", _chance),
    Panel("discrimination", "fake_rate", "Fake rate", "share of tokens replaced"),
    Panel("generator", "generator_accuracy", "Generator accuracy", "share of masked tokens"),
    Panel("generator", "generator_entropy", "Generator entropy", "nats", "uniform guess (log of the vocabulary "
                                                                         "size)", _uniform_guess),
    Panel("optimizer", "learning_rate", "Learning rate", "step size", exact=True),
    Panel("optimizer", "gradient_norm", "Gradient norm", "L2 norm before clipping", log=True),
)  # fmt: skip


def rendered(make: "Callable[[], Figure]", form: str) -> bytes:
    """Draw in this package's style; the same figure gives the same bytes.

    Raises:
        ConfigError: unknown format.
    """
    import matplotlib
    from matplotlib.text import Text

    if form not in ("svg", "png", "pdf"):
        raise ConfigError(
            f"--out: {form!r} is not a format of figures. Expected a name that ends in .svg, .png or .pdf."
        )
    content = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": "electra"}):
        figure = make()
        for text in figure.findobj(Text):
            text.set_parse_math(False)  # a run or an arm may have any name
        undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form, {})
        figure.savefig(content, format=form, dpi=160, facecolor="white", metadata=undated)
    return content.getvalue()


def draw(runs: Sequence[Run]) -> dict[str, bytes]:
    """All figures that the runs have numbers for, as PNGs."""
    shown = [panel for panel in PANELS if any(finite(run.train + run.valid, panel.key) for run in runs)]
    names = dict.fromkeys(panel.figure for panel in shown)
    return {
        name: rendered(partial(_picture, runs, [one for one in shown if one.figure == name]), "png") for name in names
    }


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


def _picture(runs: Sequence[Run], panels: Sequence[Panel]) -> "Figure":
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
    dashed = next((panel.dashed for panel in panels if panel.dashed), "")
    marks: dict[str, Any] = {
        "train": {"color": colour, "linewidth": 1.6, "label": "training, smoothed"},
        "valid": {"color": colour, **_HELD_OUT, "label": "held out"},
        "reference": {"color": reference, **_REFERENCE, "label": dashed},
    }
    handles += [Line2D([], [], **mark) for name, mark in marks.items() if name in drawn]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=min(4, len(handles)),
        fontsize=9,
        handlelength=1.8,
        columnspacing=1.6,
    )
    return figure


def _curve(axes: "Axes", run: Run, panel: Panel, colour: str, reference_colour: str) -> set[str]:
    """Draw a run's training curve, held-out points and dashed line; returns those of "train", "valid", "reference" that
    it has.
    """
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
