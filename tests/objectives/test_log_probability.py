"""The chunked log probability against the plain way, values and all three gradients, each position with a separate upstream."""

import pytest
import torch
from torch import Tensor

from electra_trainer.kernels import vocabulary_softmax as module
from electra_trainer.kernels.vocabulary_softmax import log_probability

POSITIONS, WORDS, WIDTH = 37, 53, 8
CHUNKS = pytest.mark.parametrize("rows", [1, 5, 36, 37, 1000])


def inputs(scale: float = 1.0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Projection, words and bias with gradients; labels, a third of them negative; upstream gradients of both signs."""
    generator = torch.Generator().manual_seed(0)
    shapes = (POSITIONS, WIDTH), (WORDS, WIDTH), (WORDS,)
    tensors = [(scale * torch.randn(*shape, generator=generator)).requires_grad_() for shape in shapes]
    labels = torch.randint(WORDS, (POSITIONS,), generator=generator)
    labels[::3] = -100
    labels[1], labels[2] = 0, WORDS - 1
    return tensors, labels, torch.randn(POSITIONS, generator=generator)


def plain(tensors: list[Tensor], labels: Tensor) -> tuple[list[Tensor], Tensor]:
    """In float64: the same leaves, and log softmax at the labels, position by position."""
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found = []
    for number, label in enumerate(labels.tolist()):
        logits_V = exact[1] @ exact[0][number] + exact[2]
        found.append(logits_V[label] - logits_V.logsumexp(0) if label >= 0 else torch.zeros((), dtype=torch.float64))
    return exact, torch.stack(found)


def relative(mine: Tensor, exact: Tensor) -> float:
    mine, exact = mine.detach().double(), exact.detach().double()
    return float((mine - exact).norm() / exact.norm())


@CHUNKS
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_values_and_gradients(rows: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", rows * WORDS)
    tensors, labels, upstream = inputs(scale)
    found = log_probability(*tensors, labels)
    exact, expected = plain(tensors, labels)
    assert found.dtype == torch.float32 and found.shape == (POSITIONS,)
    assert relative(found, expected) < 1e-5
    mine = torch.autograd.grad(found, tensors, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream.double())
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == torch.float32 and relative(one, other) < 2e-5


def test_large_logits() -> None:
    """Logits in the ten thousands neither overflow nor lose the sum: values to 1e-6 of the largest logit."""
    tensors, labels, upstream = inputs(60.0)
    found = log_probability(*tensors, labels)
    _, expected = plain(tensors, labels)
    assert float(expected.detach().abs().max()) > 1e4
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-2)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found, tensors, upstream))


def test_no_positions() -> None:
    tensors, labels, _ = inputs()
    found = log_probability(tensors[0][:0], *tensors[1:], labels[:0])
    assert found.shape == (0,)
    assert not any(gradient.any() for gradient in torch.autograd.grad(found.sum(), tensors[1:]))


def test_under_autocast() -> None:
    """bf16 products, fp32 softmax: within 1 % of fp32, gradients in each tensor's own type."""
    tensors, labels, upstream = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = log_probability(*tensors, labels)
    exact = log_probability(*tensors, labels)
    assert rough.dtype == torch.float32 and 0 < relative(rough, exact) < 1e-2
    with torch.autocast("cpu", dtype=torch.bfloat16):  # the backward pass may run within, too
        mine = torch.autograd.grad(rough, tensors, upstream)
    for one, other in zip(mine, torch.autograd.grad(exact, tensors, upstream), strict=True):
        assert one.dtype == torch.float32 and relative(one, other) < 2e-2


def test_a_hidden_state_in_bf16_gets_a_gradient_in_bf16() -> None:
    tensors, labels, upstream = inputs()
    half = tensors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = log_probability(half, *tensors[1:], labels)
    mine, words, _ = torch.autograd.grad(found, [half, *tensors[1:]], upstream)
    assert mine.dtype == torch.bfloat16 and words.dtype == torch.float32 and mine.any()
