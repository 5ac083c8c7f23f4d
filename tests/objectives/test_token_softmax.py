"""The chunked way to the loss, the samples and the gradients against the plain way, which makes all logits at once."""

import pytest
import torch
import torch.nn.functional as F
from tests.plain import sample
from torch import Tensor
from torch.distributions import Categorical

from electra_trainer.kernels import vocabulary_softmax as module
from electra_trainer.kernels.vocabulary_softmax import TokenSoftmax, token_softmax

SLOTS, WORDS, WIDTH = 23, 101, 12
CHUNKS = pytest.mark.parametrize("rows", [1, 5, 23, 1000], ids=lambda rows: f"{rows}-rows-a-chunk")


def inputs(slots: int = SLOTS) -> tuple[list[Tensor], Tensor]:
    """Hidden states, output weight and bias, all wanting gradients; and labels."""
    random = torch.Generator().manual_seed(4)
    shapes = ((slots, WIDTH), (WORDS, WIDTH), (WORDS,))
    tensors = [torch.randn(shape, generator=random).requires_grad_() for shape in shapes]
    return tensors, torch.randint(WORDS, (slots,), generator=random)


def draws(slots: int = SLOTS) -> Tensor:
    return torch.rand(slots, generator=torch.Generator().manual_seed(9))


def chunked(tensors: list[Tensor], labels: Tensor, *, diagnose: bool = True) -> TokenSoftmax:
    return token_softmax(*tensors, labels_K=labels, draws_K=draws(len(labels)), diagnose=diagnose)  # type: ignore[misc]


def gradients(loss: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0], ids=["flat", "usual", "sharp"])
@CHUNKS
def test_equals_the_plain_way(rows: int, scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", rows * WORDS)
    tensors, labels = inputs()
    tensors[0] = (scale * tensors[0]).detach().requires_grad_()
    logits = F.linear(*tensors)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    found = chunked(tensors, labels)
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-6)
    assert found.sampled_K.tolist() == sample(logits, torch.Generator().manual_seed(9)).tolist()
    assert found.correct_K.tolist() == (logits.argmax(-1) == labels).tolist()
    assert torch.allclose(found.entropy_K, Categorical(logits=logits).entropy(), rtol=1e-4, atol=1e-5)
    for mine, plain in zip(gradients(found.loss, tensors), gradients(loss, tensors), strict=True):
        assert (mine - plain).norm() <= 1e-5 * plain.norm()


def test_the_gradient_is_scaled_by_what_comes_after() -> None:
    tensors, labels = inputs()
    once = gradients(chunked(tensors, labels).loss, tensors)
    scaled = gradients(chunked(tensors, labels).loss * 2.5 / 7, tensors)
    for one, other in zip(once, scaled, strict=True):
        assert torch.allclose(other, one * (2.5 / 7), rtol=1e-5, atol=1e-7)


def test_samples_and_what_is_seen_have_no_gradient() -> None:
    found = chunked(*inputs())
    assert found.loss.requires_grad
    assert not (found.sampled_K.requires_grad or found.correct_K.requires_grad or found.entropy_K.requires_grad)


def test_without_gradients_the_values_are_the_same() -> None:
    tensors, labels = inputs()
    found = chunked(tensors, labels)
    with torch.no_grad():
        quiet = chunked(tensors, labels)
    assert not quiet.loss.requires_grad
    assert torch.equal(found.loss, quiet.loss) and torch.equal(found.sampled_K, quiet.sampled_K)


def test_looking_changes_nothing() -> None:
    tensors, labels = inputs()
    found, blind = chunked(tensors, labels), chunked(tensors, labels, diagnose=False)
    assert torch.equal(found.loss, blind.loss) and torch.equal(found.sampled_K, blind.sampled_K)
    assert len(blind.correct_K) == len(blind.entropy_K) == 0


@CHUNKS
def test_a_slot_that_is_not_used_changes_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", rows * WORDS)
    tensors, labels = inputs()
    used = torch.arange(SLOTS) % 3 > 0
    found = token_softmax(*tensors, labels_K=labels.where(used, -100), draws_K=draws(), diagnose=True)  # type: ignore[call-arg, misc]
    fewer = [tensors[0][used], *tensors[1:]]
    plain = token_softmax(*fewer, labels_K=labels[used], draws_K=draws()[used], diagnose=True)  # type: ignore[call-arg, misc]
    assert found.loss.item() == pytest.approx(plain.loss.item(), rel=1e-6)
    assert torch.equal(found.sampled_K[used], plain.sampled_K)
    assert torch.equal(found.correct_K[used], plain.correct_K) and not found.correct_K[~used].any()
    assert torch.allclose(found.entropy_K[used], plain.entropy_K) and found.entropy_K.isfinite().all()
    mine = gradients(found.loss, tensors)
    assert not mine[0][~used].any()
    for one, other in zip(mine, gradients(plain.loss, tensors), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("diagnose", [False, True])
def test_no_slots(diagnose: bool) -> None:
    tensors, labels = inputs(0)
    found = chunked(tensors, labels, diagnose=diagnose)
    assert found.loss.item() == 0.0 and len(found.sampled_K) == len(found.correct_K) == 0
    assert not any(gradient.any() for gradient in gradients(found.loss, tensors))


def test_under_autocast() -> None:
    """bf16 products, fp32 softmax: within 1 % of fp32, gradients in each tensor's own type."""
    tensors, labels = inputs()
    exact = chunked(tensors, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = chunked(tensors, labels)
    assert rough.loss.dtype == torch.float32
    assert rough.loss.item() == pytest.approx(exact.loss.item(), rel=1e-2)
    for mine, plain in zip(gradients(rough.loss, tensors), gradients(exact.loss, tensors), strict=True):
        assert mine.dtype == torch.float32
        assert (mine - plain).norm() <= 2e-2 * plain.norm()


def test_a_hidden_state_in_bf16_gets_a_gradient_in_bf16() -> None:
    tensors, labels = inputs()
    half = tensors[0].detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = chunked([half, *tensors[1:]], labels)
    (gradient,) = torch.autograd.grad(found.loss, [half])
    assert gradient.dtype == torch.bfloat16 and gradient.any()


@pytest.mark.parametrize("words", [5, 128, 1003])
def test_a_word_drawn_in_blocks_is_that_of_the_whole_row(words: int) -> None:
    made = torch.Generator().manual_seed(words)
    p_KV = (3 * torch.randn(2000, words, generator=made)).softmax(-1)
    p_KV[:, ::3] = 0
    draws_K = torch.rand(2000, generator=made)
    draws_K[:2] = torch.tensor([0.0, 1 - 2**-24])
    found_K = module.invert_in_blocks(p_KV, draws_K)
    whole_K = module.invert(p_KV, draws_K)
    assert all((p_KV.gather(1, drawn_K[:, None]) > 0).all() for drawn_K in (found_K, whole_K))
    assert (found_K == whole_K).float().mean() > 0.998  # up to rounding
