"""A mean with its standard error where values of one group (positions of one row) are not independent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    SE² = C/(C-1) · Σ over clusters of (sum of the cluster's deviations from the mean)² / K², C the number of clusters: the usual
    standard error where each cluster has one value. Not a number with fewer than two clusters.

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
