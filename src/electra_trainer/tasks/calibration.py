"""One temperature for the probabilities of a classifier: its head's outputs are divided by it (Guo et al., 2017).

It is fitted by log loss on rows that the network has not learned from. The probability of the true class to fit is
(N + 1) / (N + K) of N rows and K classes, Laplace's rule of succession, so that a few rows that are all right do not
make the model certain (Platt, 1999). Shape letters: N distributions over K classes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.tasks.examples import Prediction

Shares = NDArray[np.float64]
_LEAST, _RANGE = float(np.finfo(np.float32).tiny), (-3.0, 5.0)
"""Smallest probability that a network gives, and the logarithms of the temperatures to choose from."""


def at_temperature(shares_NK: Shares, temperature: float) -> Shares:
    """The distributions after a division of their logits."""
    from scipy import special

    found: Shares = special.softmax(np.log(np.maximum(shares_NK, _LEAST)) / temperature, axis=-1)
    return found


def fitted_temperature(shares_NK: Shares, truth_N: NDArray[np.int64]) -> float:
    """The temperature with the least log loss; 1 without rows.

    Args:
        shares_NK: distributions at temperature 1.
        truth_N: number of the true class.
    """
    from scipy import optimize, special

    rows, classes = shares_NK.shape
    if not rows:
        return 1.0
    logits_NK = np.log(np.maximum(shares_NK, _LEAST))
    target_NK = np.full((rows, classes), 1 / (rows + classes))
    target_NK[np.arange(rows), truth_N] *= rows + 1

    def loss(logarithm: float) -> float:
        return -float((target_NK * special.log_softmax(logits_NK / np.exp(logarithm), axis=-1)).sum())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=_RANGE, method="bounded").x))


def calibrated(
    task: Any,
    examples: Sequence[Any],
    predictions: Sequence[Prediction],
    *,
    fold_E: NDArray[np.int64],
    fitted: tuple[float, int] | None,
    learned: bool = False,
) -> tuple[list[Prediction], ClassReport, tuple[float, int] | None]:
    """Predictions at a temperature, their report, and the temperature with its number of rows.

    Args:
        task: gives `shares`, `truths`, `with_shares` and `report`.
        examples, predictions: of one split; at temperature 1.
        fold_E: part of each example, from 0.
        fitted: the temperature, and how many other rows it was fitted on; None: it is fitted on these, and calibration
            error and log loss of the report are out of fold.
        learned: the network may have learned from the rows to fit on: everything stays as it is, but no probability is
            known from which on a share is right.
    """
    shares_NK, raw = task.shares(predictions), task.report(examples, predictions)
    if learned:
        return [*predictions], replace(raw, certain=()), None
    truth_N, fold_N = task.truths(examples), np.repeat(fold_E, len(shares_NK) // len(fold_E))
    temperature, rows = fitted or (fitted_temperature(shares_NK, truth_N), len(examples))
    at_NK = at_temperature(shares_NK, temperature)
    judged_NK = at_NK.copy()
    for mine_N in [fold_N == fold for fold in np.unique(fold_E)] if fitted is None else ():
        others = fitted_temperature(shares_NK[~mine_N], truth_N[~mine_N])
        judged_NK[mine_N] = at_temperature(shares_NK[mine_N], others)
    found, judged = task.with_shares(at_NK), task.report(examples, task.with_shares(judged_NK))
    changes: dict[str, Any] = {name: getattr(judged, name) for name in ("calibration_error", "log_loss", "certain")}
    changes |= {"temperature": temperature, "fitted_rows": rows, "before": (raw.calibration_error, raw.log_loss)}
    return found, replace(task.report(examples, found), **changes), (temperature, rows)
