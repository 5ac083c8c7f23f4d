"""Metrics of whole texts, by scikit-learn and SciPy; a correlation with something constant is 0, not undefined."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

CLASSIFICATION = ("accuracy", "matthews", "f1", "macro_f1")
REGRESSION = ("spearman", "pearson")


def classification_scores(
    truth: Sequence[int], said: Sequence[int], *, metrics: Sequence[str], labels: int
) -> dict[str, float]:
    """Metrics of class numbers.

    Args:
        truth, said: class numbers from 0 on.
        metrics: from `CLASSIFICATION`. `f1` is that of class 1 (GLUE's, for two classes); `macro_f1` the mean over classes that
            occur in either.
        labels: how many classes there are.
    """
    from sklearn import metrics as measured

    found: dict[str, float] = {}
    for metric in metrics:
        if metric == "accuracy":
            value = float(np.mean(np.asarray(truth) == np.asarray(said)))
        elif metric == "matthews":
            value = measured.matthews_corrcoef(truth, said)
        elif metric == "f1":
            value = measured.f1_score(truth, said, labels=[1], average="macro", zero_division=0.0)
        elif metric == "macro_f1":
            seen = sorted(set(truth) | set(said))
            value = measured.f1_score(truth, said, labels=seen, average="macro", zero_division=0.0)
        else:
            raise ValueError(f"{metric}: not one of {CLASSIFICATION}")
        found[metric] = float(value)
    return found


def regression_scores(truth: Sequence[float], said: Sequence[float], *, metrics: Sequence[str]) -> dict[str, float]:
    """Rank (`spearman`) and linear (`pearson`) correlation."""
    from scipy import stats

    constant = len(set(truth)) < 2 or len(set(said)) < 2
    found: dict[str, float] = {}
    for metric in metrics:
        if metric not in REGRESSION:
            raise ValueError(f"{metric}: not one of {REGRESSION}")
        measure = stats.spearmanr if metric == "spearman" else stats.pearsonr
        found[metric] = 0.0 if constant else float(measure(truth, said).statistic)
    return found
