"""Masked language modelling: one full-size network, its count, its gradient, and that all of it learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.small import batch, config, feed, masker, part, rows
from torch import Tensor

from electra_trainer.batch import Losses, Masked
from electra_trainer.objectives import build
from electra_trainer.objectives.mlm import MaskedLanguageModelling
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM
from electra_trainer.train.optim import build_optimizer, parameter_groups
from electra_trainer.train.step import add_counts, train_step


def settings() -> Config:
    return dataclasses.replace(config(), objective=MLM())


def objective() -> MaskedLanguageModelling:
    made = build(settings())
    assert isinstance(made, MaskedLanguageModelling)
    return made


def masked_rows() -> Masked:
    return masker(settings())(batch(rows(12)), Rng(1, 0, 0))


def test_counts_and_terms() -> None:
    made, masked = objective(), masked_rows()
    assert {name: int(count) for name, count in made.counts(masked).items()} == {"masked": len(masked.slots_K)}
    losses: Losses = made(masked, Rng(1, 0, 0))
    assert {name: (term.count, term.weight) for name, term in losses.terms.items()} == {
        "generator_loss": ("masked", 1.0)
    }


def test_loss_is_that_of_each_slot() -> None:
    made, masked = objective().eval(), masked_rows()
    expected = 0.0
    for slot, label in zip(masked.slots_K, masked.labels_K.tolist(), strict=True):
        logits = made.encoder(masked.input_BT, masked.batch, slot[None])
        expected -= float(logits.detach().double().log_softmax(-1)[0, label])
    assert float(made(masked, Rng(1, 0, 0)).terms["generator_loss"].sum.detach()) == pytest.approx(expected, rel=1e-5)


def gradient(made: MaskedLanguageModelling, lanes: list[Masked]) -> Tensor:
    made.zero_grad()
    counts = add_counts([made.counts(masked) for masked in lanes])
    for masked in lanes:
        made(masked, Rng(1, 0, 0)).total(counts).backward()
    return torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])


def test_gradient_does_not_depend_on_the_split() -> None:
    made, masked = objective().eval(), masked_rows()
    whole = gradient(made, [masked])
    lanes = [part(masked, slice(0, 1)), part(masked, slice(1, 4)), part(masked, slice(4, 12))]
    assert len({len(lane.slots_K) for lane in lanes}) == 3
    assert (gradient(made, lanes) - whole).norm() <= 1e-5 * whole.norm()
    made.zero_grad()
    logits = made.encoder(masked.input_BT, masked.batch, masked.slots_K)
    torch.nn.functional.cross_entropy(logits, masked.labels_K).backward()
    plain = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    assert (whole - plain).norm() <= 1e-5 * plain.norm()


def test_every_parameter_is_in_one_group_and_moves() -> None:
    made, given = objective(), feed(settings())
    grouped = [id(p) for group in parameter_groups(made, 0.01) for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in made.parameters())
    optimizer = build_optimizer(made, settings().optimizer)
    before = {n: p.detach().clone() for n, p in made.named_parameters()}
    for step in range(2):
        assert train_step(made, optimizer, given, step=step).finite
    assert [n for n, p in made.named_parameters() if torch.equal(p, before[n])] == []


def test_what_is_seen_and_exported() -> None:
    made, masked = objective(), masked_rows()
    diagnostics = made(masked, Rng(1, 0, 0), diagnose=True).diagnostics
    assert set(diagnostics) == {"used_K", "generator_correct_K", "generator_entropy_K"}
    (exported,) = made.exported()
    assert exported.network is made.encoder and exported.architecture == "ElectraForMaskedLM"
    assert exported.model == settings().model
