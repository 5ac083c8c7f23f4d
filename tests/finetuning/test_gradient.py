"""A batch has one gradient, in however many portions it is computed, and a step says what it did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from tests.finetuning.small_source import data, source
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.finetuning.run import (
    Batches,
    FineTunedNetwork,
    Job,
    accumulate,
    build_batches,
    build_network,
    tuning_step,
)
from electra_trainer.tasks.recipe import Recipe, recipe
from electra_trainer.tasks.task import Row
from electra_trainer.tasks.texts import Classification
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.step import StepResult

ROWS = 10
SAME = 2e-5  # relative, of norms
CPU = torch.device("cpu")


def job(**changes: object) -> Job:
    chosen = recipe(
        "paper",
        hidden_size=32,
        epochs=5,
        **{"dropout": 0.0, "attention_dropout": 0.0, "batch_size": ROWS, "precision": "fp32", **changes},
    )
    return Job(source=source(), data=data(ROWS, seed=1), recipe=chosen, seed=2)


def prepared(work: Job) -> tuple[FineTunedNetwork, Batches]:
    network = build_network(work.source, work.data.task, work.recipe, seed=work.seed).train()
    return network, build_batches(work, device=CPU)


def gradient(work: Job) -> tuple[float, dict[str, Tensor]]:
    network, batches = prepared(work)
    loss = accumulate(network, batches, batches.batch(0), step=0)
    return loss, {name: parameter.grad for name, parameter in network.named_parameters() if parameter.grad is not None}


def compare(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys() and len(found) > 30
    for name, values in expected.items():
        bound = 1e-6 if "key.bias" in name else SAME * float(values.norm())
        assert float((found[name] - values).norm()) <= bound, name


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("micro_batch", [1, 3, 4, 10, 99])
def test_portions(micro_batch: int, reduction: str) -> None:
    loss, whole = gradient(job(reduction=reduction))
    other_loss, portions = gradient(job(reduction=reduction, micro_batch=micro_batch))
    assert other_loss == pytest.approx(loss, rel=1e-5)
    compare(portions, whole)


class CountsTokens(Classification):
    """A task that divides by tokens, of which portions hold different numbers."""

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        real_BT = batch.real_BT
        return head(hidden_BTD)[..., 0].square()[real_BT].sum(), int(real_BT.sum())


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_portions_of_unequal_counts(micro_batch: int) -> None:
    found = []
    for size in (None, micro_batch):
        work = job(micro_batch=size)
        task = CountsTokens(**vars(work.data.task))
        found.append(gradient(replace(work, data=replace(work.data, task=task))))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    compare(found[1][1], found[0][1])


def one_step(settings: Recipe) -> tuple[FineTunedNetwork, StepResult]:
    network, batches = prepared(replace(job(), recipe=settings))
    optimizer = build_optimizer(network, settings.optimizer)
    return network, tuning_step(network, optimizer, batches, step=0)


def test_dropout_follows_from_seed_and_step() -> None:
    settings = replace(job().recipe, dropout=0.3, attention_dropout=0.3)
    work = replace(job(), recipe=settings)

    def loss(step: int, seed: int = 2) -> float:
        network, batches = prepared(work)
        torch.manual_seed(step + 1000)  # what others drew does not matter
        batches = replace(batches, job=replace(work, seed=seed))
        return accumulate(network, batches, batches.batch(0), step=step)

    assert loss(3) == loss(3) and len({loss(3), loss(4), loss(3, seed=5)}) == 3


def test_a_step_says_what_it_did() -> None:
    network, result = one_step(job().recipe)
    assert result.finite and result.gradient_norm > 0 and math.isfinite(result.metrics["loss"])
    assert result.learning_rate == pytest.approx(3e-4 * 4 / 5)  # t = 1 of five steps, of which none warms up
    assert result.tokens == sum(len(row.ids) for row in build_batches(job(), device=CPU).rows)
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize(("schedule", "rate"), [("released", 3e-4 * (1 - 1 / 27) / 2.7), ("linear", 3e-4 / 2)])
def test_the_rate_of_a_warm_up_that_is_no_whole_number(schedule: str, rate: float) -> None:
    """27 steps of one batch each; by hand, at t = 1."""
    _, result = one_step(replace(job(schedule=schedule).recipe, epochs=27))
    assert result.learning_rate == pytest.approx(rate, rel=1e-12)
