"""Attention and dropout, each by the fastest way for the device.

Attention is PyTorch's scaled_dot_product_attention, except on a CPU in bf16 or with dropout: there two batched products
and a softmax compute the same function faster (records/2026-11-20-speed).

PyTorch draws dropout's Bernoulli numbers one by one on a CPU: 0.15 G elements/s a core, a fifth of a training step.
Here 16 random bits an element come from NumPy's PCG64 in one sweep and become a mask by integer arithmetic.
Other devices use PyTorch's dropout.
"""

import math
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor | None, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d + bias) V: each argument and the result [B, H, T, D/H]; `dropout` is the share of weights
    dropped.
    """
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or dropout > 0):
        mixed: Tensor = _TwoProducts.apply(query, key, value, bias_B1TT, dropout)  # type: ignore[no-untyped-call]
        return mixed
    if query.is_cuda and 16 * dropout % 1:
        with sdpa_kernel(_DROP_EXACTLY):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def attention_bias(piece_BT: Tensor, dtype: torch.dtype, *, reach: int | None = None) -> Tensor | None:
    """Added to attention scores, [B, 1, T, T]: 0 between tokens of one piece (or both padding), -inf elsewhere; B may
    be 1.

    None if all tokens may see each other.

    Args:
        piece_BT: the piece that each token belongs to.
        dtype: of the result.
        reach: tokens to either side beyond which a token sees nothing; None: it sees the whole piece.
    """
    tokens = piece_BT.shape[1]
    if whole_rows(piece_BT):
        if reach is None or reach >= tokens - 1:
            return None
        piece_BT = piece_BT[:1]
    same_BTT = piece_BT[:, :, None] == piece_BT[:, None, :]
    if reach is not None:
        place_T = torch.arange(tokens, device=piece_BT.device)
        same_BTT = same_BTT & ((place_T[:, None] - place_T).abs() <= reach)
    zeros = torch.zeros(same_BTT.shape, dtype=dtype, device=piece_BT.device)
    return zeros.masked_fill(~same_BTT, float("-inf"))[:, None]


def whole_rows(piece_BT: Tensor) -> bool:
    """True if every row is known to be one piece; False on a GPU, where checking would force a synchronization."""
    return piece_BT.device.type == "cpu" and bool((piece_BT == piece_BT[:, :1]).all())


_DROP_EXACTLY = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN, which a GPU's PyTorch takes first: some of its kernels round the share that is dropped to a multiple of
1/16 (https://github.com/pytorch/pytorch/issues/174245)."""


class _TwoProducts(torch.autograd.Function):
    """Keeps the weights after the softmax, nothing else of size T x T; what scales them is done to the narrow
    factors.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias_B1TT: Tensor | None, dropout: float
    ) -> Tensor:
        rows, heads, tokens, size = query.shape
        q, k, v = (x.reshape(rows * heads, tokens, size) for x in (query, key, value))
        scale = 1 / math.sqrt(size)
        if bias_B1TT is None:
            scores = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), alpha=scale, beta=0)
        else:
            bias = bias_B1TT.to(q.dtype).expand(rows, heads, tokens, tokens).reshape(rows * heads, tokens, tokens)
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        weights = scores.softmax(-1)  # in fp32 inside
        ctx.save_for_backward(q, k, v, weights)
        ctx.shape, ctx.scale, ctx.dropout = query.shape, scale, dropout
        if dropout == 0:
            return torch.bmm(weights, v).view(query.shape)
        ctx.seed = draw_seed()
        kept = keep(weights, kept_bits(weights.shape, dropout, ctx.seed))
        return torch.bmm(kept, v * kept_scale(dropout)).view(query.shape)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        d_mixed = upstream[0].reshape(v.shape)
        kept = weights
        if ctx.dropout > 0:
            bits = kept_bits(weights.shape, ctx.dropout, ctx.seed)
            kept, d_mixed = keep(weights, bits), d_mixed * kept_scale(ctx.dropout)
        d_value = torch.bmm(kept.transpose(1, 2), d_mixed)
        d_weights = torch.bmm(d_mixed, v.transpose(1, 2))
        if ctx.dropout > 0:
            d_weights = keep(d_weights, bits)
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        nothing = q.new_empty(1)
        d_query = torch.baddbmm(nothing, d_scores, k, alpha=ctx.scale, beta=0)
        d_key = torch.baddbmm(nothing, d_scores.transpose(1, 2), q, alpha=ctx.scale, beta=0)
        return d_query.view(ctx.shape), d_key.view(ctx.shape), d_value.view(ctx.shape), None, None


_LEVELS = 1 << 15
"""Probabilities are rounded to a multiple of 1/32,768; what is kept is scaled by the rounded one, so that means are
exact.
"""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Dropout(nn.Module):
    """Sets a share `p` of the elements to 0 in training and scales the others by 1 / (1 - p)."""

    computes: ClassVar[Literal["any"]] = "any"

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return drop(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout of `x`; its numbers follow from one draw of PyTorch's own generator."""
    if p <= 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    dropped: Tensor = _Drop.apply(x, p, draw_seed())  # type: ignore[no-untyped-call]
    return dropped


def draw_seed() -> int:
    """A number from PyTorch's own generator, from which `kept_bits` makes a mask."""
    return int(torch.randint(2**63 - 1, ()))


def kept_bits(shape: torch.Size, p: float, seed: int) -> Tensor:
    """int16 of that shape: all bits set where an element is kept (with probability 1 - p), none where it is dropped.

    The same seed gives the same bits, so that a backward pass makes them again instead of keeping them.
    """
    count = shape.numel()
    words = np.random.PCG64DXSM(seed).random_raw(-(-count // 4))
    bits = torch.from_numpy(words.view(np.int16))[:count].view(shape)
    # 15 random bits less the threshold: the sign says whether it is below; spread over the element and turned round
    return bits.bitwise_and_(_LEVELS - 1).sub_(_threshold(p)).bitwise_right_shift_(15).bitwise_not_()


def kept_scale(p: float) -> float:
    """Factor of the elements that are kept."""
    return _LEVELS / max(1, _LEVELS - _threshold(p))


def keep(x: Tensor, bits: Tensor) -> Tensor:
    """`x` where `bits` are set, 0 elsewhere."""
    integer = _INTEGERS[x.element_size()]
    if integer == bits.dtype:
        return (x.view(integer) & bits).view(x.dtype)
    mask = bits.to(integer)  # becomes the result, to save a pass through fresh memory
    return torch.bitwise_and(x.view(integer), mask, out=mask).view(x.dtype)


def _threshold(p: float) -> int:
    return min(_LEVELS, round(p * _LEVELS))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        return keep(x.contiguous(), kept_bits(x.shape, p, seed)).mul_(kept_scale(p))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient = upstream[0].contiguous()
        return keep(gradient, kept_bits(gradient.shape, ctx.p, ctx.seed)).mul_(kept_scale(ctx.p)), None, None
