"""Intervals, tests, power: against hand calculation, scipy, and brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from electra_trainer.experiments.statistics import (
    bootstrap_interval,
    compare_paired,
    holm,
    power,
    seeds_needed,
    smallest_detectable,
    spread_of,
)

ELECTRA = {1: 0.80, 2: 0.82, 3: 0.81, 4: 0.85}
MLM = {1: 0.78, 2: 0.81, 3: 0.78, 4: 0.81, 9: 0.1}


def test_groups_by_hand() -> None:
    group, one = spread_of([1.0, 2.0, 6.0]), spread_of([5.0])
    assert group is not None and one is not None and one.sd is None
    assert (group.n, group.mean) == (3, 3.0)
    assert group.sd == pytest.approx(math.sqrt(7))  # (4 + 1 + 9) / 2


def test_paired_by_hand() -> None:
    """Differences -0.02, -0.01, -0.03, -0.04: seed 9 has no partner. t = -0.025 / (0.0129099 / 2), 3 degrees of freedom."""
    found = compare_paired(MLM, ELECTRA)
    assert found is not None and found.sd is not None and found.t_interval is not None and found.p is not None
    assert found.n == 4
    assert found.mean == pytest.approx(-0.025)
    assert found.sd == pytest.approx(0.012909944)
    assert found.t_interval == pytest.approx(
        (-0.025 - 3.182446 * 0.006454972, -0.025 + 3.182446 * 0.006454972), rel=1e-5
    )
    assert found.p == pytest.approx(stats.ttest_rel([MLM[s] for s in ELECTRA], list(ELECTRA.values())).pvalue)
    assert found.interval_method == "percentile"
    assert found.note is not None and "too narrow" in found.note


def test_percentile_interval_against_all_resamples() -> None:
    """4 differences have 256 resamples: the percentiles of their means, computed one by one."""
    differences = np.array([-0.02, -0.01, -0.03, -0.04])
    means = [np.mean(pick) for pick in itertools.product(differences, repeat=4)]
    (low, high), method = bootstrap_interval(differences)
    assert method == "percentile"
    assert low == pytest.approx(np.percentile(means, 2.5), abs=1e-3)
    assert high == pytest.approx(np.percentile(means, 97.5), abs=1e-3)


def test_bca_against_brute_force() -> None:
    """Eight skewed differences: Efron's formula with the bias and the acceleration written out, over resamples of our own."""
    differences = np.array([0.1, 0.2, 0.15, 0.9, 0.3, 0.12, 0.5, 0.05])
    rng = np.random.default_rng(7)
    means = np.sort(rng.choice(differences, (200_000, 8)).mean(1))
    mean = differences.mean()
    bias = stats.norm.ppf((np.sum(means < mean) + np.sum(means <= mean)) / (2 * len(means)))
    left_out = np.array([np.delete(differences, i).mean() for i in range(8)])
    away = left_out.mean() - left_out
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    ends = []
    for share in (0.025, 0.975):
        z = bias + stats.norm.ppf(share)
        ends.append(np.quantile(means, stats.norm.cdf(bias + z / (1 - acceleration * z))))
    interval, method = bootstrap_interval(differences)
    assert method == "BCa"
    assert interval == pytest.approx(ends, abs=0.01)
    percentile = np.quantile(means, [0.025, 0.975])
    assert abs(interval[1] - percentile[1]) > 0.02  # it is not the percentile interval


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_power_against_simulation(n: int) -> None:
    rng = np.random.default_rng(n)
    draws = rng.normal(1.5, 1.0, (40_000, n))
    found = (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).mean()
    assert power(1.5, 1.0, n) == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize(("n", "sd"), [(2, 1.0), (3, 0.3), (5, 0.02), (30, 4.0)])
def test_smallest_detectable_has_80_percent_power(n: int, sd: float) -> None:
    least = smallest_detectable(n, sd)
    assert power(least, sd, n) == pytest.approx(0.8, abs=1e-6)
    assert smallest_detectable(n + 1, sd) < least


def test_seeds_needed_is_the_first_that_suffices() -> None:
    for difference in (0.3, 0.5, 1.0, 2.0, 10.0):
        needed = seeds_needed(difference, 1.0)
        assert needed == next(n for n in range(2, 10_000) if power(difference, 1.0, n) >= 0.8)
    assert seeds_needed(0.5, 1.0) == 34  # Cohen's table for d = 0.5, paired, two-sided
    assert seeds_needed(0.0, 1.0) is None and seeds_needed(1e-4, 1.0) is None
    assert seeds_needed(1e9, 1e-9) == 2


def test_too_few_or_equal_differences_say_so() -> None:
    assert compare_paired({1: 2.0}, {2: 1.0}) is None
    one = compare_paired({1: 2.0}, {1: 1.5})
    assert one is not None and (one.n, one.mean) == (1, 0.5) and one.note == "needs at least 2 seeds"
    assert one.sd is one.interval is one.p is one.detectable is one.seeds_needed is None
    # 0.1 + 0.2 and 0.3 differ by rounding: no spread
    same = compare_paired({1: 0.1 + 0.2, 2: 0.7, 3: 1.7}, {1: 0.3, 2: 0.7, 3: 1.7})
    assert same is not None and same.p is None and same.interval is None and "equal" in str(same.note)


def test_two_seeds_give_finite_numbers() -> None:
    found = compare_paired({1: 0.5, 2: 0.6}, {1: 0.4, 2: 0.45})
    assert found is not None and found.interval is not None and found.t_interval is not None
    assert found.interval == pytest.approx((0.1, 0.15))
    assert found.t_interval[0] < 0 < found.t_interval[1]  # two seeds that agree are no evidence yet


def test_holm_by_hand() -> None:
    """0.01 x 4, 0.02 x 3, 0.03 x 2 -> raised to 0.06, 0.5 x 1; none above 1, none below the one before it."""
    assert holm({"a": 0.03, "b": 0.01, "c": 0.5, "d": 0.02}) == pytest.approx(
        {"b": 0.04, "d": 0.06, "a": 0.06, "c": 0.5}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}
    declared = {"a": 0.02, "not measured": None, "one seed": None}
    assert holm(declared) == pytest.approx({"a": 0.06})
