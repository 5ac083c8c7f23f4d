"""Masked language modelling: one full-size network, its loss and gradient, and what is recorded and exported."""

import pytest
import torch
from tests.reach import distance, gradients, lively, losses, made, masked_rows

from electra_trainer.objectives.mlm import MaskedLanguageModelling
from electra_trainer.settings.methods import MLM

SETTINGS = lively(objective=MLM())


def test_loss_and_gradient_are_those_of_the_mean() -> None:
    objective, masked = made(SETTINGS), masked_rows(SETTINGS)
    total = losses(objective, masked).total(objective.counts(masked))
    logits_KV = objective.encoder(masked.input_BT, masked.batch, masked.slots_K)
    mean = torch.nn.functional.cross_entropy(logits_KV, masked.labels_K)
    assert float(total.detach()) == pytest.approx(float(mean.detach()), rel=1e-5)
    assert distance(gradients(objective, total), gradients(objective, mean)) <= 1e-5


def test_what_is_seen_and_exported() -> None:
    objective = made(SETTINGS)
    assert isinstance(objective, MaskedLanguageModelling)
    diagnostics = losses(objective, masked_rows(SETTINGS)).diagnostics
    assert set(diagnostics) == {"used_K", "generator_correct_K", "generator_entropy_K"}
    (exported,) = objective.exported()
    assert exported.network is objective.encoder and exported.architecture == "ElectraForMaskedLM"
    assert exported.model == SETTINGS.model
