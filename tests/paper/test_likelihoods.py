"""Appendix G: the formula, its derivation by enumeration, and the p_mask of each kind of run."""

import dataclasses
import math

import pytest
import torch
from tests import small
from torch import Tensor

from electra_trainer.errors import ConfigError
from electra_trainer.paper.likelihoods import log_likelihood, masked_share, sampling_temperature
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import RTD, Learned, SentenceContrast, Unigram

WORDS = 7
P_MASK = [0.05, 0.15, 0.25, 0.6]


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    """p_data and p_G over a tiny vocabulary, fp64."""
    random = torch.Generator().manual_seed(seed)
    p_data, p_generator = (torch.randn(2, WORDS, generator=random, dtype=torch.float64) * 1.5).softmax(-1)
    return p_data, p_generator


def optimal(p_data: Tensor, p_generator: Tensor, p_mask: float) -> Tensor:
    """Appendix G's optimal discriminator."""
    a = (1 - p_mask) / p_mask
    return p_data * (a + p_generator) / (a * p_data + p_generator)


def printed_loss(d: Tensor, p_data: Tensor, p_generator: Tensor, p_mask: float) -> Tensor:
    """The three terms of Appendix G word by word, with the minus sign that makes it a loss."""
    total = torch.zeros((), dtype=torch.float64)
    for x in range(WORDS):
        total = total - (1 - p_mask) * p_data[x] * d[x].log()
        total = total - p_mask * p_data[x] * p_generator[x] * d[x].log()
        total = total - p_mask * (1 - p_data[x]) * p_generator[x] * (1 - d[x]).log()
    return total


def enumerated_loss(d: Tensor, p_data: Tensor, p_generator: Tensor, p_mask: float) -> Tensor:
    """The expected loss of what training does: draw the true word; leave it, or sample one; a lucky sample is an original."""
    total = torch.zeros((), dtype=torch.float64)
    for true in range(WORDS):
        total = total - p_data[true] * (1 - p_mask) * d[true].log()
        for sampled in range(WORDS):
            chance = p_data[true] * p_mask * p_generator[sampled]
            total = total - chance * (d[sampled] if sampled == true else 1 - d[sampled]).log()
    return total


@pytest.mark.parametrize("p_mask", P_MASK)
@pytest.mark.parametrize("seed", range(3))
def test_recovers_p_data_from_the_optimal_discriminator(p_mask: float, seed: int) -> None:
    p_data, p_generator = distributions(seed)
    d = optimal(p_data, p_generator, p_mask)
    found = log_likelihood(-torch.logit(d), p_generator.log(), p_mask=p_mask).exp()
    assert torch.allclose(found, p_data, atol=1e-12)


@pytest.mark.parametrize("loss", [printed_loss, enumerated_loss])
@pytest.mark.parametrize("p_mask", P_MASK)
def test_optimal_discriminator_minimises_the_loss(loss: object, p_mask: float) -> None:
    """Numerically, from a constant start; so Appendix G's loss is that of the training procedure, and its D* the minimiser."""
    assert callable(loss)
    p_data, p_generator = distributions(5)
    logits = torch.zeros(WORDS, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(logits.sigmoid(), p_data, p_generator, p_mask)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)
    assert torch.allclose(logits.detach().sigmoid(), optimal(p_data, p_generator, p_mask), atol=1e-6)


def test_all_masked_is_the_discriminator_itself() -> None:
    """p_mask = 1, ELECTRA 15 %: then D* = p_data, and p_G cancels."""
    p_data, p_generator = distributions(1)
    found = log_likelihood(-torch.logit(p_data), p_generator.log(), p_mask=1.0).exp()
    assert torch.allclose(found, p_data, atol=1e-12)


@pytest.mark.parametrize("logit", [-60.0, 0.0, 60.0])
def test_extreme_values_stay_numbers(logit: float) -> None:
    """fp32, where 1 - D and p_G are below what a probability can hold."""
    found = float(log_likelihood(torch.tensor(logit), torch.tensor(-150.0), p_mask=0.15))
    a, log_d, log_not_d = 0.85 / 0.15, -math.log1p(math.exp(logit)), -math.log1p(math.exp(-logit))
    largest = max(math.log(a) + log_not_d, -150.0)
    expected = (
        log_d - 150 - (largest + math.log(math.exp(math.log(a) + log_not_d - largest) + math.exp(-150 - largest)))
    )
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-4)


def with_(**changes: object) -> Config:
    return dataclasses.replace(small.config(), **changes)  # type: ignore[arg-type]


def test_p_mask_of_a_run() -> None:
    assert masked_share(small.config()) == (0.25, "")
    assert masked_share(small.config(), given=0.4).p_mask == 0.4
    assert masked_share(with_(objective=RTD(loss_over="masked"))).p_mask == 1.0
    assert masked_share(with_(objective=RTD(loss_over="other"))) == (0.25, "")
    assert masked_share(with_(objective=SentenceContrast(unchanged=0.2))).p_mask == pytest.approx(0.2)
    twice = changed(small.config(), masking={"draw": "with-replacement"})
    chosen = small.masker(twice)(small.batch(small.rows(400, full=True)), Rng(1, 1, 0)).slots_K
    share = len(chosen[chosen >= 0].unique()) / (400 * 24)
    assert masked_share(twice).p_mask == pytest.approx(share, abs=0.01)
    for none in (
        changed(small.config(), masking={"rarity": 0.5}),
        with_(generator=Learned(width=0.5, disallow_correct=True)),
        with_(generator=Unigram()),
        with_(objective=RTD(lucky="fake")),
        None,
    ):
        p_mask, note = masked_share(none)
        assert p_mask is None and note
    assert masked_share(None, given=0.15) == (0.15, "")
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="--p-mask"):
            masked_share(small.config(), given=wrong)
    assert sampling_temperature(with_(generator=Learned(width=0.5, temperature=1.5))) == 1.5
    assert sampling_temperature(None) == 1.0
