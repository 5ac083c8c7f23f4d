"""Several labels for a text or a pair: a sigmoid for each label, binary cross-entropy, one threshold for all of them.

The threshold is the one with the best main score on the development rows, which the exported model keeps. With one
number chosen on all of them dev is a little too good; a test file is scored at that threshold. Metrics are
scikit-learn's.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments.by_class import ClassReport, calibration_error, log_loss, report_of
from electra_trainer.files.tables import Table, label_lists, marks, shown
from electra_trainer.settings.calls import checked_class
from electra_trainer.settings.config import Model
from electra_trainer.tasks import examples as files
from electra_trainer.tasks.baselines import learn, tf_idf
from electra_trainer.tasks.examples import Columns, Prediction, TextExample, label_names
from electra_trainer.tasks.own_files import OwnRows
from electra_trainer.tasks.task import Baseline, CardWords, Row, TransformersHead, text_head
from electra_trainer.tasks.texts import ReadAnswers, TextTask

METRICS = ("micro_f1", "macro_f1")


def with_labels(examples: Sequence[TextExample], table: Table, columns: Columns) -> list[TextExample]:
    """Examples with the labels of a file; an empty cell of a column with a separator means no label."""
    if columns.labels:
        cells = [marks(table, name) for name in columns.labels]
        found = [
            tuple(name for name, mark in zip(columns.labels, row, strict=True) if mark)
            for row in zip(*cells, strict=True)
        ]
    else:
        found = label_lists(table, str(columns.label), str(columns.separator))
    return [replace(one, labels=labels) for one, labels in zip(examples, found, strict=True)]


@dataclass(frozen=True, kw_only=True)
class MultiLabel(TextTask):
    """Any number of `labels` for each text or pair, none included; C labels."""

    read_answers: ClassVar[ReadAnswers] = with_labels

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = METRICS
    """The first is the main one."""
    name: str = "multi-label"
    threshold: float | None = None
    """A label is predicted where its probability is at least this; None: not chosen yet, so predictions have
    probabilities alone.
    """

    def targets(self, examples: Sequence[TextExample]) -> list[tuple[int, ...]]:
        """0 or 1 for each label."""
        return [tuple(map(int, row)) for row in self._truth(examples)]

    def losses(self, output_BC: Tensor, rows: Sequence[Row]) -> Tensor:
        target_BC = torch.tensor([row.target for row in rows], dtype=torch.float32, device=output_BC.device)
        return F.binary_cross_entropy_with_logits(output_BC, target_BC, reduction="none")

    def decode(self, output_EC: Tensor) -> list[Prediction]:
        return self.at_threshold(output_EC.sigmoid().tolist())

    def at_threshold(self, shares: Sequence[Sequence[float]]) -> list[Prediction]:
        """Predictions from the probabilities of the labels, one list per example."""
        named = [dict(zip(self.labels, p, strict=True)) for p in shares]
        at = self.threshold
        if at is None:
            return [{"probabilities": one} for one in named]
        return [
            {"labels": [label for label, share in one.items() if share >= at], "probabilities": one} for one in named
        ]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        """F1 at the task's threshold; without one at the best of these examples, which is among the scores."""
        from sklearn.metrics import f1_score

        truth, shares = self._truth(examples), self._shares(predictions)
        at = self._at(truth, shares)
        # by scikit-learn's averages one label alone would count the texts without it too
        each = [f1_score(one, p >= at, zero_division=0.0) for one, p in zip(truth.T, shares.T, strict=True)]
        micro = f1_score(truth.ravel(), shares.ravel() >= at, zero_division=0.0)
        found = {"micro_f1": float(micro), "macro_f1": float(np.mean(each))}
        scores = {metric: found[metric] for metric in self.metrics}
        return scores if self.threshold is not None else {**scores, "threshold": at}

    def report(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> ClassReport:
        """Label by label; calibration is that of all probabilities."""
        truth, shares = self._truth(examples), self._shares(predictions)
        error, loss = calibration_error(shares.ravel(), truth.ravel()), log_loss(np.where(truth, shares, 1 - shares))
        guesses = shares >= self._at(truth, shares)
        return report_of(self.labels, truth, guesses, confusion={}, calibration_error=error, log_loss=loss)

    def shares(self, predictions: Sequence[Prediction]) -> NDArray[np.float64]:
        """Probabilities that a label does not fit and that it does, example by example and label by label, [E C, 2]."""
        share_N = self._shares(predictions).ravel().clip(2**-24, 1 - 2**-24)  # fp32 rounds a sigmoid to 1
        return np.stack([1 - share_N, share_N], -1)

    def truths(self, examples: Sequence[TextExample]) -> NDArray[np.int64]:
        """0 or 1 for each of these, [E C]."""
        return self._truth(examples).ravel().astype(np.int64)

    def with_shares(self, shares_N2: NDArray[np.float64]) -> list[Prediction]:
        """Predictions from what `shares` gives."""
        return self.at_threshold(shares_N2[:, 1].reshape(-1, len(self.labels)).tolist())

    def _at(self, truth: NDArray[np.bool_], shares: NDArray[np.float64]) -> float:
        """The threshold, or the one with the best main score."""
        if self.threshold is not None:
            return self.threshold
        if self.metric == "micro_f1":  # all labels are one column
            truth, shares = truth.reshape(-1, 1), shares.reshape(-1, 1)
        return best_threshold(truth, shares)

    def _truth(self, examples: Sequence[TextExample]) -> NDArray[np.bool_]:
        """[examples, C]."""
        return np.array([[label in (one.labels or ()) for label in self.labels] for one in examples], dtype=bool)

    def _shares(self, predictions: Sequence[Prediction]) -> NDArray[np.float64]:
        """[examples, C]."""
        return np.array([[one["probabilities"][label] for label in self.labels] for one in predictions])

    def settled(self, scores: Mapping[str, Mapping[str, float]]) -> Self:
        """See `Task`: with the threshold of the main split."""
        return replace(self, threshold=next(iter(scores.values()))["threshold"])

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        collapsed = len(predictions) > 1 and float(self._shares(predictions).std(axis=0).max()) < 1e-3
        return ["collapsed: the same probabilities for every example."] if collapsed else []

    def baselines(self, train: Sequence[TextExample]) -> dict[str, Baseline]:
        """Each label with its share of the training rows as its probability; TF-IDF with a logistic regression for
        each label.
        """
        if any(one.labels is None for one in train):
            return {}
        truth = self._truth(train)
        often = truth.mean(axis=0).tolist()
        model = learn(train, truth.astype(int), tf_idf)
        return {
            "majority": Baseline(
                title="the most frequent labels", predict=lambda examples: self.at_threshold([often] * len(examples))
            ),
            "tf_idf": Baseline(title="TF-IDF", predict=lambda examples: self.at_threshold(model(examples))),
        }

    def onnx_shares(self, logits: Tensor, batch: Batch) -> Tensor:
        return torch.stack([logits, torch.zeros_like(logits)], -1).softmax(-1)

    def as_transformers(self, model: Model) -> TransformersHead:
        return text_head(model, self.labels, "multi_label_classification", pooling=self.pooling)

    def card(self, *, pair: bool) -> CardWords:
        at = "" if self.threshold is None else f", those with a probability of at least {self.threshold:.3f}"
        return self.words(f"Says which labels fit {{}}{at}", pair=pair, labels=self.labels, top="None")


@checked_class
@dataclass(frozen=True, kw_only=True)
class MultiLabelTask(OwnRows):
    """Files of texts that may have several labels: in the column `label` between a separator, or in several columns."""

    kind: ClassVar[type[TextTask]] = MultiLabel

    name: str = "multi-label"
    label_separator: str | None = None
    """The sign between labels; an empty cell means no label."""
    labels: str | Sequence[str] | None = None
    """Columns of 0 and 1, one for each label, between commas or as a list."""

    def __post_init__(self) -> None:
        if not self.labels and not self.label_separator:
            raise ConfigError('--label-separator: is empty. Give the sign between labels, such as ";", or --labels.')
        if self.labels and (self.label_separator is not None or self.label is not None):
            raise ConfigError("--labels: labels are in one column or in several. Leave out --label and its separator.")

    def columns(self, table: Table) -> Columns:
        """The columns of the training file."""
        if self.labels:
            names = [one.strip() for one in self.labels.split(",")] if isinstance(self.labels, str) else [*self.labels]
            return files.choose_columns(table, text=self.text, text_pair=self.text_pair, label=None, labels=names)
        return replace(super().columns(table), separator=self.label_separator)

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[MultiLabel, list[str]]:
        """Its labels are in the order of their names."""
        counts = Counter(label for example in train for label in label_names(example))
        if not counts:
            raise DataError(f"{path}: no row has a label. Expected some: is it the right column?")
        if len(counts) > max(50, len(train) // 2):
            first, second = sorted(counts)[:2]
            raise DataError(
                f"{path}: {len(counts):,} different labels in {len(train):,} rows, for example {first!r} and "
                f"{second!r}. Check --label-separator and --label."
            )
        named = shown([f"{name} {count:,}" for name, count in counts.most_common()])
        none = sum(not example.labels for example in train)
        each = counts.total() / (len(train) - none)
        note = (
            f"{len(counts)} labels, several a text, in {len(train):,} training rows: {named}; {none:,} rows have "
            f"none, the others {each:.3g} on average. The probability from which on a label is given was chosen on the "
            "rows that are scored, so the score is a little too good: score others with --test FILE."
        )
        return MultiLabel(labels=tuple(sorted(counts))), [note]


def best_threshold(truth: NDArray[np.bool_], shares: NDArray[np.float64]) -> float:
    """The threshold with the best macro F1 over the columns, halfway to the next smaller probability; of equals the
    largest, and 0.5 where nothing is true.
    """
    at_or_above = np.unique(shares)[::-1]  # in decreasing order: more and more labels are predicted
    order = np.argsort(-shares, axis=0, kind="stable")
    sorted_shares, right = np.take_along_axis(shares, order, 0), np.take_along_axis(truth, order, 0).cumsum(0)
    f1 = np.zeros(len(at_or_above))
    for label in range(shares.shape[1]):
        found = np.searchsorted(-sorted_shares[:, label], -at_or_above, side="right")
        hits = np.concatenate([[0], right[:, label]])[found]
        f1 += 2 * hits / np.maximum(found + truth[:, label].sum(), 1)
    best = int(np.argmax(f1))
    if not f1[best] > 0:
        return 0.5
    return float((at_or_above[best] + (at_or_above[best + 1] if best + 1 < len(at_or_above) else 0.0)) / 2)
