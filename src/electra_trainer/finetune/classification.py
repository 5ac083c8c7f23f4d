"""Classification of a text or a pair: dropout and one linear layer upon [CLS], or upon the mean of all tokens; cross-entropy (§3.1; released)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.config import Model
from electra_trainer.finetune.examples import TextExample
from electra_trainer.finetune.metrics import classification_scores
from electra_trainer.finetune.pooling import Pooling, text_vector
from electra_trainer.finetune.task import Prediction, Row, Text


@dataclass(frozen=True, kw_only=True)
class Classification:
    """One of `labels` for each text or pair; C labels."""

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    """Names from finetune/metrics.py; the first is the main one."""
    name: str = "classification"
    pooling: Pooling = "cls"

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def head(self, model: Model) -> nn.Module:
        """[B, D] -> [B, C]."""
        return nn.Linear(model.hidden_size, len(self.labels))

    def rows(self, examples: Sequence[TextExample], text: Text, *, training: bool) -> list[Row]:
        number = {label: index for index, label in enumerate(self.labels)}
        return [
            Row(
                ids=ids, example=index, target=number[example.label] if training and example.label is not None else None
            )
            for index, (example, ids) in enumerate(zip(examples, text_rows(examples, text), strict=True))
        ]

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        labels_B = torch.tensor([row.target for row in rows], device=hidden_BTD.device)
        return F.cross_entropy(head(text_vector(hidden_BTD, batch, self.pooling)), labels_B, reduction="sum"), len(rows)

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """Probabilities of the labels, one list a row."""
        said: list[Any] = head(text_vector(hidden_BTD, batch, self.pooling)).softmax(-1).tolist()
        return said

    def predict(self, examples: Sequence[Any], rows: Sequence[Row], said: Sequence[Any]) -> list[Prediction]:
        return [
            {
                "label": self.labels[shares.index(max(shares))],
                "probabilities": dict(zip(self.labels, shares, strict=True)),
            }
            for shares in said
        ]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        number = {label: index for index, label in enumerate(self.labels)}
        truth = [number[str(example.label)] for example in examples]
        said = [number[prediction["label"]] for prediction in predictions]
        return classification_scores(truth, said, metrics=self.metrics, labels=len(self.labels))

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        counts = Counter(prediction["label"] for prediction in predictions)
        if len(counts) == 1 and len(predictions) > 1:
            return [f"collapsed: {next(iter(counts))!r} for every example."]
        return []


def text_rows(examples: Sequence[TextExample], text: Text) -> list[tuple[int, ...]]:
    """Ids of each example's row."""
    first = [encoding.ids for encoding in text.encode([example.text for example in examples])]
    paired = [example.pair for example in examples if example.pair is not None]
    second = iter([encoding.ids for encoding in text.encode(paired)])
    return [
        text.row(ids, next(second) if example.pair is not None else None)
        for example, ids in zip(examples, first, strict=True)
    ]
