"""Reported numbers against loops over tokens."""

from __future__ import annotations

import math

import pytest
import torch

from electra_trainer.batch import Losses, Term
from electra_trainer.train.measures import binary_entropy, in_one_copy, keep_measured, measure


def lane(seed: int, *, slots: int, real: int) -> Losses:
    """One lane of an RTD-like objective with random contents."""
    random = torch.Generator().manual_seed(seed)
    return Losses(
        terms={
            "generator_loss": Term(sum=5 * slots * torch.rand((), generator=random), count="masked", weight=1.0),
            "discriminator_loss": Term(sum=real * torch.rand((), generator=random), count="real", weight=50.0),
        },
        diagnostics={
            "generator_correct_K": torch.rand(slots, generator=random) < 0.4,
            "generator_entropy_K": 3 * torch.rand(slots, generator=random),
            "replaced_N": torch.rand(real, generator=random) < 0.2,
            "counted_replaced_N": torch.rand(real // 2, generator=random) < 0.3,
            "counted_logit_N": torch.randn(real // 2, generator=random).round(decimals=1),  # with ties
        },
    )


LANES = [lane(1, slots=4, real=30), lane(2, slots=9, real=50)]
COUNTS = {"masked": 13.0, "real": 80.0}


def auc(replaced: list[bool], logits: list[float]) -> float:
    """Share of pairs in which the replaced token has the higher logit; a tie is half."""
    wins, pairs = 0.0, 0
    for fake, high in zip(replaced, logits, strict=True):
        for other, low in zip(replaced, logits, strict=True):
            if fake and not other:
                pairs += 1
                wins += 1.0 if high > low else 0.5 if high == low else 0.0
    return wins / pairs


def joined(name: str) -> list[float]:
    return [value for one in LANES for value in one.diagnostics[name].tolist()]


def test_means_over_lanes_of_different_sizes() -> None:
    found = measure(LANES, COUNTS)
    generator = sum(float(one.terms["generator_loss"].sum) for one in LANES) / 13
    discriminator = sum(float(one.terms["discriminator_loss"].sum) for one in LANES) / 80
    assert found["generator_loss"] == pytest.approx(generator)
    assert found["discriminator_loss"] == pytest.approx(discriminator)
    assert found["loss"] == pytest.approx(generator + 50 * discriminator)
    assert found["generator_accuracy"] == pytest.approx(sum(joined("generator_correct_K")) / 13)
    assert found["generator_entropy"] == pytest.approx(sum(joined("generator_entropy_K")) / 13)


def test_rates_and_auc() -> None:
    found = measure(LANES, COUNTS)
    assert found["fake_rate"] == pytest.approx(sum(joined("replaced_N")) / 80)
    replaced = [bool(value) for value in joined("counted_replaced_N")]
    rate = sum(replaced) / 40
    assert found["discriminator_auc"] == pytest.approx(auc(replaced, joined("counted_logit_N")))
    constant = -sum(math.log(rate if fake else 1 - rate) for fake in replaced) / 40
    assert found["discriminator_constant_loss"] == pytest.approx(constant)


def test_the_rate_of_fakes_is_that_of_real_tokens_whatever_the_loss_counts() -> None:
    """ELECTRA 15 % counts the chosen tokens alone; of these a larger share is replaced."""
    real_BT = torch.ones(2, 10, dtype=torch.bool)
    chosen_BT, replaced_BT = torch.zeros_like(real_BT), torch.zeros_like(real_BT)
    chosen_BT[:, :4] = replaced_BT[:, :3] = True
    diagnostics = {
        "real_BT": real_BT, "counted_BT": chosen_BT, "replaced_BT": replaced_BT, "replaced_logit_BT": torch.zeros(2, 10),
    }  # fmt: skip
    term = Term(sum=torch.ones(()), count="chosen", weight=50.0)
    kept = keep_measured(Losses(terms={"discriminator_loss": term}, diagnostics=diagnostics))
    found = measure([kept], {"chosen": 8.0})
    assert found["fake_rate"] == pytest.approx(0.3)
    assert found["discriminator_constant_loss"] == pytest.approx(binary_entropy(0.75))


@pytest.mark.parametrize("everything", [True, False])
def test_auc_of_one_class_is_chance(everything: bool) -> None:
    one = lane(3, slots=2, real=10)
    one.diagnostics["counted_replaced_N"][:] = everything
    found = measure([one], {"masked": 2.0, "real": 10.0})
    assert found["discriminator_auc"] == 0.5
    assert found["discriminator_constant_loss"] == 0.0


def test_logits_that_are_no_numbers_do_not_stop_the_report() -> None:
    one = lane(4, slots=2, real=10)
    one.diagnostics["counted_logit_N"][3] = float("nan")
    assert measure([one], {"masked": 2.0, "real": 10.0})["discriminator_auc"] == 0.5


def test_a_masked_lm_has_no_discriminator() -> None:
    one = lane(5, slots=4, real=10)
    seen = {name: tensor for name, tensor in one.diagnostics.items() if name.startswith("generator")}
    found = measure([Losses(terms={"generator_loss": one.terms["generator_loss"]}, diagnostics=seen)], {"masked": 4.0})
    assert set(found) == {"loss", "generator_loss", "generator_accuracy", "generator_entropy"}


def test_an_evaluation_without_slots_has_numbers() -> None:
    """Rows without a candidate: every value is finite."""
    nothing = lane(6, slots=0, real=10)
    found = measure([nothing], {"masked": 0.0, "real": 10.0})
    assert all(math.isfinite(value) for value in found.values()), found


def test_what_comes_in_one_copy_is_what_was_sent() -> None:
    """Types of 1 to 8 bytes, scalars, nothing at all, and a tensor that is not contiguous."""
    sent = {
        "flags": torch.tensor([[True, False, True]]), "sum": torch.tensor(2.5), "half": torch.tensor([1.5, -2], dtype=torch.bfloat16),
        "count": torch.tensor(1 << 40), "none": torch.zeros(0), "turned": torch.arange(6.0).view(2, 3).t(),
    }  # fmt: skip
    found = in_one_copy(sent)
    assert found.keys() == sent.keys()
    for name, tensor in sent.items():
        assert torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype, name
