"""Recorded curves of 1,000 steps, ours and Google's, and their means over windows."""

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STEPS, WINDOW = 1000, 100
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
