"""Masking of tokens that are guessed to be hard (Appendix H): which are chosen, both losses, and that the guesser learns to guess."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from tests.small import CLS, MASK, PAD, SEP, WORDS, batch, config, masker, rows
from torch import Tensor

from electra_trainer.batch import Masked
from electra_trainer.errors import ConfigError
from electra_trainer.objectives import build
from electra_trainer.objectives.hard_mlm import HardMaskedLanguageModelling
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, Masking, Model
from electra_trainer.settings.methods import HardMLM

RNG = Rng(3, 4, 5)


def settings(**changes: Any) -> Config:
    made = dataclasses.replace(config(), objective=HardMLM(pool=3.0, width=0.5, guess_weight=0.25))
    return dataclasses.replace(made, **changes)


def made(given: Config) -> HardMaskedLanguageModelling:
    objective = build(given)
    assert isinstance(objective, HardMaskedLanguageModelling)
    return objective


def pool(given: Config) -> Masked:
    return masker(given)(batch(rows(12)), RNG)


def test_k_of_the_pool_are_chosen_and_the_rest_has_its_words_back() -> None:
    given = settings()
    drawn, objective = pool(given), made(given)
    found = objective.chosen(drawn, objective.guessed(drawn).detach(), RNG)
    pool_BT, chosen_BT, ids_BT = drawn.chosen_BT, found.chosen_BT, drawn.batch.ids_BT
    assert not (chosen_BT & ~pool_BT).any() and int(chosen_BT.sum()) == len(found.slots_K)
    real_B = (ids_BT != PAD).sum(1)
    assert chosen_BT.sum(1).tolist() == [given.masking.positions(real, 24) for real in real_B.tolist()]
    assert int(pool_BT.sum()) > 2 * int(chosen_BT.sum())
    assert torch.equal(found.input_BT, torch.where(chosen_BT, drawn.input_BT, ids_BT))
    assert objective.counts(drawn) == {"masked": len(found.slots_K)}


def test_each_is_chosen_in_proportion_to_its_guess() -> None:
    """One of three; and of two, the second in proportion to those that are left."""
    for k, expected in ((1, [0.1, 0.3, 0.6]), (2, [1 / 10 + 0.3 / 7 + 0.6 / 4, 3 / 10 + 1 / 30 + 0.6 * 3 / 4, 0.0])):
        given = settings(masking=Masking(fraction=k / 5), objective=HardMLM(pool=2.0, width=0.5))
        ids = np.tile([CLS, 7, 8, 9, SEP], (20_000, 1))
        data = batch(ids)
        slots_K = (5 * torch.arange(len(ids))[:, None] + torch.arange(1, 4)).flatten()
        drawn = Masked(batch=data, input_BT=torch.full_like(data.ids_BT, MASK), slots_K=slots_K)
        guess_BT = torch.tensor([9.0, 1.0, 3.0, 6.0, 9.0]).expand(len(ids), 5)
        counts = made(given).chosen(drawn, guess_BT, RNG).chosen_BT.sum(0).tolist()
        assert counts[0] == counts[4] == 0 and sum(counts) == k * len(ids)
        shares = np.array(expected)
        shares[2] = k - shares[:2].sum()
        assert chisquare(counts[1:4], shares * len(ids)).pvalue > 1e-4, (k, counts)


def test_both_losses() -> None:
    """As PyTorch has them."""
    given = settings(
        model=dataclasses.replace(config().model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    )
    drawn, objective = pool(given), made(given)
    terms = objective(drawn, RNG).terms
    guess_BT = objective.guessed(drawn)
    chosen = objective.chosen(drawn, guess_BT.detach(), RNG)
    logits_KV = objective.encoder(chosen.input_BT, chosen.batch, chosen.slots_K)
    loss_K = F.cross_entropy(logits_KV, chosen.labels_K, reduction="none")
    assert float(terms["generator_loss"].sum.detach()) == pytest.approx(float(loss_K.detach().sum()), rel=1e-5)
    expected = (guess_BT.flatten()[chosen.slots_K] - loss_K).square().sum()
    assert float(terms["guess_loss"].sum.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    assert float(expected.detach()) < 3 * len(loss_K)  # the first guess is that of a BERT that knows nothing
    seen = objective(drawn, RNG, diagnose=True).diagnostics
    assert torch.equal(seen["generator_correct_K"][seen["used_K"]], logits_KV.argmax(-1) == chosen.labels_K)


def test_held_out_rows_are_masked_alike() -> None:
    """Whatever the weights are; a training step's choice follows them."""
    drawn = pool(settings())
    read: dict[bool, list[Tensor]] = {}
    for training in (True, False):
        for scale in (0.0, 100.0):
            objective = made(settings()).train(training)
            with torch.no_grad():
                objective.guess.weight.mul_(scale)
                read.setdefault(training, []).append(objective(drawn, RNG, diagnose=True).diagnostics["corrupted_BT"])
    assert torch.equal(*read[False]) and not torch.equal(*read[True])


def test_a_pool_is_at_most_all() -> None:
    """All words of a row, where more are asked for."""
    drawn = pool(settings(masking=Masking(fraction=0.5)))
    words_BT = ~torch.isin(drawn.batch.ids_BT, torch.tensor([PAD, CLS, SEP]))
    assert torch.equal(drawn.chosen_BT, words_BT)


def test_what_cannot_be() -> None:
    model = Model(vocab_size=WORDS, hidden_size=32, num_attention_heads=8, num_hidden_layers=1)
    with pytest.raises(ConfigError, match=r"objective\.width = 0\.45: gives a hidden size of 14"):
        settings(model=model, objective=HardMLM(width=0.45))
    with pytest.raises(ConfigError, match=r"masking\.draw = 'with-replacement': expected distinct"):
        settings(masking=Masking(draw="with-replacement"))
    with pytest.raises(ConfigError, match=r"objective\.pool = 0\.5: expected a number of at least 1"):
        HardMLM(pool=0.5)
