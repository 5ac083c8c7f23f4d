"""Run folders -> one self-contained page with pictures: curves, health, real sentences, settings.

    RUN/metrics.jsonl      curves, headline numbers, health     needed
    RUN/examples.jsonl     sentences                            optional
    RUN/config.json        table of settings                    optional
    RUN/environment.json   table of the machine and versions    optional

The page is HTML without scripts or outside resources. Half a line, left by a run that was killed while writing, is
skipped. Matplotlib is imported inside functions, and its global state does not change.
"""

import io
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.cost import returns
from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError, plain
from electra_trainer.files.durable import alone, write_output
from electra_trainer.files.wording import duration, number, power, render
from electra_trainer.settings.calls import checked
from electra_trainer.settings.records import flat, read_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THRESHOLD = 0.5
"""Probability from which a token counts as called replaced."""
ROWS = 12
"""Most sentences on the page."""


Row = dict[str, float]
"""The finite numbers of a line of metrics.jsonl."""


@dataclass(frozen=True)
class Run:
    """The contents of a run folder."""

    name: str
    """Shown in legends and tables: the folder's name, or its path where two folders share a name."""
    train: list[Row]
    """Rows of training, by step; if a step was logged twice, its later line."""
    valid: list[Row]
    """Held-out rows, by step."""
    examples: dict[str, Any]
    """Line of the last evaluation in examples.jsonl."""
    config: dict[str, str]
    """Settings by dotted name."""
    environment: dict[str, str]
    alarms: Sequence[str]
    """Alarms by its newest rows."""
    stopped: str = ""
    """Where a run was stopped before its last step."""

    @property
    def arm(self) -> str:
        """Its name without a seed: seeds of an experiment's arm share a colour."""
        return re.sub(r" seed \d+$", "", self.name)

    @property
    def speed(self) -> float:
        """Tokens a second, median over the training rows; nan without any."""
        speeds = [row["tokens_per_second"] for row in self.train if "tokens_per_second" in row]
        return float(np.median(speeds or [math.nan]))

    def last(self, name: str) -> float:
        """The newest held-out value, else the newest training value, else nan."""
        rows = [*reversed(self.valid), *reversed(self.train)]
        return next((row[name] for row in rows if name in row), math.nan)


def read_run(path: Path, *, name: str | None = None) -> Run:
    """Read a run folder, without lines that are damaged; see `write_report` for the errors."""
    from electra_trainer.runs.metrics import curves, readable_rows  # it loads torch
    from electra_trainer.runs.run_folder import RunFolder
    from electra_trainer.train.health import alarms_in

    metrics = path / "metrics.jsonl"
    if not metrics.exists():
        raise MissingInputError(f"{metrics}: no such file. Expected a run folder, as electra pretrain makes it.")
    finite = ([{n: one for n, one in row.items() if abs(one) < 1e300} for row in rows] for rows in curves(metrics))
    train, valid = finite
    if not train and not valid:
        raise DataError(f'{metrics}: holds no JSON object with a "step". Did the run log anything yet?')
    examples = [row for row in readable_rows(path / "examples.jsonl") if isinstance(row.get("rows"), list)]
    return Run(
        name or path.resolve().name,
        train,
        valid,
        examples[-1] if examples else {"step": 0, "rows": []},
        _flat(path / "config.json"),
        _flat(path / "environment.json"),
        alarms_in(RunFolder(path)),
        _stopped(_flat(path / "status.json"), _flat(path / "config.json").get("schedule.steps", "")),
    )


def _stopped(status: Mapping[str, str], steps: str) -> str:
    step, is_early = status.get("step", steps), status.get("state") == "stopped"
    return f"Ended early, at step {step} of {steps}" if is_early and step != steps else ""


def _flat(path: Path) -> dict[str, str]:
    """A JSON object as {dotted name: text}; empty if it cannot be read."""
    try:
        table = flat(read_table(path))
    except (ConfigError, MissingInputError, RecursionError):
        return {}
    return {n: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for n, value in table.items()}


@checked
def write_report(runs: str | Path | Sequence[str | Path], *, out: str | Path | None = None) -> Path:
    """Write the page of one run, or of several overlaid, and its pictures.

    Args:
        runs: a run folder, or several, or experiments with all their runs, in the order of legends and tables.
        out: the page (`.html`) or a folder for it; None: the run's folder, of several
            `compared` in the first one's. SVGs go to `figures/` next to the page.

    Returns:
        The page.

    Raises:
        MissingInputError: a run or its metrics.jsonl does not exist.
        DataError: a metrics.jsonl has no usable line.
        StorageError: a file cannot be read or written.
    """
    runs = [runs] if isinstance(runs, str | Path) else runs
    if not runs:
        raise MissingInputError("No run was named. Type: electra report RUN")
    folders = [run for given in runs for run in _runs_in(Path(given))]
    names = [_title(path) for path in folders]
    read = [
        read_run(path, name=name if names.count(name) == 1 else str(path))
        for path, name in zip(folders, names, strict=True)
    ]
    target = Path(runs[0], "compared" * (len(runs) > 1)) if out is None else Path(out)
    target = target if out is not None and target.suffix == ".html" else target / "report.html"
    contrasts = [one for given in runs for one in _contrasts(Path(given))]
    figures, pictures = target.parent / "figures", draw(read, contrasts)
    titles = [run.name for run in read] if len(read) == len(runs) else [Path(run).resolve().name for run in runs]
    with alone(target, patience=60.0):
        if figures.is_symlink():
            raise StorageError(
                f"{figures}: is a link, and pictures are written there. Remove it, or choose another --out."
            )
        for name, picture in pictures.items():
            write_output(figures / f"{name}.svg", picture)
        page = _page(" · ".join(titles), read, pictures, contrasts).encode("utf-8", "replace")  # names are bytes
        write_output(target, page)
    return target


def _runs_in(path: Path) -> list[Path]:
    """The run folder itself, or the runs of an experiment, by arm or task and seed.

    Raises:
        MissingInputError: the experiment has no run yet.
    """
    if not (path / "experiment.json").is_file():
        return [path]
    found = [file.parent for file in path.glob("cells/**/metrics.jsonl")]
    if not found:
        raise MissingInputError(f"{path}: no run of this experiment has begun. Repeat its command, then this one.")
    return sorted(
        found, key=lambda run: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(run))]
    )


def _title(run: Path) -> str:
    """The name of a run on the page: of an experiment's run its arm and seed, else its folder's name."""
    path = run.resolve()
    if "cells" not in path.parts:
        return path.name
    return str(path).rpartition("/cells/")[2].removesuffix("/run").replace("/", " ").replace("seed-", "seed ")


def _contrasts(path: Path) -> list[dict[str, Any]]:
    """The contrasts in the summary of an experiment, with the differences of single seeds; empty where it has none."""
    with suppress(ElectraError, AttributeError, KeyError, TypeError, ValueError):
        found = read_table(path / "summary.json")
        for one in found["contrasts"]:
            new, old = (found["rows"][one[of]][one["metric"]]["by_seed"] for of in ("row", "reference"))
            one["seeds"] = [new[seed] - old[seed] for seed in new.keys() & old.keys()]
            one["low"], one["high"] = one["over_rows"] or one["t_interval"] or (math.nan, math.nan)
            one["shown"] = (
                f"{one['mean']:+.4g}",
                f"{one['low']:+.3g} to {one['high']:+.3g}",
                number(one["p_holm"] or 1.0),
            )
        return list(found["contrasts"])
    return []


def _page(
    title: str, runs: Sequence[Run], pictures: Mapping[str, bytes], contrasts: Sequence[Mapping[str, Any]]
) -> str:
    """The whole document. Seeds of an arm are one column, with the settings of the first one; where there are contrasts
    sentences are left out.
    """
    arms = _by_arm(runs)
    firsts = [seeds[0] for seeds in arms.values()]
    figures = defaultdict[str, list[str]](list)
    for panel in PANELS:
        if panel.key in pictures:
            figures[panel.figure].append(_inline(pictures[panel.key].decode(), panel.key, _in_words(runs, panel)))
    return render(
        "report.html",
        runs=runs,
        arms={arm: len(seeds) for arm, seeds in arms.items()},
        title=title,
        contrasts=contrasts,
        forest=_inline(pictures["contrasts"].decode(), "contrasts", "The differences in the table")
        if contrasts
        else "",
        compared=_by_name([_values(seeds) for seeds in arms.values()]),
        held_out=all(run.valid for run in runs),
        health=[(run.name, *health(run)) for run in runs],
        gauge=_gauge(runs[0]) if len(runs) == 1 else [],
        further=[further(run) for run in runs],
        figures=figures,
        sentences=[found for run in firsts if not contrasts and (found := _sentences(run))["sentences"]],
        tables=[
            _settings("Settings", [run.config for run in firsts]),
            _settings("Environment", [run.environment for run in firsts]),
        ],
    )


def health(run: Run) -> tuple[str, str]:
    """("good" | "bad" | "", sentences): is the run learning, and how far is it? By the judgement of train/health.py."""
    from electra_trainer.train.health import BEGINNING, LEARNING, verdict

    held_out = run.valid[-1] if run.valid else {}
    kind, found = "", f"Training loss {number(run.last('loss'))}"
    right = [one for name in ("encoder_accuracy", "generator_accuracy") if not math.isnan(one := run.last(name))]
    pairs = "Of a replaced and an original word it suspects the right one"
    if "discriminator_standard_auc" in held_out:
        now, auc = verdict(held_out), held_out["discriminator_standard_auc"]
        kind = {LEARNING: "good", BEGINNING: ""}.get(now, "bad")
        found = f"{now.capitalize()}. {pairs} {100 * auc:.0f} times in 100 (a guess: 50)"
    elif not math.isnan(auc := run.last("discriminator_auc")):
        found = f"{pairs} {100 * auc:.0f} times in 100 (a guess: 50), where its own generator replaced"
    elif right:
        found = f"It predicts {100 * right[0]:.0f} in 100 of the chosen words"
    notes = [*(f"ALARM: {alarm}" for alarm in run.alarms), *filter(None, [run.stopped]), found]
    return "bad" if run.alarms else kind, ". ".join(notes) + "."


def further(run: Run) -> str:
    """Answer by the records' points for a run of `mini`; empty for another preset, or a run that began trained."""
    tokens, speed = run.last("tokens"), run.speed
    continued = "init.name" not in run.environment or "init.step" in run.environment
    measured = run.config.get("preset") == "mini" and tokens > 0 and speed > 0
    return returns.ahead(tokens, speed) if measured and continued else ""


def how_far(run: Run) -> str:
    """Its health and what further training may give, in a line."""
    return " ".join(filter(None, (health(run)[1], further(run))))


def _gauge(run: Run) -> list[dict[str, Any]]:
    """Marks from an AUC of 0.5 to 0.9, at their percent: the run, a guess, and the records' points, without those
    that are too near the one before.
    """
    if math.isnan(auc := run.last("discriminator_standard_auc")):
        return []
    marks = [(0.5, "a guess")]
    for one in returns.POINTS:
        if one.auc > marks[-1][0] + 0.02:
            marks.append((one.auc, number(one.tokens)))
    return [
        {"at": f"{min(max((value - 0.5) / 0.4, 0.0), 1.0):.1%}", "auc": f"{value:.3f}", "name": name}
        for value, name in [(auc, "this run"), *marks]
    ]


_NUMBERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "AUC on standard fakes": ("discriminator_standard_auc", number),
    "discriminator AUC": ("discriminator_auc", number),
    "discriminator loss": ("discriminator_loss", number),
    "loss of the constant guess": ("discriminator_constant_loss", number),
    "fake rate": ("fake_rate", number),
    "generator loss": ("generator_loss", number),
    "generator accuracy": ("generator_accuracy", number),
    "steps": ("step", number),
    "tokens": ("tokens", number),
    "FLOPs, as the paper counts": ("flops", power),
    "FLOPs, matrix products": ("flops_real", power),
    "time": ("seconds", duration),
}
"""Headline numbers: their names in metrics.jsonl, and how they are written."""


def _by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each arm: its seeds."""
    return {arm: [run for run in runs if run.arm == arm] for arm in dict.fromkeys(run.arm for run in runs)}


def _values(seeds: Sequence[Run]) -> dict[str, str]:
    """Headline numbers that all runs of an arm have, means over them; held out wherever they were evaluated."""
    found = {title: ([run.last(name) for run in seeds], worded) for title, (name, worded) in _NUMBERS.items()}
    found["tokens per second, median"] = ([run.speed for run in seeds], number)
    means = {title: (float(np.mean(values)), worded) for title, (values, worded) in found.items()}
    return {title: worded(value) for title, (value, worded) in means.items() if math.isfinite(value)}


def _by_name(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Name -> its value in each table; a dash where a table lacks it."""
    return {name: [table.get(name, "–") for table in tables] for table in tables for name in table}


def _settings(title: str, tables: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Settings by name, one column per run; those that differ are tinted and come first."""
    rows = [{"name": name, "cells": cells, "differs": len({*cells}) > 1} for name, cells in _by_name(tables).items()]
    rows.sort(key=lambda row: not row["differs"])
    return {"title": title, "rows": rows, "differing": sum(bool(row["differs"]) for row in rows)}


def _sentences(run: Run) -> dict[str, Any]:
    """Held-out text as the discriminator read it, without damaged rows."""
    rows, sentences = run.examples["rows"][:ROWS], []
    for row in rows:
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            sentences.append(tokens_of(row))
    judged = any(token["chance"] for tokens in sentences for token in tokens)
    return {"run": run.name, "step": run.examples["step"], "judged": judged, "sentences": sentences}


def tokens_of(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """Fields of each token for sentence.html.j2: kind, text before and after, the probability of "replaced", a space
    before it.
    """
    chances = row.get("probability") or [math.nan] * len(row["original"])
    replaced_or_not = row.get("replaced") or [False] * len(row["original"])
    columns = zip(row["original"], row["input"], row["masked"], replaced_or_not, chances, strict=True)
    tokens: list[dict[str, str]] = []
    for original, read, masked, replaced, chance in columns:
        if original == "[PAD]":
            continue
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


# Distinguishable with any colour vision (Okabe and Ito), dark enough for thin lines on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#3AA0DC", "#666666")
INK, FAINT = "#333333", "#8c8c8c"
STYLE: Any = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": "#e6e6e6", "grid.linewidth": 0.8, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "legend.frameon": False, "text.parse_math": False, "text.usetex": False,
    "axes.formatter.use_mathtext": False,
}  # fmt: skip
"""The look of every figure of this package, as matplotlib's settings. No text is TeX: a run may be named `$x_$`."""


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
    reference: str | float = ""
    """The dashed line: a level, or its name in the held-out rows."""
    log: bool = False


PANELS = (
    Panel("losses", "generator_loss", "Generator loss", "nats per masked token"),
    Panel("losses", "discriminator_loss", "Discriminator loss", "nats per token", "constant guess",
          "discriminator_constant_loss"),
    Panel("discrimination", "discriminator_auc", "Discriminator AUC", "area under ROC", "chance", 0.5),
    Panel("discrimination", "discriminator_standard_auc", "AUC on standard fakes", "area under ROC", "chance", 0.5),
    Panel("discrimination", "fake_rate", "Fake rate", "share of tokens replaced"),
    Panel("generator", "generator_accuracy", "Generator accuracy", "share of masked tokens"),
    Panel("generator", "generator_entropy", "Generator entropy", "nats"),
    Panel("optimizer", "learning_rate", "Learning rate", "step size"),
    Panel("optimizer", "gradient_norm", "Gradient norm", "L2 norm before clipping", log=True),
)  # fmt: skip


def rendered(make: "Callable[[], Figure]", form: str, *, style: Any = None) -> bytes:
    """Draw in this package's style, with changes of it; the same figure gives the same bytes.

    Raises:
        ConfigError: unknown format.
    """
    import matplotlib
    from matplotlib.ticker import LogFormatter, LogFormatterMathtext

    if form not in ("svg", "png", "pdf"):
        raise ConfigError(
            f"--out: {form!r} is not a format of figures. Expected a name that ends in .svg, .png or .pdf."
        )
    content = io.BytesIO()
    with matplotlib.rc_context({**STYLE, **(style or {}), "svg.fonttype": "none", "svg.hashsalt": "electra"}):
        figure = make()
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):  # writes TeX
                axis.set_major_formatter(LogFormatter())
                axis.set_minor_formatter(LogFormatter(labelOnlyBase=False))
        facts = {"svg": ("Date", "Creator", "Format", "Type"), "pdf": ("CreationDate",)}.get(form, ())
        figure.savefig(content, format=form, dpi=160, facecolor="white", metadata=dict.fromkeys(facts))
    return content.getvalue()


def draw(runs: Sequence[Run], contrasts: Sequence[Mapping[str, Any]] = ()) -> dict[str, bytes]:
    """The panels that the runs have numbers for, by key, and `contrasts` if there are any, as SVGs."""
    shown = [panel for panel in PANELS if any(panel.key in row for run in runs for row in run.train + run.valid)]
    forest = {"contrasts": rendered(partial(_forest, contrasts), "svg")} if contrasts else {}
    return forest | {panel.key: rendered(partial(_picture, runs, panel), "svg") for panel in shown}


def _forest(contrasts: Sequence[Mapping[str, Any]]) -> "Figure":
    """Differences with their 95 % intervals and, small, those of single seeds; a panel for each metric."""
    from matplotlib.figure import Figure

    metrics = list(dict.fromkeys(one["metric"] for one in contrasts))
    figure = Figure(figsize=(6.6, 0.9 * len(metrics) + 0.3 * len(contrasts)), layout="constrained")
    for axes, metric in zip(figure.subplots(len(metrics), 1, squeeze=False)[:, 0], metrics, strict=True):
        mine = [one for one in reversed(contrasts) if one["metric"] == metric]
        for at, one in enumerate(mine):
            axes.plot(one["seeds"], [at] * len(one["seeds"]), ".", color=FAINT)
            axes.plot((one["low"], one["high"]), (at, at), color=COLOURS[0], linewidth=2.0)
            axes.plot(one["mean"], at, "D", color=COLOURS[0])
        axes.axvline(0, color=INK, linewidth=0.9)
        axes.set_yticks(range(len(mine)), [f"{one['row']} − {one['reference']}" for one in mine])
        axes.set(title=metric, ylim=(-0.6, len(mine) - 0.4))
    return figure


def _inline(svg: str, key: str, words: str) -> str:
    """A picture as an element of the page: with a name in words, and ids that no other picture has."""
    element = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{key}-", svg[svg.index("<svg") :])
    return plain(element, keep="\n\t").replace("<svg ", f'<svg role="img" aria-label="{escape(plain(words))}" ', 1)


def _in_words(runs: Sequence[Run], panel: Panel) -> str:
    """The first and the last value of each curve."""
    curves = []
    for run in runs:
        both = ([row for row in rows if panel.key in row] for rows in (run.valid, run.train))
        rows = next(filter(None, both), [])
        ends = dict.fromkeys(f"{number(row[panel.key])} at step {row['step']:,.0f}" for row in rows[:1] + rows[-1:])
        curves.append(f"{run.name}: {', '.join(ends)}")
    return f"{panel.title}, {panel.unit}. {'; '.join(curves)}"


def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moving average over a twentieth of the points, centred; at both ends over those that there are."""
    window = np.ones(2 * (len(values) // 40) + 1)
    total, count = (np.convolve(one, window, "same") for one in (values, np.ones_like(values)))
    return total / count


def _series(rows: Sequence[Row], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps and finite values of one quantity."""
    points = np.array([(row["step"], row[name]) for row in rows if name in row], dtype=np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


_HELD_OUT: Any = {"linewidth": 0.9, "marker": "o", "markersize": 4.5, "markerfacecolor": "white", "zorder": 3}


def _picture(runs: Sequence[Run], panel: Panel) -> "Figure":
    """One panel under its legend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    figure = Figure(figsize=(4.6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for colour, seeds in zip(itertools.cycle(COLOURS), _by_arm(runs).values(), strict=False):
        for run in seeds:
            _curve(axes, run, panel, colour, several=len(runs) > 1, thin=len(seeds) > 1)
        if len(seeds) > 1:
            _band(axes, seeds, panel, colour)
    axes.set(title=panel.title, xlabel="step", ylabel=panel.unit, yscale="log" if panel.log else "linear")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    axes.margins(x=0.02)
    legend = {label: one for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(legend.values(), legend.keys(), loc="outside upper left", ncols=3, fontsize=9)
    return figure


def _band(axes: "Axes", seeds: Sequence[Run], panel: Panel, colour: str) -> None:
    """Draw the mean over seeds, and a band from the lowest to the highest, at the steps that all have."""
    series = [_series(run.train, panel.key) for run in seeds]
    if not all(len(steps) for steps, _ in series):
        series = [_series(run.valid, panel.key) for run in seeds]
    if all(len(steps) for steps, _ in series):
        points = [dict(zip(steps, smooth(values), strict=True)) for steps, values in series]
        steps = sorted(set.intersection(*map(set, points)))
        values = np.array([[one[step] for step in steps] for one in points])
        axes.plot(steps, values.mean(0), color=colour, linewidth=1.6, label=f" {seeds[0].arm}")
        axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)


def _curve(axes: "Axes", run: Run, panel: Panel, colour: str, *, several: bool, thin: bool) -> None:
    """Draw a run's training curve, held-out points and dashed line, those that it has; `thin`: one of several seeds."""
    steps, values = _series(run.train, panel.key)
    if len(steps):
        smoothed, name = smooth(values), f" {run.arm}" if several else "training, smoothed"
        if len(steps) >= 40 and not thin:
            axes.plot(steps, values, color=colour, alpha=0.22, linewidth=0.8)
        look: Any = {"alpha": 0.5, "linewidth": 0.7} if thin else {"linewidth": 1.6, "label": name}
        axes.plot(steps, smoothed, color=colour, marker="." if len(steps) == 1 else "", **look)
    steps, values = _series(run.valid, panel.key)
    if len(steps):
        every = max(1, len(steps) // 25)
        axes.plot(
            steps, values, color=colour, **_HELD_OUT, alpha=0.4 if thin else 1.0, markevery=every, label="held out"
        )
    dashed: Any = {"color": colour if several else INK, "linestyle": (0, (4, 2)), "label": panel.dashed}
    if isinstance(panel.reference, float):
        axes.axhline(panel.reference, **dashed)
    elif len((points := _series(run.valid, panel.reference))[0]):
        axes.plot(*points, **dashed)
