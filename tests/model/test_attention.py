"""Both paths of attention against softmax(QKᵀ/√d + bias) V in float64, and what dropout does to the weights."""

import math

import pytest
import torch
from tests.small import batch, rows
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from electra_trainer.model.attention import attend, attention_bias

ROWS, HEADS, TOKENS, SIZE = 3, 2, 24, 8
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
TYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["fp32", "bf16"])


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Query, key, value and the bias of packed rows with padding."""
    random = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(ROWS, HEADS, TOKENS, SIZE, generator=random).to(dtype) for _ in range(3))
    return query, key, value, attention_bias(batch(rows(ROWS, seed=8)).piece_BT, dtype)


def by_hand(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """One head and one token at a time."""
    out = torch.zeros(query.shape, dtype=torch.float64)
    for row in range(query.shape[0]):
        for head in range(query.shape[1]):
            for token in range(query.shape[2]):
                scores = key[row, head].double() @ query[row, head, token].double() / math.sqrt(query.shape[3])
                scores = scores + bias[row, 0, token].double()
                weights = (scores - scores.max()).exp()
                out[row, head, token] = (weights / weights.sum()) @ value[row, head].double()
    return out


@pytest.mark.parametrize("share, allowed", [(0.0, True), (0.1, False), (0.125, True), (0.3, False)])
def test_a_gpu_drops_no_rounded_share(share: float, allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuDNN's kernels may round it to a multiple of 1/16, so they are asked for such shares alone; on tensors that say that they are on a GPU."""
    asked = []

    def attention(query: Tensor, *_: Tensor, **more: object) -> Tensor:
        cuda = torch.backends.cuda
        asked.append((cuda.cudnn_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()))
        assert more["dropout_p"] == share
        return query

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with FakeTensorMode():
        query = torch.empty((1, 2, 8, 16), device="cuda", dtype=torch.bfloat16)
        attend(query, query, query, bias_B1TT=None, dropout=share)
    assert asked == [(allowed, True, True)]
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


@TYPES
def test_equals_a_loop(dtype: torch.dtype) -> None:
    query, key, value, bias = inputs(dtype)
    assert torch.isinf(bias).any()
    found = attend(query, key, value, bias_B1TT=bias, dropout=0.0)
    assert found.dtype == dtype
    assert (found.double() - by_hand(query, key, value, bias)).abs().max() <= TOLERANCE[dtype]


def test_gradients_of_both_paths_agree() -> None:
    """bf16's against fp32's, of the same rounded inputs: to 3 % of their length."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs(torch.bfloat16)[:3]]
        bias = inputs(dtype)[3]
        out = attend(*leaves, bias_B1TT=bias, dropout=0.0)
        weight = torch.linspace(-1, 1, out.numel()).view(out.shape)
        (out.float() * weight).sum().backward()
        found.append([leaf.grad.float() for leaf in leaves if leaf.grad is not None])
    for exact, rough in zip(*found, strict=True):
        assert exact.isfinite().all() and exact.any()
        assert (exact - rough).norm() <= 0.03 * exact.norm()


@TYPES
def test_nothing_is_read_across_a_seam(dtype: torch.dtype) -> None:
    """Changing the values of one piece changes no token of another, not by a bit."""
    query, key, value, bias = inputs(dtype)
    piece_BT = batch(rows(ROWS, seed=8)).piece_BT
    assert (piece_BT == 2).any()
    second = (piece_BT == 2)[:, None, :, None]
    before = attend(query, key, value, bias_B1TT=bias, dropout=0.0)
    after = attend(query, key, torch.where(second, value + 100, value), bias_B1TT=bias, dropout=0.0)
    same = (before == after).all(-1).all(1)
    assert same[piece_BT != 2].all()
    assert not same[piece_BT == 2].any()


@TYPES
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_of_weights(dtype: torch.dtype, share: float) -> None:
    """Equal scores and the identity as values show the weights: 1/T each; a share is 0, the rest is scaled up.

    The share is within 4.5 standard deviations: a correct program fails for one seed in 150,000.
    """
    torch.manual_seed(3)
    heads = 40
    zeros = torch.zeros(1, heads, TOKENS, TOKENS, dtype=dtype)
    identity = torch.eye(TOKENS, dtype=dtype).expand(1, heads, TOKENS, TOKENS)
    bias = torch.zeros(1, 1, TOKENS, TOKENS, dtype=dtype)
    weights = attend(zeros, zeros, identity, bias_B1TT=bias, dropout=share).float()
    dropped = (weights == 0).float().mean().item()
    assert abs(dropped - share) <= 4.5 * math.sqrt(share * (1 - share) / weights.numel())
    kept = weights[weights > 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / TOKENS / (1 - share)), rtol=1e-2)
    other = attend(zeros, zeros, identity, bias_B1TT=bias, dropout=share).float()
    assert not torch.equal(weights, other)


@pytest.mark.parametrize("masked", [True, False], ids=["pieces", "whole rows"])
def test_gradient_with_dropout_against_finite_differences(masked: bool) -> None:
    leaves = [tensor.double()[:2, :, :6].requires_grad_() for tensor in inputs(torch.float32)[:3]]
    bias = inputs(torch.float64)[3][:2, :, :6, :6] if masked else None

    def seeded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        torch.manual_seed(1)  # the same dropout for each difference
        return attend(query, key, value, bias_B1TT=bias, dropout=0.3)

    assert (seeded(*leaves) != attend(*leaves, bias_B1TT=bias, dropout=0.0)).any()
    assert torch.autograd.gradcheck(seeded, leaves)
