"""Our seeds around Google's curve, window by window: `python -m benchmarks.google_curve_figure REFERENCE RECORD`.

Prints a table of window means, and draws RECORD/curve.png from RECORD/seed*.csv and REFERENCE/curve_tiny.csv.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WINDOW = 50
PAIRS = (("masked_lm_loss", "generator_loss"), ("disc_loss", "discriminator_loss"))


def windows(path: Path, column: str) -> NDArray[np.float64]:
    """Means of a column over windows of 50 steps."""
    with path.open(newline="") as file:
        values = [float(row[column]) for row in csv.DictReader(file) if int(row["step"]) > 0]
    return np.asarray(values).reshape(-1, WINDOW).mean(1)


def main() -> None:
    """Print and draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reference", type=Path)
    parser.add_argument("record", type=Path)
    arguments = parser.parse_args()
    seeds = sorted(arguments.record.glob("seed*.csv"))
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for axis, (theirs, ours) in zip(axes, PAIRS, strict=True):
        reference = windows(arguments.reference / "curve_tiny.csv", theirs)
        mine = np.stack([windows(path, ours) for path in seeds])
        steps = WINDOW * (np.arange(len(reference)) + 0.5)
        for number, line in enumerate(mine):
            axis.plot(steps, line, color="tab:blue", alpha=0.6, label="ours, one line a seed" if number == 0 else None)
        axis.plot(steps, reference, color="black", linestyle="--", label="Google's code, one run")
        axis.set(
            xlabel="step", ylabel="nats", title=ours.replace("_", " "), ylim=np.percentile(mine, [0, 97]) * [0.99, 1.03]
        )
        axis.grid(alpha=0.3)
        print(ours)
        for step, one, many in zip(steps, reference, mine.T, strict=True):
            print(f"  {step:5.0f}  reference {one:.4f}  ours {many.mean():.4f} +- {many.std(ddof=1):.4f}")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(arguments.record / "curve.png", dpi=110)


if __name__ == "__main__":
    main()
