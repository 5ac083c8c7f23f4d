"""One fine-tuning step: a pure function of (weights, feed, step)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from electra_trainer.data.tokenizer import Specials
from electra_trainer.finetune.batches import Order, collate
from electra_trainer.finetune.network import FineTuned
from electra_trainer.finetune.recipe import Recipe
from electra_trainer.finetune.task import Row, Task
from electra_trainer.randomness import Rng
from electra_trainer.train.device import autocast
from electra_trainer.train.schedule import learning_rate
from electra_trainer.train.step import update


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What the steps of a run read, and where and how they are computed."""

    task: Task
    rows: Sequence[Row]
    order: Order
    """Of `rows`."""
    specials: Specials
    recipe: Recipe
    seed: int
    device: torch.device
    precision: str

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.order.steps(self.recipe.epochs)

    def batch(self, step: int) -> list[Row]:
        """Rows of step `step`, counted from 0."""
        return [self.rows[index] for index in self.order.at(step)]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step did."""

    finite: bool
    """False: the gradient was not a number; weights and moments are untouched."""
    loss: float
    """A row, or a token: whatever the task counts."""
    gradient_norm: float
    """Of what the recipe reduces to, before clipping."""
    learning_rate: float
    tokens: int
    """Real ones that were read."""


def train_step(network: FineTuned, optimizer: torch.optim.Optimizer, feed: Feed, *, step: int) -> StepResult:
    """Forward, backward and update for step `step`, counted from 0."""
    recipe, rows = feed.recipe, feed.batch(step)
    loss = accumulate(network, feed, rows, step=step)
    schedule, warmup = recipe.schedule_of(feed.steps), recipe.warmup_of(feed.steps)
    rate = learning_rate(step, peak=recipe.learning_rate, schedule=schedule, warmup=warmup)
    norm, finite = update(network, optimizer, clip_norm=recipe.clip_norm, rate=rate)
    tokens = sum(len(row.ids) for row in rows)
    return StepResult(finite=finite, loss=loss, gradient_norm=norm, learning_rate=rate, tokens=tokens)


def accumulate(network: FineTuned, feed: Feed, rows: Sequence[Row], *, step: int) -> float:
    """Add the gradient of `rows` to the parameters', in portions where the recipe says so; returns the mean loss.

    However it is cut into portions, it is the gradient of all rows together: sums, and one division where the recipe asks for the mean.
    """
    size = min(feed.recipe.micro_batch or len(rows), len(rows))
    mean, whole = feed.recipe.reduction == "mean", size == len(rows)
    total, count = 0.0, 0
    for lane, first in enumerate(range(0, len(rows), size)):
        part = rows[first : first + size]
        Rng(feed.seed, step, lane).seed_dropout()
        batch = collate(part, feed.specials, feed.device)
        with autocast(feed.precision, feed.device):
            hidden_BTD = network(batch)
        loss, counted = feed.task.loss(network.head, hidden_BTD, batch, part)
        total, count = total + float(loss.detach()), count + counted
        if mean and whole:  # one number, instead of all gradients
            loss = loss / max(count, 1)
        loss.backward()  # type: ignore[no-untyped-call]
    if mean and not whole:
        torch._foreach_div_([p.grad for p in network.parameters() if p.grad is not None], max(count, 1))
    return total / max(count, 1)
