"""Our seeds around Google's curve, window by window: `python -m benchmarks.google_curve_figure RECORD`.

Prints a table of window means for each arithmetic, and in how many windows Google's run lies between our lowest and our highest seed; draws
RECORD/curve.png. From RECORD/PATH-seed*.csv and RECORD/google.csv.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STEPS, WINDOW = 1000, 100
PATHS = ("plain-fp32", "native-bf16")
LOSSES = ("generator_loss", "discriminator_loss")
Curve = NDArray[np.float64]


def steps_of(path: Path, column: str) -> Curve:
    """A column of a curve, its first 1,000 steps."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["step"]) > 0]
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1)), path
    return np.array([float(row[column]) for row in rows])


def seeds_of(record: Path, path: str, column: str) -> Curve:
    """A column of all recorded seeds of an arithmetic, [seeds, steps]."""
    return np.stack([steps_of(file, column) for file in sorted(record.glob(f"{path}-seed*.csv"))])


def window_means(curve: Curve, size: int = WINDOW) -> Curve:
    """Means over windows, along the last axis."""
    means: Curve = curve.reshape(*curve.shape[:-1], -1, size).mean(-1)
    return means


def table(record: Path) -> list[str]:
    """The windows as Markdown, and a sentence for each arithmetic and loss."""
    head, rows, said = ["mean of steps"], [[f"{first + 1}–{first + WINDOW}"] for first in range(0, STEPS, WINDOW)], []
    for loss in LOSSES:
        google, places = window_means(steps_of(record / "google.csv", loss)), 3 if loss == "generator_loss" else 4
        head.append(f"{loss.split('_')[0]}: Google")
        for row, value in zip(rows, google, strict=True):
            row.append(f"{value:.{places}f}")
        for path in PATHS:
            seeds = window_means(seeds_of(record, path, loss))
            head.append(path)
            for row, values in zip(rows, seeds.T, strict=True):
                spread = f" ± {values.std(ddof=1):.{places}f}" if len(values) > 1 else ""
                row.append(f"{values.mean():.{places}f}{spread}")
            inside = int(((seeds.min(0) <= google) & (google <= seeds.max(0)))[1:].sum())
            off = np.abs(seeds.mean(0) / google - 1)
            said.append(
                f"{path}, {loss}: {inside} of {len(google) - 1} windows after the first inside the range of {len(seeds)} seeds; "
                f"mean off by at most {off[1:].max():.2%} there, {off[0]:.2%} in the first"
            )
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + ["", *said]


def main() -> None:
    """Print and draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    record = parser.parse_args().record
    print(*table(record), sep="\n")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for axis, loss in zip(axes, LOSSES, strict=True):
        size = WINDOW // 2
        steps, lines = size * (np.arange(STEPS // size) + 0.5), []
        for path, colour in zip(PATHS, ("tab:blue", "tab:orange"), strict=True):
            for number, line in enumerate(window_means(seeds_of(record, path, loss), size)):
                lines.append(line)
                label = f"ours, {path}, one line a seed" if number == 0 else None
                axis.plot(steps, line, color=colour, alpha=0.6, label=label)
        google = window_means(steps_of(record / "google.csv", loss), size)
        axis.plot(steps, google, color="black", linestyle="--", label="Google's code, one run")
        limits = np.percentile(lines, [0, 97]) * [0.99, 1.03]
        axis.set(xlabel="step", ylabel="nats", title=loss.replace("_", " "), ylim=limits)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(record / "curve.png", dpi=110)


if __name__ == "__main__":
    main()
