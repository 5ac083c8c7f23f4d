"""Metrics of classes and of numbers: scikit-learn's and SciPy's. A correlation with a constant is 0, not undefined."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def classification_scores(truth: Sequence[int], said: Sequence[int], *, metrics: Sequence[str]) -> dict[str, float]:
    """Metrics of class numbers.

    Args:
        truth, said: class numbers from 0 on.
        metrics: `accuracy`, `matthews`, `f1`, `macro_f1`. `f1` is that of class 1 (GLUE's, for two classes); `macro_f1`
            the mean over classes that occur in either.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    def f1(labels: list[int]) -> Any:
        return f1_score(truth, said, labels=labels, average="macro", zero_division=0.0)

    measures: dict[str, Callable[[], Any]] = {
        "accuracy": lambda: np.mean(np.asarray(truth) == np.asarray(said)),
        "matthews": lambda: matthews_corrcoef(truth, said),
        "f1": lambda: f1([1]),
        "macro_f1": lambda: f1(sorted({*truth, *said})),
    }
    return _measured(measures, metrics)


def regression_scores(truth: Sequence[float], said: Sequence[float], *, metrics: Sequence[str]) -> dict[str, float]:
    """Rank (`spearman`) and linear (`pearson`) correlation."""
    from scipy import stats

    constant = len(set(truth)) < 2 or len(set(said)) < 2
    measures: dict[str, Callable[[], Any]] = {
        "spearman": lambda: 0.0 if constant else stats.spearmanr(truth, said).statistic,
        "pearson": lambda: 0.0 if constant else stats.pearsonr(truth, said).statistic,
    }
    return _measured(measures, metrics)


def _measured(measures: Mapping[str, Callable[[], Any]], metrics: Sequence[str]) -> dict[str, float]:
    for metric in metrics:
        if metric not in measures:
            raise ValueError(f"{metric}: not one of {tuple(measures)}")
    return {metric: float(measures[metric]()) for metric in metrics}
