"""The native softmax over the vocabulary against the plain way, in fp32 on inputs that bf16 holds exactly."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Categorical

from electra_trainer.kernels.native import library
from electra_trainer.kernels.native import native_softmax as native
from electra_trainer.kernels.vocabulary_softmax import invert

pytestmark = pytest.mark.usefixtures("variant")

SIZES = [(1, 40, 32), (33, 256, 64), (300, 1000, 128), (257, 4099, 32)]  # positions, words, width


def inputs(positions: int, words: int, width: int, *, scale: float = 1.0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Hidden states, table and bias that want gradients; labels; draws."""
    random = torch.Generator().manual_seed(2)
    hidden, table, bias = (
        torch.randn(shape, generator=random) for shape in ((positions, width), (words, width), (words,))
    )
    tensors = [(scale * hidden / width**0.5).bfloat16().float(), table.bfloat16().float(), bias]
    labels = torch.randint(words, (positions,), generator=random)
    return [t.requires_grad_() for t in tensors], labels, torch.rand(positions, generator=random)


def run(tensors: list[Tensor], labels: Tensor, draws: Tensor | None) -> tuple[Tensor, ...]:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=library.kernels("bf16") is not None):
        assert native.fits(tensors[0])
        return native.run_softmax(*tensors, labels, draws)  # type: ignore[arg-type]


def limit() -> float:
    """Bound of a gradient's relative error: the gradient of a logit is rounded to bf16, or not at all."""
    return 0.005 if library.kernels("bf16") else 2e-5


@functools.cache
def expected(size: tuple[int, int, int], scale: float) -> tuple[float, Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
    """Loss, probabilities, which labels are right, entropy, gradients: the plain way, the same for every variant."""
    tensors, labels, _ = inputs(*size, scale=scale)
    logits = F.linear(*tensors)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    gradients = torch.autograd.grad(loss, tensors)
    logits = logits.detach()
    correct, entropy = logits.argmax(-1) == labels, Categorical(logits=logits).entropy()
    return loss.item(), logits.softmax(-1), correct, entropy, gradients


@pytest.mark.parametrize("scale", [0.1, 2.0, 60.0], ids=["flat", "usual", "sharp"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_plain_way(size: tuple[int, int, int], scale: float) -> None:
    tensors, labels, draws = inputs(*size, scale=scale)
    truth, p, right, entropy, gradients = expected(size, scale)
    loss, sampled, correct, found_entropy = run(tensors, labels, draws)
    assert loss.item() == pytest.approx(truth, rel=1e-5)
    same = sampled == invert(p, draws)
    assert same.float().mean() > 0.98  # the rest: a draw within rounding of a border
    assert (p[~same].gather(1, sampled[~same, None]) > 0).all()
    assert correct.tolist() == right.tolist()
    assert torch.allclose(found_entropy, entropy, rtol=1e-4, atol=1e-4)
    for mine, plain in zip(torch.autograd.grad(loss, tensors), gradients, strict=True):
        assert (mine - plain).norm() <= limit() * plain.norm()


def test_the_gradient_is_scaled_by_what_comes_after() -> None:
    tensors, labels, draws = inputs(33, 256, 64)
    once = torch.autograd.grad(run(tensors, labels, draws)[0], tensors)
    scaled = torch.autograd.grad(run(tensors, labels, draws)[0] * 2.5, tensors)
    for one, other in zip(once, scaled, strict=True):
        assert torch.allclose(2.5 * one, other)


def test_samples_follow_the_distribution() -> None:
    tensors, _, _ = inputs(1, 300, 32, scale=2.0)
    tensors[0] = tensors[0].detach().expand(20_000, -1).contiguous()
    draws = torch.rand(20_000, generator=torch.Generator().manual_seed(1))
    _, sampled, *_ = run(tensors, torch.zeros(20_000, dtype=torch.int64), draws)
    p = F.linear(*tensors)[0].detach().softmax(-1)
    expected = 20_000 * p
    chi = ((torch.bincount(sampled, minlength=300) - expected) ** 2 / expected).sum()
    assert chi < 299 + 5 * (2 * 299) ** 0.5


def test_labels_below_zero_are_left_out() -> None:
    tensors, labels, draws = inputs(100, 300, 32)
    labels[::3] = -100
    loss, *_ = run(tensors, labels, draws)
    truth = F.cross_entropy(F.linear(*tensors), labels, reduction="sum", ignore_index=-100)
    assert loss.item() == pytest.approx(truth.item(), rel=1e-5)
    for mine, plain in zip(torch.autograd.grad(loss, tensors), torch.autograd.grad(truth, tensors), strict=True):
        assert (mine - plain).norm() <= limit() * plain.norm()


def test_without_draws_or_gradients() -> None:
    tensors, labels, draws = inputs(33, 256, 64)
    with torch.no_grad():
        loss, sampled, *_ = run(tensors, labels, None)
    assert sampled.sum() == 0
    assert not loss.requires_grad
    assert loss.item() == run(tensors, labels, draws)[0].item()


def test_number_of_threads_changes_rounding_only() -> None:
    tensors, labels, draws = inputs(600, 1000, 32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            loss, sampled, *_ = run(tensors, labels, draws)
            found.append((sampled, *torch.autograd.grad(loss, tensors)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert torch.equal(found[0][0], other[0])
        assert all(
            torch.allclose(one, two, rtol=1e-4, atol=1e-5) for one, two in zip(found[0][1:], other[1:], strict=True)
        )


def test_not_a_number_stays_one() -> None:
    """And a sample is still a word, which the discriminator can look up before the step is skipped."""
    tensors, labels, draws = inputs(33, 300, 64)
    with torch.no_grad():
        tensors[0][5, 0] = float("nan")
        loss, sampled, *_ = run(tensors, labels, draws)
    assert loss.isnan() and ((sampled >= 0) & (sampled < 300)).all()


def test_no_position_at_all() -> None:
    tensors, labels, draws = inputs(1, 40, 32)
    tensors[0] = tensors[0].detach()[:0].requires_grad_()
    loss, sampled, *_ = run(tensors, labels[:0], draws[:0])
    assert loss.item() == 0
    assert len(sampled) == 0
    assert all(gradient.sum() == 0 for gradient in torch.autograd.grad(loss, tensors))


def test_the_program_s_default_dtype_does_not_matter() -> None:
    tensors, labels, draws = inputs(33, 256, 64)
    before = run(tensors, labels, draws)[0].item()
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            assert run(tensors, labels.int(), draws)[0].item() == before
        finally:
            torch.set_default_dtype(torch.float32)
