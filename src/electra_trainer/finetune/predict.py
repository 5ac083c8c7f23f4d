"""What a fine-tuned network says of examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from electra_trainer.errors import Interrupted
from electra_trainer.finetune.batches import by_length, collate
from electra_trainer.finetune.network import FineTuned
from electra_trainer.finetune.task import Prediction, Task, Text, lengths_of
from electra_trainer.train.device import autocast

EVALUATION_ROWS = 128
"""Rows that are evaluated together."""


@torch.no_grad()
def predict(
    network: FineTuned,
    task: Task,
    examples: Sequence[Any],
    *,
    text: Text,
    device: torch.device,
    precision: str,
    stop: Callable[[], str | None] = lambda: None,
) -> list[Prediction]:
    """One prediction an example, dropout off.

    Raises:
        Interrupted: `stop` named a signal.
    """
    rows = task.rows(examples, text, training=False)
    said: list[Any] = [None] * len(rows)
    network.eval()
    for indices in by_length(lengths_of(rows), batch_size=EVALUATION_ROWS):
        if name := stop():
            raise Interrupted(f"{name}: stopped while predicting. The same command goes on.")
        part = [rows[index] for index in indices]
        batch = collate(part, text.specials, device)
        with autocast(precision, device):
            hidden_BTD = network(batch)
        for index, value in zip(indices, task.read(network.head, hidden_BTD, batch, part), strict=True):
            said[index] = value
    return task.predict(examples, rows, said)
