"""Masked language modelling: one full-size network, its count, its gradient, and that all of it learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.small import batch, config, masker, rows

from electra_trainer.batch import Losses, Masked
from electra_trainer.objectives import build
from electra_trainer.objectives.mlm import MaskedLanguageModelling
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM


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


def test_gradient_is_that_of_the_mean() -> None:
    made, masked = objective().eval(), masked_rows()
    made(masked, Rng(1, 0, 0)).total(made.counts(masked)).backward()
    whole = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    made.zero_grad()
    logits = made.encoder(masked.input_BT, masked.batch, masked.slots_K)
    torch.nn.functional.cross_entropy(logits, masked.labels_K).backward()
    plain = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    assert (whole - plain).norm() <= 1e-5 * plain.norm()


def test_what_is_seen_and_exported() -> None:
    made, masked = objective(), masked_rows()
    diagnostics = made(masked, Rng(1, 0, 0), diagnose=True).diagnostics
    assert set(diagnostics) == {"used_K", "generator_correct_K", "generator_entropy_K"}
    (exported,) = made.exported()
    assert exported.network is made.encoder and exported.architecture == "ElectraForMaskedLM"
    assert exported.model == settings().model
