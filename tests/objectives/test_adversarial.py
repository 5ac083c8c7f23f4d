"""Adversarial training (Appendix F; objectives/adversarial.py): the policy gradient against enumeration of all samples, its sign, its baseline, what it reaches."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.reach import RNG, distance, gradients, lively, losses, made, masked_rows
from tests.small import CLS, MASK, PAD, SEP, batch
from torch import Tensor

from electra_trainer.batch import Losses, Masked
from electra_trainer.objectives.generation import Generated
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Adversarial

SMALL = 14  # words, so that all pairs of samples are 196


def settings(**changes: Any) -> Config:
    return lively(**{"objective": Adversarial(), **changes})


def outspoken(given: Config) -> Any:
    """An objective whose discriminator is far from indifferent: what it pays goes from next to 0 to several nats."""
    objective = made(given)
    with torch.no_grad():
        objective.discriminator.discriminator_predictions.dense_prediction.weight.mul_(8)
    return objective


def row(slots: list[int]) -> Masked:
    """One row of six words of the small vocabulary, masked at `slots`."""
    ids = batch(np.array([[CLS, 5, 6, 7, 8, 9, 10, SEP, PAD, PAD]]))
    shown = ids.ids_BT.clone()
    shown[0, slots] = MASK
    return Masked(batch=ids, input_BT=shown, slots_K=torch.tensor(slots))


def force(monkeypatch: pytest.MonkeyPatch, words: tuple[int, ...]) -> None:
    """Have the generator sample these words."""
    generated = Generated(torch.zeros(()), torch.tensor(words), torch.zeros(0), torch.zeros(0))
    monkeypatch.setattr("electra_trainer.objectives.generation.generate", lambda *_, **__: generated)


def paid(objective: Any, masked: Masked, words: tuple[int, ...]) -> list[float]:
    """R of each slot by the book: -log D where the word is the original, -log(1 - D) otherwise; D = 1 - sigmoid(logit)."""
    ids = masked.batch.ids_BT.clone()
    ids[0, masked.slots_K] = torch.tensor(words)
    logits = objective.discriminator(ids, masked.batch)[0].tolist()
    found = []
    for slot, word in zip(masked.slots_K.tolist(), words, strict=True):
        d = 1 - 1 / (1 + math.exp(-logits[slot]))
        found.append(-math.log(d) if word == int(masked.batch.ids_BT[0, slot]) else -math.log(1 - d))
    return found


def probabilities(objective: Any, masked: Masked) -> Tensor:
    """p_G at the slots, with gradient, [K, V]."""
    found: Tensor = objective.generator(masked.input_BT, masked.batch, masked.slots_K).softmax(-1)
    return found


# --- the estimator alone ---


# --- the objective as a whole ---


@pytest.mark.parametrize("sharing", ["none", "embeddings"])
def test_policy_gradient_of_the_networks_by_enumeration(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All words at one slot: the mean gradient of policy_loss is -∇ Σ p_G(v) R(v) in every parameter, exactly."""
    given = settings(vocab_size=SMALL, sharing=sharing)
    objective, masked = outspoken(given), row([3])
    p_KV = probabilities(objective, masked)
    reward = [paid(objective, masked, (word,))[0] for word in range(SMALL)]
    assert max(reward) - min(reward) > 0.5
    exact = gradients(objective, -(p_KV[0] * torch.tensor(reward)).sum())
    found = {name: torch.zeros_like(gradient) for name, gradient in exact.items()}
    for word, p in enumerate(p_KV[0].tolist()):
        force(monkeypatch, (word,))
        one = gradients(objective, objective(masked, RNG).terms["policy_loss"].sum)
        assert one.keys() == found.keys()
        for name, gradient in one.items():
            found[name] += p * gradient
    assert distance(found, exact) < 1e-4


def test_each_slot_is_rewarded_for_what_is_paid_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slots, 196 pairs of samples: the mean gradient is that of Σ_t E[R_t] by the words of slot t alone, as the appendix
    simplifies ("depends only on the token x_t and the non-replaced tokens"); what another slot pays is no one's credit."""
    given = settings(vocab_size=SMALL, sharing="none")
    objective, masked = outspoken(given), row([2, 5])
    p_KV = probabilities(objective, masked)
    pairs = list(itertools.product(range(SMALL), repeat=2))
    reward = {pair: paid(objective, masked, pair) for pair in pairs}
    found: dict[str, Tensor] = {}
    for pair in pairs:
        force(monkeypatch, pair)
        one = gradients(objective, objective(masked, RNG).terms["policy_loss"].sum)
        weight = float((p_KV[0, pair[0]] * p_KV[1, pair[1]]).detach())
        for name, gradient in one.items():
            found[name] = found.get(name, 0) + weight * gradient
    mean_KV = torch.zeros(2, SMALL)  # E[R_t | word of slot t]
    for pair in pairs:
        for slot in (0, 1):
            mean_KV[slot, pair[slot]] += float(p_KV[1 - slot, pair[1 - slot]].detach()) * reward[pair][slot]
    exact = gradients(objective, -(p_KV * mean_KV).sum())
    assert distance(found, exact) < 1e-4


def by_loops(objective: Any, masked: Masked, found: Losses) -> dict[str, float]:
    """All four sums, slot by slot and token by token, in float64."""
    hidden_BTD = objective.generator.electra(masked.input_BT, masked.batch).detach().flatten(0, 1)
    corrupted, original = found.diagnostics["corrupted_BT"].flatten().tolist(), masked.batch.ids_BT.flatten().tolist()
    logits = objective.discriminator(found.diagnostics["corrupted_BT"], masked.batch).detach().flatten().tolist()
    pays = [math.log1p(math.exp(-z if c != o else z)) for z, c, o in zip(logits, corrupted, original, strict=True)]
    sums = dict.fromkeys(("generator_loss", "policy_loss", "baseline_loss"), 0.0)
    for slot in masked.slots_K.tolist():
        log_p = (
            objective.generator(masked.input_BT, masked.batch, torch.tensor([slot])).detach().double().log_softmax(-1)
        )
        s = 1 / (1 + math.exp(-float(objective.baseline(hidden_BTD[slot]).detach())))
        target = math.exp(-pays[slot])
        sums["generator_loss"] -= float(log_p[0, original[slot]])
        sums["policy_loss"] -= (pays[slot] + math.log(s)) * float(log_p[0, corrupted[slot]])
        sums["baseline_loss"] -= target * math.log(s) + (1 - target) * math.log(1 - s)
    real = [number for number, token in enumerate(original) if token != PAD]
    return {**sums, "discriminator_loss": sum(pays[number] for number in real)}


def test_terms_by_loops() -> None:
    objective, masked = outspoken(settings()), masked_rows(settings())
    found = losses(objective, masked)
    for name, expected in by_loops(objective, masked, found).items():
        assert float(found.terms[name].sum.detach()) == pytest.approx(expected, rel=1e-4), name


def test_the_generator_is_not_told_the_originals() -> None:
    """With the discriminator's verdicts held fixed, other originals change nothing in the policy gradient: no likelihood leaks in."""
    objective = outspoken(settings())
    with torch.no_grad():  # a discriminator that says 1/2 everywhere pays log 2 whatever the original is
        for parameter in objective.discriminator.discriminator_predictions.parameters():
            parameter.zero_()
    masked = masked_rows(settings())
    ids = masked.batch.ids_BT.clone()
    ids.view(-1)[masked.slots_K] = 5 + (ids.view(-1)[masked.slots_K] + 40) % 90
    other = dataclasses.replace(masked, batch=dataclasses.replace(masked.batch, ids_BT=ids))
    one, two = (gradients(objective, losses(objective, given).terms["policy_loss"].sum) for given in (masked, other))
    assert distance(two, one) < 1e-6
