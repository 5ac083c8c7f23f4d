"""The sentence-level contrastive objective (Appendix H): which inputs stay, their labels, its losses by loops, what they reach."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.reach import RNG, lively, losses, made, masked_rows
from tests.small import CLS, MASK, PAD, SEP, batch, masker, rows
from torch import Tensor

from electra_trainer.batch import Losses, Masked
from electra_trainer.objectives import sentence_contrast
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.sentence_contrast import in_corrupted_sentence, unchanged_tokens
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, SentenceContrast

SIGMAS = 4.5


def settings(unchanged: float = 0.4, **changes: Any) -> Config:
    return lively(**{"objective": SentenceContrast(unchanged=unchanged), **changes})


def pieces(masked: Masked) -> list[list[tuple[int, int]]]:
    """The (row, column) of the tokens of each input, in order: a [CLS] begins one, padding belongs to none."""
    found: list[list[tuple[int, int]]] = []
    for row, ids in enumerate(masked.batch.ids_BT.tolist()):
        for column, token in enumerate(ids):
            if token == CLS:
                found.append([])
            if token != PAD:
                found[-1].append((row, column))
    return found


def test_a_fifth_of_the_inputs_stays_each_as_a_whole() -> None:
    """Each input is drawn for on its own, also beside another in the row; all of its tokens share the draw."""
    masked = masked_rows(settings(), 60)
    inputs = pieces(masked)
    assert SentenceContrast().unchanged == 0.2
    draws, neighbours = np.zeros((300, len(inputs)), dtype=bool), []
    for step in range(300):
        stays = unchanged_tokens(masked.batch, Rng(1, step, 0), 0.2)
        for number, tokens in enumerate(inputs):
            found = {bool(stays[place]) for place in tokens} if step < 10 else {bool(stays[tokens[0]])}
            assert len(found) == 1
            draws[step, number] = found.pop()
        neighbours += [
            (draws[step, number], draws[step, number + 1])
            for number in range(len(inputs) - 1)
            if inputs[number][0][0] == inputs[number + 1][0][0]
        ]
    assert abs(draws.mean() - 0.2) <= SIGMAS * math.sqrt(0.2 * 0.8 / draws.size)
    for column in draws.T:
        assert abs(column.mean() - 0.2) <= 5 * math.sqrt(0.2 * 0.8 / 300)
    both = np.array(neighbours).all(axis=1)
    assert abs(both.mean() - 0.04) <= SIGMAS * math.sqrt(0.04 * 0.96 / len(both))


def test_the_generator_reads_every_input_masked_and_is_trained_on_all() -> None:
    """Also the inputs that stay: its loss, and what it reads, are those of RTD."""
    objective, masked = made(settings()), masked_rows(settings())
    read: list[Tensor] = []
    objective.generator.electra.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0]))
    found = losses(objective, masked)
    assert len(read) == 1 and torch.equal(read[0], masked.input_BT) and (masked.input_BT == MASK).any()
    plain = losses(made(lively(objective=RTD())), masked)
    assert torch.equal(found.terms["generator_loss"].sum, plain.terms["generator_loss"].sum)
    stays = unchanged_tokens(masked.batch, RNG, 0.4)
    assert torch.equal(
        found.diagnostics["corrupted_BT"], torch.where(stays, masked.batch.ids_BT, plain.diagnostics["corrupted_BT"])
    )


def labels_of(found: Losses) -> Tensor:
    """The label of each input, in order."""
    return found.diagnostics["sentence_corrupted"][found.diagnostics["sentence_counted"]]


def by_loops(objective: Any, masked: Masked, found: Losses) -> tuple[dict[str, float], list[bool]]:
    """The two losses of the discriminator, token by token and input by input, and the label of each input."""
    corrupted, original = found.diagnostics["corrupted_BT"].tolist(), masked.batch.ids_BT.tolist()
    with torch.no_grad():
        hidden_BTD = objective.discriminator.electra(found.diagnostics["corrupted_BT"], masked.batch)
        logits = objective.discriminator(found.diagnostics["corrupted_BT"], masked.batch).tolist()
    weight, bias = objective.sentence.weight[0].tolist(), float(objective.sentence.bias.detach())
    sums, labels = {"discriminator_loss": 0.0, "sentence_loss": 0.0}, []
    for tokens in pieces(masked):
        differ = [corrupted[row][column] != original[row][column] for row, column in tokens]
        for (row, column), replaced in zip(tokens, differ, strict=True):
            z = logits[row][column]
            sums["discriminator_loss"] += math.log1p(math.exp(-z if replaced else z))
        row, column = tokens[0]
        z = bias + sum(w * h for w, h in zip(weight, hidden_BTD[row, column].tolist(), strict=True))
        sums["sentence_loss"] += math.log1p(math.exp(-z if any(differ) else z))
        labels.append(any(differ))
    return sums, labels


def test_losses_and_labels_by_loops() -> None:
    objective, masked = made(settings()), masked_rows(settings())
    found = losses(objective, masked)
    sums, labels = by_loops(objective, masked, found)
    for name, expected in sums.items():
        assert float(found.terms[name].sum.detach()) == pytest.approx(expected, rel=1e-5), name
    assert labels_of(found).tolist() == labels and {True, False} == set(labels)


def test_a_head_that_reads_all_tokens_counts_the_first_of_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a GPU computes it: the same loss, labels and gradients."""
    found = []
    for picks in (True, False):
        monkeypatch.setattr(sentence_contrast, "picks_out", lambda device, picks=picks: picks)
        objective = made(settings())
        result = losses(objective, masked_rows(settings()))
        result.terms["sentence_loss"].sum.backward()
        gradients = {n: p.grad for n, p in objective.named_parameters() if p.grad is not None}
        found.append((float(result.terms["sentence_loss"].sum.detach()), labels_of(result).tolist(), gradients))
    (one, labels, expected), (two, same, gradients) = found
    assert two == pytest.approx(one, rel=1e-5) and same == labels and gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-6), name


def test_an_input_whose_samples_were_all_lucky_is_not_corrupted() -> None:
    """As a lucky token counts as original (§2); one other word makes it corrupted. Empty inputs and padding are none."""
    made = [
        [CLS, 5, 6, 7, SEP, CLS, 8, 9, SEP, PAD],
        [CLS, 10, 11, 12, SEP, CLS, 13, 14, SEP, PAD],
        [CLS, SEP, CLS, 15, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    ids = batch(np.array(made))
    slots = torch.tensor([1, 3, 7, 12, 16, 23])
    masked = Masked(batch=ids, input_BT=ids.ids_BT, slots_K=slots)
    samples = torch.tensor([5, 7, 50, 11, 13, 51])  # lucky, lucky | other | lucky | lucky | - | other
    starts_BT = ids.real_BT & (ids.position_BT == 0)
    found = in_corrupted_sentence(corrupt(masked, samples))[starts_BT]
    assert found.tolist() == [False, True, False, False, False, True]


@pytest.mark.parametrize(("unchanged", "label"), [(0.0, None), (1.0, False)])
def test_none_and_all_unchanged(unchanged: float, label: bool | None) -> None:
    """With none it is RTD, to the bit; with all there is nothing to find."""
    objective, masked = made(settings(unchanged)), masked_rows(settings())
    found = losses(objective, masked)
    if label is None:
        plain = losses(made(lively(objective=RTD())), masked)
        assert torch.equal(found.terms["discriminator_loss"].sum, plain.terms["discriminator_loss"].sum)
        assert torch.equal(found.diagnostics["corrupted_BT"], plain.diagnostics["corrupted_BT"])
    else:
        assert torch.equal(found.diagnostics["corrupted_BT"], masked.batch.ids_BT)
        assert not labels_of(found).any() and not found.diagnostics["replaced_BT"].any()


def test_repeated_positions_in_an_input_that_stays() -> None:
    """Drawn with replacement, the average of an original with itself is the original."""
    given = settings(1.0)
    given = dataclasses.replace(given, masking=dataclasses.replace(given.masking, draw="with-replacement"))
    masked = masker(given)(batch(rows(40)), RNG)
    assert len(set(masked.slots_K.tolist())) < len(masked.slots_K)
    assert torch.equal(losses(made(given), masked).diagnostics["corrupted_BT"], masked.batch.ids_BT)
