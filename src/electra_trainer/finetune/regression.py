"""Regression on a text or a pair: one linear layer upon [CLS], or upon the mean of all tokens; squared error (§3.1; released for STS-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.config import Model
from electra_trainer.finetune.classification import text_rows
from electra_trainer.finetune.examples import TextExample
from electra_trainer.finetune.metrics import regression_scores
from electra_trainer.finetune.pooling import Pooling, text_vector
from electra_trainer.finetune.task import Prediction, Row, Text


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A number for each text or pair, in the file's own units."""

    shift: float = 0.0
    """Taken from a value before it is learned."""
    scale: float = 1.0
    """What a value is divided by then: 5 for STS-B, as released."""
    metrics: tuple[str, ...] = ("spearman", "pearson")
    """Names from finetune/metrics.py; the first is the main one."""
    name: str = "regression"
    pooling: Pooling = "cls"

    @property
    def metric(self) -> str:
        return self.metrics[0]

    def head(self, model: Model) -> nn.Module:
        """[B, D] -> [B, 1]."""
        return nn.Linear(model.hidden_size, 1)

    def rows(self, examples: Sequence[TextExample], text: Text, *, training: bool) -> list[Row]:
        return [
            Row(
                ids=ids,
                example=index,
                target=(example.value - self.shift) / self.scale if training and example.value is not None else None,
            )
            for index, (example, ids) in enumerate(zip(examples, text_rows(examples, text), strict=True))
        ]

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        target_B = torch.tensor([row.target for row in rows], dtype=torch.float32, device=hidden_BTD.device)
        return (head(text_vector(hidden_BTD, batch, self.pooling)).squeeze(-1) - target_B).square().sum(), len(rows)

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """The learned number of each row, not yet in the file's units."""
        said: list[Any] = head(text_vector(hidden_BTD, batch, self.pooling)).squeeze(-1).tolist()
        return said

    def predict(self, examples: Sequence[Any], rows: Sequence[Row], said: Sequence[Any]) -> list[Prediction]:
        return [{"value": value * self.scale + self.shift} for value in said]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> dict[str, float]:
        truth = [float(example.value) for example in examples if example.value is not None]
        return regression_scores(truth, [prediction["value"] for prediction in predictions], metrics=self.metrics)

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        spread = float(np.std([prediction["value"] for prediction in predictions])) if predictions else 0.0
        if len(predictions) > 1 and spread < 1e-3 * self.scale:
            return ["collapsed: the same value for every example."]
        return []
