"""Classification of a text or a pair: dropout and one linear layer upon [CLS], or upon the mean of all tokens; cross-entropy (§3.1; released).

Regression on a text or a pair: one linear layer upon [CLS], or upon the mean of all tokens; squared error (§3.1; released for STS-B).

Which vector of a row stands for its text.

Metrics of whole texts, by scikit-learn and SciPy; a correlation with something constant is 0, not undefined.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.texts import Text
from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import Prediction, Row, TaskData, TextExample
from electra_trainer.settings.config import Model


@dataclass(frozen=True, kw_only=True)
class Classification:
    """One of `labels` for each text or pair; C labels."""

    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    """Names from finetuning/texts/tasks.py; the first is the main one."""
    name: str = "classification"
    pooling: "Pooling" = "cls"

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


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A number for each text or pair, in the file's own units."""

    shift: float = 0.0
    """Taken from a value before it is learned."""
    scale: float = 1.0
    """What a value is divided by then: 5 for STS-B, as released."""
    metrics: tuple[str, ...] = ("spearman", "pearson")
    """Names from finetuning/texts/tasks.py; the first is the main one."""
    name: str = "regression"
    pooling: "Pooling" = "cls"

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


Pooling = Literal["cls", "mean"]
"""`cls`: the hidden state of [CLS], as the paper. `mean`: the mean over all tokens of the row, [CLS] and [SEP] included."""


def text_vector(hidden_BTD: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """[B, T, D] -> [B, D]. Each row of the batch is one text or one pair."""
    if pooling == "cls":
        return hidden_BTD[:, 0]
    real_BT1 = batch.real_BT.unsqueeze(-1)
    return (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1)


def with_pooling(data: TaskData, recipe: Recipe) -> tuple[TaskData, Recipe]:
    """The same data under a task that pools as the recipe says, and the recipe with the task's own way where it says nothing.

    Raises:
        ConfigError: the recipe asks for a way, and the task has no field `pooling`.
    """
    task = cast(Any, data.task)
    pools = "pooling" in {field.name for field in fields(task)}
    if recipe.pooling is None:
        return data, replace(recipe, pooling=task.pooling) if pools else recipe
    if not pools:
        raise ConfigError(
            f"--pooling {recipe.pooling}: {task.name} has no choice of what stands for a text; classification and regression have it. "
            "Leave it out."
        )
    return replace(data, task=replace(task, pooling=recipe.pooling)), recipe


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
