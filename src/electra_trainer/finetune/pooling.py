"""Which vector of a row stands for its text."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal, cast

from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.errors import ConfigError
from electra_trainer.finetune.recipe import Recipe
from electra_trainer.finetune.task import TaskData

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
