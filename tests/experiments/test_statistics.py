"""Intervals and tests, against hand calculation and scipy."""

import math

import pytest
from scipy import stats

from electra_trainer.experiments.statistics import compare_paired, holm, spread

ELECTRA = {1: 0.80, 2: 0.82, 3: 0.81, 4: 0.85}
MLM = {1: 0.78, 2: 0.81, 3: 0.78, 4: 0.81, 9: 0.1}


def test_groups_by_hand() -> None:
    group, one = spread({1: 1.0, 2: 2.0, 5: 6.0}), spread({1: 5.0})
    assert one.sd is None
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


def test_too_few_or_equal_differences_say_so() -> None:
    assert compare_paired({1: 2.0}, {2: 1.0}) is None
    one = compare_paired({1: 2.0}, {1: 1.5})
    assert one is not None and (one.n, one.mean) == (1, 0.5)
    assert one.sd is one.t_interval is one.p is None
    # 0.1 + 0.2 and 0.3 differ by rounding: no spread
    same = compare_paired({1: 0.1 + 0.2, 2: 0.7, 3: 1.7}, {1: 0.3, 2: 0.7, 3: 1.7})
    assert same is not None and same.p is None and same.t_interval is None and same.sd == 0


def test_holm_by_hand() -> None:
    """0.01 x 4, 0.02 x 3, 0.03 x 2 -> raised to 0.06, 0.5 x 1; none above 1, none below the one before it."""
    assert holm({"a": 0.03, "b": 0.01, "c": 0.5, "d": 0.02}) == pytest.approx(
        {"b": 0.04, "d": 0.06, "a": 0.06, "c": 0.5}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}
    assert holm({}) == {}
    declared = {"a": 0.02, "not measured": None, "one seed": None}
    assert holm(declared) == pytest.approx({"a": 0.06})
