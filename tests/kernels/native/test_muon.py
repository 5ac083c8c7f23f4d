"""The native step of Muon against its equations, in float64 on what the kernels read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.train.test_muon import polynomial
from torch import Tensor, nn

from electra_trainer.kernels.native import library, native_muon

pytestmark = pytest.mark.usefixtures("variant")

SHAPES = [(32, 32, 1), (64, 160, 3), (96, 32, 1), (320, 128, 2)]  # of a matrix, and how many a weight holds
MOVES = {"momentum": 0.95, "rate": 0.02, "decay": 0.001, "quintic": (3.4445, -4.775, 2.0315)}


def precision() -> str:
    return "bf16" if library.kernels("bf16") is not None else "fp32"


def made(rows: int, columns: int, parts: int) -> tuple[list[Tensor], list[Tensor]]:
    """Three weights with gradients of very different sizes, one of them 0, and their averages."""
    random = torch.Generator().manual_seed(rows)
    shape = (parts * rows, columns)
    weights: list[Tensor] = [nn.Parameter(torch.randn(shape, generator=random)) for _ in range(3)]
    for weight, size in zip(weights, (1e-4, 1e3, 0.0), strict=True):
        weight.grad = size * torch.randn(shape, generator=random)
    return weights, [0.5 * weight.grad for weight in weights if weight.grad is not None]


def move(weights: list[Tensor], means: list[Tensor], parts: int) -> list[Tensor]:
    """The weights afterwards."""
    assert native_muon.fits(weights, parts, precision=precision())
    with torch.no_grad():
        native_muon.move(weights, means, parts, precision=precision(), **MOVES)  # type: ignore[arg-type]
    return [weight.detach().clone() for weight in weights]


@pytest.mark.parametrize(("rows", "columns", "parts"), SHAPES)
def test_equals_the_equations(rows: int, columns: int, parts: int) -> None:
    weights, means = made(rows, columns, parts)
    before = [(weight.detach().double(), mean.double()) for weight, mean in zip(weights, means, strict=True)]
    moved = move(weights, means, parts)
    for (weight, mean), found, average, now in zip(before, moved, means, weights, strict=True):
        assert now.grad is not None
        gradient = now.grad.double()
        mean = 0.95 * mean + 0.05 * gradient
        torch.testing.assert_close(average.double(), mean, rtol=1e-6, atol=0.0)
        ahead = (0.05 * gradient + 0.95 * mean).view(parts, rows, columns).numpy()
        turns = [torch.tensor(polynomial(one)) if one.any() else torch.zeros(rows, columns) for one in ahead]
        change = 0.02 * torch.cat(turns)
        limit = 0.03 if precision() == "bf16" else 2e-4
        assert (found - (0.999 * weight - change)).norm() <= limit * change.norm() + 1e-6 * weight.norm()


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_threads_change_no_bit() -> None:
    found = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        weights, means = made(64, 160, 3)
        found.append([*move(weights, means, 3), *means])
    assert all(torch.equal(a, b) for others in found[1:] for a, b in zip(found[0], others, strict=True))


def test_what_does_not_fit_is_left_to_pytorch() -> None:
    weights, _ = made(48, 32, 2)
    assert native_muon.fits(weights, 1, precision=precision())
    assert not native_muon.fits(weights, 2, precision=precision())  # matrices of 48 rows
    weights[1].grad = weights[1].grad.mT.contiguous().mT if weights[1].grad is not None else None
    assert not native_muon.fits(weights, 1, precision=precision())
