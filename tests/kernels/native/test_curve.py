"""No speed bought with wrong numbers: 1,000 steps with the native kernels end where the plain fp32 path ends.

The runs are those around Google's curve in records/google-curve; tests/google/test_curve.py refuses them once the code that made them is no
longer the tree's, and holds each path against Google's run. The kernels draw dropout otherwise, and so each seed takes another path.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.google.curves import LOSSES, seeds_of, window_means

RECORD = Path(__file__).resolve().parents[3] / "records" / "google-curve"
BOTH = pytest.mark.parametrize("loss", LOSSES)


def held_out(path: str, loss: str) -> list[float]:
    """Last row of each seed, step -1."""
    rows = [list(csv.DictReader(file.open()))[-1] for file in sorted(RECORD.glob(f"{path}-seed*.csv"))]
    assert rows and {row["step"] for row in rows} == {"-1"}
    return [float(row[loss]) for row in rows]


@BOTH
def test_held_out_losses_are_within_the_spread_of_seeds(loss: str) -> None:
    """The means differ by at most four times the standard error of their difference; the spread is that of the native seeds."""
    plain, native = held_out("plain-fp32", loss), held_out("native-bf16", loss)
    error = np.std(native, ddof=1) * np.sqrt(1 / len(plain) + 1 / len(native))
    assert abs(np.mean(plain) - np.mean(native)) <= 4 * error


@BOTH
def test_the_way_there_is_the_same(loss: str) -> None:
    """Means of 100 steps, after the first hundred, where initial weights decide, within 1 %."""
    plain, native = (window_means(seeds_of(RECORD, one, loss)).mean(0) for one in ("plain-fp32", "native-bf16"))
    assert np.abs(native / plain - 1)[1:].max() <= 0.01
