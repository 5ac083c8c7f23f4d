"""No speed bought with wrong numbers: 1,000 steps with the native kernels end where the plain fp32 path ends.

The runs are those around Google's curve, three seeds each: fp32 in records/google-curve, native in records/2026-11-20-speed/curves, by
`python -m benchmarks.google_curve REFERENCE --seed N --precision bf16 --out FILE`. Dropout, and with it each seed's path, differs.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

RECORDS = Path(__file__).resolve().parents[3] / "records"
FP32 = sorted((RECORDS / "google-curve").glob("seed*.csv"))
NATIVE = sorted((RECORDS / "2026-11-20-speed/curves").glob("native-seed*.csv"))
LOSSES = pytest.mark.parametrize("loss", ["generator_loss", "discriminator_loss"])


def column(path: Path, name: str) -> dict[int, float]:
    with path.open() as file:
        return {int(row["step"]): float(row[name]) for row in csv.DictReader(file)}


@LOSSES
def test_held_out_losses_are_within_the_spread_of_seeds(loss: str) -> None:
    """The means differ by at most twice the standard error of their difference."""
    fp32, native = ([column(path, loss)[-1] for path in paths] for paths in (FP32, NATIVE))
    assert len(fp32) == len(native) == 3
    error = np.sqrt((np.var(fp32, ddof=1) + np.var(native, ddof=1)) / 3)
    assert abs(np.mean(fp32) - np.mean(native)) <= 2 * error


def windows(seeds: list[dict[int, float]]) -> NDArray[np.float64]:
    """Means over seeds and 100 steps each."""
    curves = np.array([[losses[step] for step in range(1, 1001)] for losses in seeds])
    means: NDArray[np.float64] = curves.mean(0).reshape(10, 100).mean(1)
    return means


@LOSSES
def test_the_way_there_is_the_same(loss: str) -> None:
    """Means of 100 steps, after the first hundred, where initial weights decide, within 1 %."""
    fp32, native = (windows([column(path, loss) for path in paths]) for paths in (FP32, NATIVE))
    assert np.abs(native / fp32 - 1)[1:].max() <= 0.01
