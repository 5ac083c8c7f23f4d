"""The pair head's first weights: a linear model of its features, fitted while the encoder is still as it was
pre-trained.

Fine-tuning from a head that was drawn at random bends the encoder to that head before it is of any use, and forgets
features that a linear model can read at once; linear probing first, then fine-tuning, keeps them (Kumar et al., 2022).
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.errors import Diverged
from electra_trainer.finetuning.task import ReadRows, Row
from electra_trainer.finetuning.texts.pair_head import PairHead
from electra_trainer.randomness import drawn

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
PENALTIES = (10.0, 100.0, 1e3, 1e4)
"""Weights of the squared norm (of its half, for classes) beside the sum of the losses, tried by cross-validation."""
FOLDS = 3
MOST_ROWS = 20_000
"""Rows that are fitted, a fixed sample of larger sets: more move a thousand weights little, and take minutes."""


def start_from_probe(head: PairHead, rows: Sequence[Row], read: ReadRows) -> None:
    """Fit the linear layer of `head` to the training rows: logistic regression for classes, ridge regression for
    numbers.

    Where the rows have one answer only, or are very few, it stays as it was drawn. The same for the same rows and
    number of threads.

    Raises:
        Diverged: a feature is NaN or infinite.
    """
    chosen = np.sort(drawn("rows of a probe", count=MOST_ROWS, total=len(rows)))
    rows = [rows[index] for index in chosen]
    answers = np.array([row.target for row in rows])
    if len(np.unique(answers)) < 2 or len(rows) < 2 * FOLDS:
        return
    matrix = np.zeros((len(rows), head.dense.in_features), dtype=np.float32)
    for indices, states, batch in read(rows):
        matrix[indices] = head.features(states, batch).float().cpu().numpy()
    if not np.isfinite(matrix).all():
        raise Diverged("the encoder gives the pair head features that are NaN or infinite.")
    classes = head.dense.out_features if answers.dtype.kind == "i" else 0
    weight, bias = fitted(matrix, answers, np.array([row.example for row in rows]), classes=classes)
    head.dense.weight.copy_(torch.from_numpy(weight))
    head.dense.bias.copy_(torch.from_numpy(bias))


def folds(answers: NDArray[np.generic], examples: Indices, *, classes: int) -> Indices:
    """The fold in which each row is held out; -1: in none, since fewer than `FOLDS` examples have its class.

    Drawn by example: a pair that stands there in both orders is never fitted in one and scored in the other.
    """
    fold = np.full(len(answers), -1)
    for mine in (
        [np.flatnonzero(answers == one) for one in np.unique(answers)] if classes else [np.arange(len(answers))]
    ):
        names = np.unique(examples[mine])
        if len(names) >= FOLDS:
            of = np.empty(len(names), dtype=np.int64)
            of[drawn("folds of a probe", count=len(names), total=len(names))] = np.arange(len(names)) % FOLDS
            fold[mine] = of[np.searchsorted(names, examples[mine])]
    return fold


def fitted(
    matrix: NDArray[np.float32], answers: NDArray[np.generic], examples: Indices, *, classes: int
) -> tuple[Array, Array]:
    """Weights [outputs, features] and biases [outputs] of a linear layer on the features as they are.

    Args:
        examples: of which example each row is.
        classes: how many there are, `answers` being their numbers; 0: `answers` are numbers to be predicted.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV, PredefinedSplit
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    scaler = StandardScaler().fit(matrix)
    scaled = scaler.transform(matrix)
    model: Any = LogisticRegression(max_iter=300) if classes else Ridge()
    search = {"C": [1 / penalty for penalty in PENALTIES]} if classes else {"alpha": list(PENALTIES)}
    scoring: Any = _log_likelihood if classes else "neg_mean_squared_error"
    fold = folds(answers, examples, classes=classes)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is where training begins
        if fold.max() >= 0:
            model = (
                GridSearchCV(model, search, cv=PredefinedSplit(fold), scoring=scoring)
                .fit(scaled, answers)
                .best_estimator_
            )
        else:  # no class has enough examples
            model.set_params(C=1 / PENALTIES[1]).fit(scaled, answers)
    weight, bias = np.atleast_2d(model.coef_) / scaler.scale_, np.atleast_1d(model.intercept_)
    bias = bias - weight @ scaler.mean_
    if not classes:
        return weight, bias
    if len(weight) == 1:  # of two classes only the second has a score
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    all_weights, all_biases = np.zeros((classes, matrix.shape[1])), np.full(classes, bias.min())
    all_weights[model.classes_], all_biases[model.classes_] = weight, bias
    return all_weights, all_biases


def _log_likelihood(model: Any, matrix: Array, answers: NDArray[np.generic]) -> float:
    """The mean over rows; unlike scikit-learn's, also where no row of some class is held out."""
    said = model.predict_log_proba(matrix)
    return float(said[np.arange(len(answers)), np.searchsorted(model.classes_, answers)].mean())
