"""Statistics over seeds: spread of a row, paired differences, and the smallest effect that such a test can find. No
torch here.

The unit of replication is the pre-training seed. Two arms with one seed share their initial weights where names and
shapes agree, their order of data and their masks, so what is tested is the difference within a seed.

A mean with its standard error where values of one group (positions of one row) are not independent.
"""

import bisect
import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
POWER = 0.80
_ALPHA = 1 - CONFIDENCE
_RESAMPLES = 9999
_LEAST_FOR_BCA = 5
"""Seeds from which the bias correction and the jackknife of BCa have something to work on."""
_MOST_SEEDS = 10_000
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
    worst: float
    by_seed: dict[int, float]

    @property
    def best_seed(self) -> int:
        """The seed with the best value, the smallest of equals."""
        return min(seed for seed, value in self.by_seed.items() if value == self.best)

    @property
    def median_seed(self) -> int:
        """The seed in the middle; of an even number the lower of the two."""
        ordered = sorted(self.by_seed, key=lambda seed: (self.by_seed[seed], seed))
        return ordered[(len(ordered) - 1) // 2]


def spread(by_seed: Mapping[int, float], *, lower_is_better: bool = False) -> Spread:
    """Spread of at least one seed."""
    values = list(by_seed.values())
    best, worst = (min, max) if lower_is_better else (max, min)
    return Spread(
        n=len(values),
        median=statistics.median(values),
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        best=best(values),
        worst=worst(values),
        by_seed=dict(by_seed),
    )


def spread_of(values: Sequence[float]) -> Spread | None:
    """Spread of values without seeds, or None if there are none."""
    return spread(dict(enumerate(values, start=1))) if values else None


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The differences of two arms over the seeds that both have, arm minus reference."""

    n: int
    mean: float
    sd: float | None = None
    interval: tuple[float, float] | None = None
    """95 %, bootstrap."""
    interval_method: str | None = None
    """`BCa`, or `percentile` where there are too few seeds for it."""
    t_interval: tuple[float, float] | None = None
    """95 %, Student's t."""
    p: float | None = None
    """Two-sided, paired t."""
    detectable: float | None = None
    """The smallest true difference that this many seeds with this SD would find (p < 0.05) in 80 % of experiments."""
    seeds_needed: int | None = None
    """Seeds that would find the observed difference in 80 % of experiments, were it the true one; None above 10,000."""
    note: str | None = None
    """Why something is not there, or how it must be read."""


def compare_paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Paired | None:
    """Differences over the seeds that both arms have; None where they share none.

    Args:
        values: seed -> metric of an arm.
        reference: the same of the reference arm.
    """
    from scipy import stats

    seeds = sorted(values.keys() & reference.keys())
    if not seeds:
        return None
    differences = np.array([values[seed] - reference[seed] for seed in seeds])
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return Paired(n=n, mean=mean, note="needs at least 2 seeds")
    sd = float(differences.std(ddof=1))
    scale = max(max(abs(values[seed]), abs(reference[seed])) for seed in seeds)
    if sd <= _EQUAL * scale:
        return Paired(n=n, mean=mean, sd=0.0, note="all differences are equal: there is no spread to judge them by")
    interval, method = bootstrap_interval(differences)
    half = float(stats.t.ppf(1 - _ALPHA / 2, n - 1)) * sd / math.sqrt(n)
    return Paired(
        n=n,
        mean=mean,
        sd=sd,
        interval=interval,
        interval_method=method,
        t_interval=(mean - half, mean + half),
        p=float(stats.ttest_1samp(differences, 0.0).pvalue),
        detectable=smallest_detectable(n, sd),
        seeds_needed=seeds_needed(mean, sd),
        note=None if n >= 8 else "bootstrap intervals of fewer than 8 seeds are too narrow: read Student's beside them",
    )


def bootstrap_interval(differences: np.ndarray) -> tuple[tuple[float, float], str]:
    """95 % bootstrap interval of the mean, and its method: BCa from 5 seeds on, percentile below and where BCa is
    undefined.
    """
    from scipy import stats

    for method, name in (("BCa", "BCa"), ("percentile", "percentile")):
        if name == "BCa" and len(differences) < _LEAST_FOR_BCA:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a degenerate distribution: the result is nan, and asked for below
            found = stats.bootstrap(
                (differences,),
                np.mean,
                n_resamples=_RESAMPLES,
                confidence_level=CONFIDENCE,
                method=method,
                vectorized=True,
                axis=-1,
                rng=np.random.default_rng(0),
            ).confidence_interval
        if np.isfinite([found.low, found.high]).all():
            return (float(found.low), float(found.high)), name
    raise AssertionError("a percentile interval of finite values is finite")


def power(difference: float, sd: float, n: int) -> float:
    """Chance that the two-sided paired t-test over `n` seeds finds a true difference at p < 0.05."""
    from scipy import stats

    critical = float(stats.t.ppf(1 - _ALPHA / 2, n - 1))
    shift = abs(difference) / sd * math.sqrt(n)
    wrong_way = float(stats.nct.cdf(-critical, n - 1, shift))  # nan, instead of nothing, where the shift is large
    return float(stats.nct.sf(critical, n - 1, shift)) + (wrong_way if math.isfinite(wrong_way) else 0.0)


def smallest_detectable(n: int, sd: float) -> float:
    """The difference that the paired t-test over `n` seeds finds with 80 % power."""
    from scipy import optimize

    high = 1.0
    while power(high, 1.0, n) < POWER:
        high *= 2
    return sd * float(optimize.brentq(lambda effect: power(effect, 1.0, n) - POWER, 0.0, high))


def seeds_needed(difference: float, sd: float) -> int | None:
    """The fewest seeds that find `difference` with 80 % power; None above 10,000."""
    if difference == 0 or power(difference, sd, _MOST_SEEDS) < POWER:
        return None
    return bisect.bisect_left(range(_MOST_SEEDS), POWER, lo=2, key=lambda n: power(difference, sd, n))


def holm(p_values: Mapping[K, float | None]) -> dict[K, float]:
    """Holm's step-down correction over one family of contrasts: the adjusted p-value of each that has one.

    Those without one count as well: the family is what was declared, not what was finished.
    """
    known = {name: p for name, p in p_values.items() if p is not None}
    adjusted: dict[K, float] = {}
    so_far = 0.0
    for rank, name in enumerate(sorted(known, key=lambda name: known[name])):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * known[name]))
        adjusted[name] = so_far
    return adjusted


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


Q = "q"
"""Name of the summary score: the mean of four z-scores of frozen encoders, for experiments that take minutes: tags,
similarity of sentences beyond that of random words, sentiment, minimal pairs. Each is centred on the mean of the
reference's seeds and divided by their standard deviation: Q is in units of the noise between seeds, and the reference
has 0.
"""
Q_PROBES = {"pos", "sentences", "minimal-pairs"}
"""Probes of its four parts."""
_GRAMMAR = ("minimal-pairs/discriminator", "minimal-pairs/pseudo-likelihood", "minimal-pairs/encoder")
"""The score of an arm is the first that its networks have."""
BySeed = dict[int, float]


def composite(arms: Mapping[str, Mapping[str, BySeed]], *, reference: str) -> dict[str, BySeed]:
    """Q of every arm and seed that has all four; nothing where the reference has fewer than two such seeds, or no
    spread.

    Args:
        arms: arm -> metric -> seed -> value.
    """
    parts = {arm: _parts(values) for arm, values in arms.items()}
    base = list(parts[reference].values())
    if len(base) < 2:
        return {}
    scales = [(statistics.fmean(column), statistics.stdev(column)) for column in zip(*base, strict=True)]
    if not all(spread for _, spread in scales):
        return {}
    return {
        arm: {
            seed: statistics.fmean(
                (value - centre) / spread for value, (centre, spread) in zip(values, scales, strict=True)
            )
            for seed, values in by_seed.items()
        }
        for arm, by_seed in parts.items()
        if by_seed
    }


def _parts(values: Mapping[str, BySeed]) -> dict[int, tuple[float, ...]]:
    """Tags, similarity less that of random words, sentiment, minimal pairs: by seed, of seeds that have all."""
    grammar = next((values[name] for name in _GRAMMAR if name in values), {})
    columns = [values.get(name, {}) for name in ("pos/accuracy", "sentences/stsb", "sentences/sst2")] + [grammar]
    random = values.get("sentences/stsb_random", {})
    shared = set(random).intersection(*columns)
    return {
        seed: (columns[0][seed], columns[1][seed] - random[seed], columns[2][seed], grammar[seed])
        for seed in sorted(shared)
    }
