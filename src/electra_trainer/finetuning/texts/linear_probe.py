"""The pair head's first weights: a linear model of its features, fitted while the encoder is still as it was pre-trained.

Fine-tuning from a head that was drawn at random bends the encoder to that head before it is of any use, and forgets features that a
linear model can read at once; linear probing first, then fine-tuning, keeps them (Kumar et al., 2022).
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.finetuning.task import ReadRows, Row
from electra_trainer.finetuning.texts.pair_head import PairHead
from electra_trainer.randomness import drawn

Array = NDArray[np.float64]
PENALTIES = (10.0, 100.0, 1e3, 1e4)
"""Weights of the squared norm beside the sum of the losses, tried by cross-validation."""
FOLDS = 3
MOST_ROWS = 20_000
"""Rows that are fitted, a fixed sample of larger sets: more move a thousand weights little, and take minutes."""


def start_from_probe(head: PairHead, rows: Sequence[Row], read: ReadRows) -> None:
    """Fit the linear layer of `head` to the training rows: logistic regression for classes, ridge regression for numbers.

    Where the rows have one answer only, or are very few, it stays as it was drawn. The same for the same rows and number of threads.
    """
    chosen = np.sort(drawn("rows of a probe", count=MOST_ROWS, total=len(rows)))
    rows = [rows[index] for index in chosen]
    answers = np.array([row.target for row in rows])
    if len(np.unique(answers)) < 2 or len(rows) < 2 * FOLDS:
        return
    matrix = np.zeros((len(rows), head.dense.in_features), dtype=np.float32)
    for indices, states, batch in read(rows):
        matrix[indices] = head.features(states, batch).float().cpu().numpy()
    weight, bias = fitted(matrix, answers, classes=head.dense.out_features if answers.dtype.kind == "i" else 0)
    head.dense.weight.copy_(torch.from_numpy(weight))
    head.dense.bias.copy_(torch.from_numpy(bias))


def fitted(matrix: NDArray[np.float32], answers: NDArray[np.generic], *, classes: int) -> tuple[Array, Array]:
    """Weights [outputs, features] and biases [outputs] of a linear layer on the features as they are.

    Args:
        classes: how many there are, `answers` being their numbers; 0: `answers` are numbers to be predicted.
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    scaler = StandardScaler().fit(matrix)
    scaled = scaler.transform(matrix)
    if classes:
        folds = min(FOLDS, *Counter(answers.tolist()).values())
        search: dict[str, list[float]] = {"C": [1 / penalty for penalty in PENALTIES]}
        model, scoring = LogisticRegression(max_iter=300), "neg_log_loss"
    else:
        folds, search, model, scoring = FOLDS, {"alpha": list(PENALTIES)}, Ridge(), "neg_mean_squared_error"
    with threadpool_limits(1):
        if folds > 1:
            model = GridSearchCV(model, search, cv=folds, scoring=scoring).fit(scaled, answers).best_estimator_
        else:  # a class with one example
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
