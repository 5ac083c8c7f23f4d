"""The native step of Muon against its equations, in float64 on what the kernels read."""

from collections.abc import Iterator

import pytest
import torch
from tests.train.test_muon import polynomial
from torch import Tensor, nn

from electra_trainer.kernels.native import library, native_muon
from electra_trainer.train import optim

pytestmark = pytest.mark.usefixtures("variant")

SHAPES = [(32, 32, 1), (64, 160, 3), (96, 32, 1), (320, 128, 2)]  # of a matrix, and how many a weight holds
MOVES = {"momentum": 0.95, "rate": 0.02, "decay": 0.001, "quintic": (3.4445, -4.775, 2.0315)}


def precision() -> str:
    return "bf16" if library.kernels("bf16") is not None else "fp32"


def made(rows: int, columns: int, parts: int) -> tuple[list[Tensor], list[Tensor]]:
    """Three weights with gradients of very different sizes, one of them 0, and averages that point elsewhere, one of them 0."""
    random = torch.Generator().manual_seed(rows)
    shape = (parts * rows, columns)
    weights: list[Tensor] = [nn.Parameter(torch.randn(shape, generator=random)) for _ in range(3)]
    for weight, size in zip(weights, (1e-4, 1e3, 0.0), strict=True):
        weight.grad = size * torch.randn(shape, generator=random)
    return weights, [size * torch.randn(shape, generator=random) for size in (1e-4, 0.0, 0.0)]


def move(weights: list[Tensor], means: list[Tensor], parts: int) -> list[Tensor]:
    """The weights afterwards."""
    assert native_muon.fits(weights, means, parts, precision=precision())
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
        torch.testing.assert_close(average.double(), mean, rtol=1e-6, atol=1e-6 * float(gradient.abs().max()))
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
    weights, means = made(48, 32, 2)

    def fits(weights: list[Tensor], means: list[Tensor], parts: int = 1) -> bool:
        return native_muon.fits(weights, means, parts, precision=precision())

    assert fits(weights, means) and not fits(weights, means, 2)  # matrices of 48 rows
    assert not fits(weights, [means[0].mT.contiguous().mT, *means[1:]])
    assert not fits([nn.Parameter(weight.double()) for weight in weights], means)
    weights[1].grad = None
    assert not fits(weights, means)


def two_steps() -> list[Tensor]:
    """How far two steps of the optimizer move a weight of one matrix and one of two, both higher than wide."""
    random = torch.Generator().manual_seed(1)
    weights = [nn.Parameter(torch.randn(shape, generator=random)) for shape in ((64, 32), (192, 32))]
    before = [weight.detach().clone() for weight in weights]
    rounded = precision() == "bf16"
    groups = [{"params": [one], "orthogonal": n, "rounded": rounded} for one, n in zip(weights, (1, 2), strict=True)]
    optimizer = optim.Muon(groups, lr=0.02, weight_decay=0.1, fused=True)
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=random)
        optimizer.step()
        assert all(weight.grad is None for weight in weights)
    return [weight.detach() - start for weight, start in zip(weights, before, strict=True)]


def test_the_optimizer_moves_as_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    move = native_muon.move
    monkeypatch.setattr(native_muon, "move", lambda *words, **more: (calls.append(1), move(*words, **more)))
    found = two_steps()
    assert len(calls) == 4
    monkeypatch.setattr(native_muon, "fits", lambda *_, **__: False)
    for mine, theirs in zip(found, two_steps(), strict=True):
        assert (mine - theirs).norm() <= (0.03 if precision() == "bf16" else 1e-4) * theirs.norm()
    assert len(calls) == 4
