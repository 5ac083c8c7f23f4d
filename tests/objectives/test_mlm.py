"""Masked language modelling: one full-size network, its count, its gradient, and that all of it learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.small import batch, config, masker, rows

from electra_trainer.batch import Masked
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


def test_gradient_is_that_of_the_mean() -> None:
    made, masked = objective().eval(), masked_rows()
    total = made(masked, Rng(1, 0, 0)).total(made.counts(masked))
    total.backward()
    whole = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    made.zero_grad()
    logits = made.encoder(masked.input_BT, masked.batch, masked.slots_K)
    mean = torch.nn.functional.cross_entropy(logits, masked.labels_K)
    mean.backward()
    assert float(total.detach()) == pytest.approx(float(mean.detach()), rel=1e-5)
    plain = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    assert (whole - plain).norm() <= 1e-5 * plain.norm()


def test_what_is_seen_and_exported() -> None:
    made, masked = objective(), masked_rows()
    diagnostics = made(masked, Rng(1, 0, 0), diagnose=True).diagnostics
    assert set(diagnostics) == {"used_K", "generator_correct_K", "generator_entropy_K"}
    (exported,) = made.exported()
    assert exported.network is made.encoder and exported.architecture == "ElectraForMaskedLM"
    assert exported.model == settings().model
