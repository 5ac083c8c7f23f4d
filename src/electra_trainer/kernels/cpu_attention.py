"""Attention on a CPU as two batched products and a softmax: faster than PyTorch's own in bf16 and with dropout
(records/2026-11-20-speed).
"""

import math
from typing import Any

import torch
from torch import Tensor

from electra_trainer.kernels.cpu_dropout import keep, kept_bits, kept_scale
from electra_trainer.kernels.vmapped import next_seed


def two_products(query: Tensor, key: Tensor, value: Tensor, bias_B1TT: Tensor | None, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d + bias) V, as `attend` of model/attention.py."""
    mixed: Tensor = _TwoProducts.apply(query, key, value, bias_B1TT, dropout)  # type: ignore[no-untyped-call]
    return mixed


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
        ctx.seed = next_seed()
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
