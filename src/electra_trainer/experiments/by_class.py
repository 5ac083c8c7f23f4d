"""Scores class by class: precision, recall, F1, confusions and calibration of a split. No torch here."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from electra_trainer.files.wording import Table
from electra_trainer.settings.records import ADDED

BINS = 10
"""Bins of equal width for `calibration_error`."""
WIDEST = 10
"""Most classes for which a confusion table has a row and a column each; with more, the most frequent confusions are
listed."""
HEAD = ("class", "rows", "precision", "recall", "F1")
FEWEST = 20
"""Fewest rows with the highest probabilities whose share of right answers is taken for one."""
_LEAST = float(np.finfo(np.float32).eps)
"""Smallest probability whose logarithm is taken, as in scikit-learn's log loss."""


Confusion = dict[str, dict[str, int]]
"""True label -> predicted label -> count, without zeros."""


def confusion_of(pairs: Iterable[tuple[str, str]]) -> Confusion:
    """Count pairs of a true label and a predicted one."""
    found: Confusion = {}
    for (truth, guess), count in sorted(Counter(pairs).items()):
        found.setdefault(truth, {})[guess] = count
    return found


def confusion_table(confusion: Confusion, labels: Sequence[str]) -> Table:
    """True classes down, predicted ones across; of many classes the most frequent confusions."""
    if len(labels) <= WIDEST:
        rows = [[one, *(f"{confusion.get(one, {}).get(other, 0):,}" for other in labels)] for one in labels]
        return Table(head=("true \\ predicted", *labels), rows=rows, words=1)
    counts = [
        (-count, truth, guess) for truth, row in confusion.items() for guess, count in row.items() if guess != truth
    ]
    worst = [(truth, guess, f"{-count:,}") for count, truth, guess in sorted(counts)[:WIDEST]]
    return Table(head=("true", "predicted", "rows"), rows=worst, words=2)


@dataclass(frozen=True, kw_only=True)
class ClassReport:
    """Predictions of one split, class by class. A share without a denominator is 0, as scikit-learn's with
    zero_division=0.
    """

    labels: tuple[str, ...]
    support: tuple[int, ...]
    """Rows that have each label."""
    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]
    confusion: Confusion
    """Empty where a text has several labels."""
    calibration_error: float
    """See `calibration_error`."""
    log_loss: float | None = field(default=None, metadata=ADDED)
    """See `log_loss`."""
    certain: tuple[tuple[float, float], ...] = field(default=(), metadata=ADDED)
    """See `certain_from`; of one class a text."""
    temperature: float | None = field(default=None, metadata=ADDED)
    """Divisor of the head's outputs; None: there is none."""
    fitted_rows: int = field(default=0, metadata=ADDED)
    """Held-out rows on which it was fitted."""
    before: tuple[float, float] | None = field(default=None, metadata=ADDED)
    """Calibration error and log loss at temperature 1."""

    def rows(self) -> list[tuple[str, ...]]:
        """A line for each class, under `HEAD`; shares x 100."""
        numbers = zip(self.precision, self.recall, self.f1, strict=True)
        return [
            (label, f"{count:,}", *(f"{100 * share:.1f}" for share in shares))
            for label, count, shares in zip(self.labels, self.support, numbers, strict=True)
        ]

    def markdown(self) -> str:
        """The tables, and sentences on calibration."""
        return f"{self.tables()}\n\n{self.calibrated()}"

    def tables(self) -> str:
        """Tables of classes and confusions, as Markdown."""
        found = Table(head=HEAD, rows=self.rows(), words=1).markdown()
        return f"{found}\n\n{confusion_table(self.confusion, self.labels).markdown()}" if self.confusion else found

    def calibrated(self) -> str:
        """Sentences on calibration."""
        loss = "" if self.log_loss is None else f"; log loss {self.log_loss:.3f}"
        found = f"Expected calibration error ({BINS} bins): {100 * self.calibration_error:.1f}{loss}."
        if self.before is None:
            return found
        fitted = f"the temperature of {self.temperature:.3g}, fitted on {self.fitted_rows:,} held-out rows"
        before = f"{100 * self.before[0]:.1f}; log loss {self.before[1]:.3f}"
        return f"{found} Before {fitted}: {before}. No row is judged at a temperature that was fitted on it."


def class_report(labels: Sequence[str], truth: Sequence[str], predictions: Sequence[Mapping[str, Any]]) -> ClassReport:
    """Scores class by class, from predictions with probabilities."""
    guesses = [one["label"] for one in predictions]
    right = [a == b for a, b in zip(truth, guesses, strict=True)]
    shares = [one["probabilities"][one["label"]] for one in predictions]
    of_truth = [one["probabilities"].get(label, 0.0) for one, label in zip(predictions, truth, strict=True)]
    return report_of(
        labels,
        truth,
        guesses,
        confusion=confusion_of(zip(truth, guesses, strict=True)),
        calibration_error=calibration_error(shares, right),
        log_loss=log_loss(of_truth),
        certain=certain_from(shares, right),
    )


def report_of(labels: Sequence[str], truth: Any, guesses: Any, **others: Any) -> ClassReport:
    """Scores class by class, from labels or from rows of 0 and 1 (one for each of `labels`); `others` are the remaining
    fields.
    """
    from sklearn.metrics import precision_recall_fscore_support

    which: Any = labels if not isinstance(truth, np.ndarray) else [True] if len(labels) == 1 else None
    found = precision_recall_fscore_support(truth, guesses, labels=which, average=None, zero_division=0.0)
    *shares, support = (tuple(one.tolist()) for one in found)
    others |= zip(("precision", "recall", "f1"), shares, strict=True)
    return ClassReport(labels=tuple(labels), support=tuple(map(int, support)), **others)


def calibration_error(confidence: ArrayLike, right: ArrayLike) -> float:
    """Expected calibration error (Guo et al., 2017): the mean distance between confidence and share of right answers,
    over `BINS` bins of equal width weighted by their predictions; 0 to 1.

    Args:
        confidence: probability of each prediction, 0 to 1.
        right: whether it was right.
    """
    shares = np.asarray(confidence, dtype=float)
    place = np.minimum((shares * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, weights=shares - np.asarray(right, dtype=float), minlength=BINS)
    return float(np.abs(gaps).sum() / max(len(place), 1))


def log_loss(of_truth: ArrayLike) -> float:
    """Mean negative logarithm of the probabilities of what is true, in nats."""
    return -float(np.log(np.maximum(np.asarray(of_truth, dtype=float), _LEAST)).mean())


def certain_from(confidence: ArrayLike, right: ArrayLike) -> tuple[tuple[float, float], ...]:
    """Increasing probabilities, each with the share of the predictions of at least this probability that were right:
    the lowest one for each further percent, as long as there are `FEWEST` such predictions.

    Args:
        confidence: probability of each prediction.
        right: whether it was right.
    """
    shares, order = np.asarray(confidence, dtype=float), np.argsort(-np.asarray(confidence), kind="stable")
    sorted_shares, good = shares[order], np.cumsum(np.asarray(right, dtype=float)[order])
    found: list[tuple[float, float]] = []
    for last in np.flatnonzero(np.diff(sorted_shares, append=-1.0) < 0)[::-1]:  # of equal ones all are above
        accuracy = float(good[last] / (last + 1))
        if last + 1 >= min(FEWEST, len(shares)) and (not found or int(100 * accuracy) > int(100 * found[-1][1])):
            found.append((float(sorted_shares[last]), accuracy))
    return tuple(found)
