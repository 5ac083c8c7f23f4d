"""Which vector of a row stands for its text."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, cast

from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.finetune.task import TaskData

Pooling = Literal["cls", "mean"]
"""`cls`: the hidden state of [CLS], as the paper. `mean`: the mean over all tokens of the row, [CLS] and [SEP] included."""


def text_vector(hidden_BTD: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """[B, T, D] -> [B, D]. Each row of the batch is one text or one pair."""
    if pooling == "cls":
        return hidden_BTD[:, 0]
    real_BT1 = batch.real_BT.unsqueeze(-1)
    return (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1)


def with_pooling(data: TaskData, pooling: Pooling | None) -> TaskData:
    """The same data under a task that pools so; None, and tasks that have no field `pooling`: as it was."""
    task = cast(Any, data.task)
    if pooling is None or "pooling" not in {field.name for field in fields(task)}:
        return data
    return replace(data, task=replace(task, pooling=pooling))
