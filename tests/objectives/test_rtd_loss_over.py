"""Tokens that the discriminator's loss counts (§2, §3.5 "ELECTRA 15%", footnote 8), token by token."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tests.reach import RNG, gradients, lively, losses, made, masked_rows, with_unused_slots
from tests.small import CLS, PAD, SEP, batch, masker, rows

from electra_trainer.batch import Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.rtd import other_tokens
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD

OVER = pytest.mark.parametrize("loss_over", ["all", "masked", "other"])
SIGMAS = 4.5


def settings(loss_over: str) -> Config:
    return lively(objective=RTD(loss_over=loss_over))  # type: ignore[arg-type]


def expected_tokens(loss_over: str, masked: Masked) -> list[tuple[int, int]]:
    """(row, column) of every token that counts, by the words of the paper."""
    ids, columns = masked.batch.ids_BT.tolist(), masked.batch.ids_BT.shape[1]
    every = [(row, column) for row in range(len(ids)) for column in range(columns)]
    if loss_over == "all":
        return [(row, column) for row, column in every if ids[row][column] != PAD]
    if loss_over == "masked":
        slots = set(masked.slots_K.tolist())
        return [(row, column) for row, column in every if row * columns + column in slots]
    return [(row, column) for row, column in every if other_tokens(masked, RNG)[row, column]]


def cross_entropy(logit: float, *, replaced: bool) -> float:
    """-log of the probability that sigmoid(logit) gives to what is the case."""
    return math.log1p(math.exp(-logit)) if replaced else math.log1p(math.exp(logit))


@OVER
def test_loss_and_count_by_a_loop(loss_over: str) -> None:
    objective, masked = made(settings(loss_over)), masked_rows(settings(loss_over))
    found = losses(objective, masked)
    corrupted = found.diagnostics["corrupted_BT"]
    logits, original = objective.discriminator(corrupted, masked.batch).tolist(), masked.batch.ids_BT.tolist()
    tokens = expected_tokens(loss_over, masked)
    expected = sum(
        cross_entropy(logits[row][column], replaced=int(corrupted[row, column]) != original[row][column])
        for row, column in tokens
    )
    term = found.terms["discriminator_loss"]
    assert float(term.sum.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(objective.counts(masked)[term.count]) == len(tokens) > 20
    assert [tuple(place) for place in found.diagnostics["counted_BT"].nonzero().tolist()] == tokens


def test_a_lucky_sample_counts_as_a_fake_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample is the original word: none is a fake by the paper, all are by `lucky = "fake"`, and nothing else."""
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", lambda m, _: corrupt(m, m.labels_K))
    masked = with_unused_slots(masked_rows(settings("all")))
    for lucky, fakes in (("original", torch.zeros_like(masked.chosen_BT)), ("fake", masked.chosen_BT)):
        objective = made(lively(objective=RTD(lucky=lucky)))  # type: ignore[arg-type]
        found = losses(objective, masked)
        logits_BT = objective.discriminator(masked.batch.ids_BT, masked.batch)
        each_BT = torch.nn.functional.binary_cross_entropy_with_logits(logits_BT, fakes.float(), reduction="none")
        expected = float(each_BT[masked.batch.ids_BT != PAD].sum().detach())
        assert float(found.terms["discriminator_loss"].sum.detach()) == pytest.approx(expected, rel=1e-5)
        assert torch.equal(found.diagnostics["replaced_BT"], fakes)


def test_the_generator_does_not_know_which_tokens_count() -> None:
    """Same loss, same gradient, same samples: ELECTRA 15 % differs in the sum of the discriminator alone."""
    given = [settings(loss_over) for loss_over in ("all", "masked", "other")]
    objectives = [made(one) for one in given]
    found = [losses(objective, masked_rows(given[0])) for objective in objectives]
    first = gradients(objectives[0], found[0].terms["generator_loss"].sum)
    for objective, other in zip(objectives[1:], found[1:], strict=True):
        assert torch.equal(other.terms["generator_loss"].sum, found[0].terms["generator_loss"].sum)
        assert torch.equal(other.diagnostics["corrupted_BT"], found[0].diagnostics["corrupted_BT"])
        mine = gradients(objective, other.terms["generator_loss"].sum)
        assert all(torch.equal(mine[name], first[name]) for name in first)


def test_other_tokens_are_as_many_in_each_row_and_real() -> None:
    masked = masked_rows(settings("other"), 40)
    other = other_tokens(masked, RNG)
    columns = masked.batch.ids_BT.shape[1]
    for row, ids in enumerate(masked.batch.ids_BT.tolist()):
        chosen = len({slot for slot in masked.slots_K.tolist() if slot // columns == row})
        assert sum(other[row].tolist()) == chosen > 0
        assert not any(picked and token == PAD for picked, token in zip(other[row].tolist(), ids, strict=True))


def test_other_tokens_with_repeated_choices_and_without_any() -> None:
    """A position drawn twice counts once; a row of padding and one of [CLS] [SEP] have none."""
    given = settings("other")
    repeated = dataclasses.replace(given, masking=dataclasses.replace(given.masking, draw="with-replacement"))
    masked = masker(repeated)(batch(rows(40)), RNG)
    assert len(set(masked.slots_K.tolist())) < len(masked.slots_K)
    assert torch.equal(other_tokens(masked, RNG).sum(1), masked.chosen_BT.sum(1))
    empty = masker(given)(batch(np.array([[CLS, SEP, PAD, PAD], [PAD] * 4])), RNG)
    assert not other_tokens(empty, RNG).any()


def test_other_tokens_have_nothing_to_do_with_the_chosen() -> None:
    """As many of the chosen tokens are among the others as of any real tokens; every column is as likely as another, specials too."""
    masked = masker(settings("other"))(batch(rows(50, full=True)), RNG)
    chosen, counts, both, draws = masked.chosen_BT, torch.zeros(24), 0, 400
    for step in range(draws):
        other = other_tokens(masked, Rng(1, step, 0))
        counts += other.sum(0)
        both += int((other & chosen).sum())
    rate, tries = 6 / 24, draws * int(chosen.sum())  # six of the 24 tokens of a row
    assert int(chosen.sum()) == 50 * 6
    assert abs(both / tries - rate) <= SIGMAS * math.sqrt(rate * (1 - rate) / tries)
    assert chisquare(counts.numpy()).pvalue > 1e-4
