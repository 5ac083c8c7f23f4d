"""Dropout from cheap random bits."""

import math

import pytest
import torch

from electra_trainer.kernels.cpu_dropout import drop, kept_bits, kept_scale
from electra_trainer.model.attention import Dropout

TYPES = [torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_drops_its_share_and_keeps_the_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    count = 200_003  # no multiple of the four elements that a draw gives
    out = drop(torch.ones(count, dtype=dtype), p).double()
    kept = out != 0
    assert kept.double().mean().item() == pytest.approx(1 - p, abs=4 * math.sqrt(p * (1 - p) / count) + 2**-15)
    assert out[kept].unique().numel() == 1
    assert out[kept][0].item() == pytest.approx(1 / (1 - p), rel=5e-3 if dtype == torch.bfloat16 else 2e-4)


def test_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    kept = kept_bits(torch.Size([1000, 1000]), 0.3, 1).bool()
    assert kept.float().mean(0).std().item() == pytest.approx(math.sqrt(0.21 / 1000), rel=0.1)
    for shift in (1, 2, 4, 16):
        agree = (kept == kept.roll(shift, 1)).float().mean().item()
        assert agree == pytest.approx(0.7**2 + 0.3**2, abs=0.003)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_gradient_passes_where_the_value_did(dtype: torch.dtype) -> None:
    x = torch.randn(64, 33, dtype=dtype).requires_grad_()
    out = drop(x, 0.25)
    (gradient,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert torch.equal(gradient != 0, out != 0)
    assert gradient[gradient != 0].unique().item() == pytest.approx(kept_scale(0.25), rel=5e-3)
    assert torch.allclose(out, x * gradient, rtol=1e-2)


def test_follows_the_seed_and_is_off_in_evaluation() -> None:
    module, x = Dropout(0.1), torch.ones(1000)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(module(x))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(module.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_extremes() -> None:
    assert drop(torch.ones(100), 1.0).sum() == 0
    assert drop(torch.ones(0), 0.5).shape == (0,)
    transposed = torch.arange(6.0).view(2, 3).t()
    assert drop(transposed, 0.5).shape == (3, 2)
