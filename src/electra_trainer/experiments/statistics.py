"""Statistics over seeds and over rows: spread, paired differences and their correction. No torch here.

Of pre-training the unit of replication is the seed. Two arms with one seed share their initial weights where names and
shapes agree, their order of data and their masks, so what is tested is the difference within a seed.

A score on rows with answers has the row as its unit (`Sample`): its interval says what other rows of the kind would
give. A mean with its standard error where values of one group (positions of one row) are not independent.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_EQUAL = 1e-12
"""Relative: differences that agree so far differ by rounding only."""
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A metric over the seeds."""

    n: int
    median: float
    mean: float
    sd: float | None
    """Sample standard deviation; None for one seed."""
    best: float
    by_seed: dict[int, float]

    @property
    def best_seed(self) -> int:
        """The seed with the best value, the smallest of equals."""
        return min(seed for seed, value in self.by_seed.items() if value == self.best)


def spread(by_seed: Mapping[int, float], *, lower_is_better: bool = False) -> Spread:
    """Spread of at least one seed."""
    values = list(by_seed.values())
    return Spread(
        n=len(values),
        median=statistics.median(values),
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        best=min(values) if lower_is_better else max(values),
        by_seed=dict(by_seed),
    )


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The differences of two arms over the seeds that both have, arm minus reference."""

    n: int
    mean: float
    sd: float | None = None
    t_interval: tuple[float, float] | None = None
    """95 %, Student's t."""
    p: float | None = None
    """Two-sided, paired t; none where all differences are equal."""


def compare_paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Paired | None:
    """Differences over the seeds that both arms have; None where they share none.

    Args:
        values: seed -> metric of an arm.
        reference: the same of the reference arm.
    """
    from scipy import stats

    if not (seeds := sorted(values.keys() & reference.keys())):
        return None
    differences = np.array([values[seed] - reference[seed] for seed in seeds])
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Paired(n=n, mean=mean)
    sd = float(differences.std(ddof=1))
    scale = max(max(abs(values[seed]), abs(reference[seed])) for seed in seeds)
    if sd <= _EQUAL * scale:
        return Paired(n=n, mean=mean, sd=0.0)
    test = stats.ttest_1samp(differences, 0.0)
    low, high = map(float, test.confidence_interval(0.95))
    return Paired(n=n, mean=mean, sd=sd, t_interval=(low, high), p=float(test.pvalue))


def holm(p_values: Mapping[K, float | None]) -> dict[K, float]:
    """Holm's step-down correction over one family of contrasts: the adjusted p-value of each that has one.

    Those without one count as well: the family is what was declared, not what was finished.
    """
    known = {name: p for name, p in p_values.items() if p is not None}
    names = sorted(known, key=known.__getitem__)
    each = (min(1.0, (len(p_values) - rank) * known[name]) for rank, name in enumerate(names))
    return dict(zip(names, accumulate(each, max), strict=True))


_NORMAL_95 = 1.959964


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean, its standard error and the 95 % interval mean ± 1.96 standard errors."""

    value: float
    standard_error: float
    low: float
    high: float


def clustered_mean(values_K: NDArray[np.floating | np.bool_ | np.integer], cluster_K: NDArray[np.integer]) -> Estimate:
    """Mean of `values_K` with the standard error that holds when only whole clusters are independent.

    SE² = C/(C-1) · Σ over clusters of (sum of the cluster's deviations from the mean)² / K², C the number of clusters:
    the usual standard error where each cluster has one value. Not a number with fewer than two clusters.

    Args:
        values_K: the values, at least one.
        cluster_K: the cluster of each, integers of at least 0.
    """
    values = np.asarray(values_K, dtype=np.float64)
    mean = float(values.mean())
    _, index_K = np.unique(cluster_K, return_inverse=True)
    deviation_C = np.bincount(index_K, weights=values - mean)
    clusters = len(deviation_C)
    squared = float((deviation_C**2).sum()) * clusters / (clusters - 1) if clusters > 1 else float("nan")
    error = float(np.sqrt(squared)) / len(values)
    return Estimate(value=mean, standard_error=error, low=mean - _NORMAL_95 * error, high=mean + _NORMAL_95 * error)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A score as the mean of values: 1 or 0 for each row that is right or wrong, or as `jackknife` has them."""

    rows: int
    values: tuple[float, ...]


GROUPS = 50
"""Most groups of rows that are left out in turn."""


def jackknife(score: Callable[[Sequence[int]], float], rows: int) -> Sample:
    """The score of `rows` rows as pseudo-values g · score - (g - 1) · (score without a group) of g random groups, moved
    so that their mean is the score. Their spread gives the standard error of any smooth score (Tukey, 1958). The groups
    depend on the number of rows alone, so the values of two predictors are paired.

    Args:
        score: the score of the rows with these numbers.
    """
    whole, every = score(range(rows)), np.random.default_rng(0).permutation(rows)
    groups = np.array_split(every, min(rows, GROUPS))
    if len(groups) < 2:
        return Sample(rows=rows, values=(whole,))
    left = np.array([score(np.setdiff1d(every, group).tolist()) for group in groups])
    return Sample(rows=rows, values=tuple((whole + (len(groups) - 1) * (left.mean() - left)).tolist()))


def over_rows(samples: Sequence[Sample]) -> tuple[float, float]:
    """95 % interval of the mean over seeds for other rows: Wilson's of shares, else Student's."""
    from scipy import stats

    mean_N = np.mean([one.values for one in samples], axis=0)
    n, mean = len(mean_N), float(mean_N.mean())
    if {value for one in samples for value in one.values} <= {0.0, 1.0}:
        share = stats.binomtest(round(n * mean), n).proportion_ci(method="wilson")
        return float(share.low), float(share.high)
    half = float(stats.t.ppf(0.975, n - 1) * stats.sem(mean_N)) if n > 1 else np.inf
    return max(-1.0, mean - half), min(1.0, mean + half)


def difference_over_rows(values: Mapping[int, Sample], reference: Mapping[int, Sample]) -> tuple[float, float] | None:
    """95 % interval of the mean difference, over the seeds that both have, for other rows and other seeds. None: they
    share no seed or have other rows.

    The variance is that of the rows' differences, each the mean over seeds, and that between seeds. One row that
    differs is added: rows on which the two agree do not prove that they agree on all.
    """
    from scipy import stats

    pairs = [(values[seed], reference[seed]) for seed in values.keys() & reference.keys()]
    shapes = {(len(one.values), one.rows) for pair in pairs for one in pair}
    if len(shapes) != 1:
        return None
    if (n := max(shapes)[0]) < 2:
        return -1.0, 1.0
    each_SN = np.array([np.subtract(one.values, other.values) for one, other in pairs])
    variance = each_SN.mean(0).var(ddof=1) / n + 1 / max(shapes)[1] ** 2
    variance += each_SN.mean(1).var(ddof=1) / len(pairs) if len(pairs) > 1 else 0.0
    mean, half = float(each_SN.mean()), float(stats.t.ppf(0.975, n - 1) * np.sqrt(variance))
    return mean - half, mean + half
