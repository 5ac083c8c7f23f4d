"""Our curve beside that of Google's own run: same rows, batch and hyperparameters, other random numbers.

The reference is one run, so a mean of ours can only be as near to it as two seeds are to each other. A window is 100 steps.
Its noise is the seed-to-seed standard deviation of its mean over our three seeds, pooled over windows because three numbers
alone give a poor estimate, and never less than what the steps' own scatter leaves of a mean of 100. The reference minus the
mean of three seeds then has a standard deviation of noise * sqrt(1 + 1/3). It may be off by 4 of them: the windows of a seed
go together, so the pooled estimate is worth about 6 independent ones, and Student's t with 6 degrees of freedom exceeds 4 in
0.7 % of windows; nine windows give a false alarm in fewer than 7 % of fair comparisons. A bound that grows with the spread is
no evidence where seeds differ much, so every window must also be within `NEAR`.

The first window is left to `NEAR` and to the test of the first steps: there the drawn weights decide (at step 1 the
discriminator's loss is 0.70 with a standard deviation of 0.02 over twelve seeds; the reference began at 0.715).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from benchmarks import google_curve
from numpy.typing import NDArray

RECORDS = Path(__file__).resolve().parents[2] / "records" / "google-curve"
SEEDS = (1, 2, 3)
COLUMNS = {"generator_loss": "masked_lm_loss", "discriminator_loss": "disc_loss"}  # ours: theirs
STEPS, WINDOW = 1000, 100
MULTIPLE = 4.0
NEAR = 0.01  # relative; a discriminator that learns nothing would end 3.3 % above the reference
NEAR_AT_FIRST = 0.02  # the same for the first window
LATER = slice(1, None)
Curve = NDArray[np.float64]
BOTH = pytest.mark.parametrize("measure", COLUMNS)


def column(path: Path, name: str) -> Curve:
    """A column of a curve, its first 1,000 steps."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["step"]) > 0]
    assert [int(row["step"]) for row in rows] == list(range(1, STEPS + 1)), path
    return np.array([float(row[name]) for row in rows])


def reference(shared: Path, measure: str) -> Curve:
    return column(shared / "reference" / "tf" / "curve_tiny.csv", COLUMNS[measure])


def ours(measure: str) -> Curve:
    """[seeds, steps]; skipped where the runs are not recorded."""
    paths = [RECORDS / f"seed{seed}.csv" for seed in SEEDS]
    if not all(path.is_file() for path in paths):
        pytest.skip("needs records/google-curve/seed1.csv, seed2.csv, seed3.csv (python -m benchmarks.google_curve)")
    return np.stack([column(path, measure) for path in paths])


def windows(curve: Curve) -> Curve:
    """Means over windows, along the last axis."""
    means: Curve = curve.reshape(*curve.shape[:-1], -1, WINDOW).mean(-1)
    return means


def noise(seeds: Curve) -> Curve:
    """Standard deviation of one seed's window means, for each window."""
    between = float(np.sqrt(windows(seeds).var(axis=0, ddof=1).mean()))
    scatter = np.sqrt(windows(seeds.var(axis=0, ddof=1)) / WINDOW)
    return np.maximum(between, scatter)


@BOTH
def test_reference_lies_among_our_seeds(measure: str, shared: Path) -> None:
    seeds, theirs = ours(measure)[:, WINDOW:], reference(shared, measure)[WINDOW:]
    off = windows(theirs) - windows(seeds).mean(0)
    allowed = MULTIPLE * noise(seeds) * np.sqrt(1 + 1 / len(SEEDS))
    assert (np.abs(off) <= allowed).all(), (off / allowed).round(2)


@BOTH
def test_every_window_is_near(measure: str, shared: Path) -> None:
    off = windows(ours(measure)).mean(0) / windows(reference(shared, measure)) - 1
    assert abs(off[0]) <= NEAR_AT_FIRST and np.abs(off[LATER]).max() <= NEAR, off.round(4)


@BOTH
def test_each_seed_takes_the_same_course(measure: str, shared: Path) -> None:
    """Fast at first, slowly after: over all windows each seed goes with the reference, as one line does with another."""
    theirs = windows(reference(shared, measure))
    for seed in windows(ours(measure)):
        assert np.corrcoef(seed[LATER], theirs[LATER])[0, 1] > 0.95


def test_the_comparison_can_fail(shared: Path) -> None:
    """Curves that a wrong program would give: a discriminator that learns nothing, a generator that learns at half the speed."""
    for measure, changed in (
        ("discriminator_loss", lambda curve: np.maximum(curve, 0.385)),
        ("generator_loss", lambda curve: np.repeat(curve, 2, axis=-1)[..., :STEPS]),
    ):
        theirs = windows(reference(shared, measure))
        wrong = windows(changed(reference(shared, measure)))
        assert np.abs(wrong / theirs - 1)[LATER].max() > NEAR


@pytest.mark.slow
def test_first_steps_follow_the_reference(shared: Path) -> None:
    """Forty steps, in windows of ten: the generator falls from 10.3 to 9.3, the discriminator from 0.6 to 0.28.

    So early only the initial weights differ: 0.15 nats for the generator (its first hundred steps fall by 0.06 a step), and
    for the discriminator 0.05 in the first window, which the drawn last layer decides, then 0.025.
    """
    folder = shared / "reference" / "tf"
    curve = google_curve.run(folder, seed=1, steps=40, precision="fp32", diagnose=False)
    for measure, bounds in {"generator_loss": [0.15] * 4, "discriminator_loss": [0.05, 0.025, 0.025, 0.025]}.items():
        found = np.array([row[measure] for row in curve]).reshape(4, 10).mean(1)
        expected = reference(shared, measure)[:40].reshape(4, 10).mean(1)
        assert (np.abs(found - expected) <= bounds).all(), (measure, found, expected)
        assert found[-1] < found[0]
