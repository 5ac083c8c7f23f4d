"""Attention by the path that is fastest for the device.

PyTorch's scaled_dot_product_attention everywhere, but for bf16 on a CPU, where its backward pass is several times slower than
two batched products and a softmax (measure: `python -m benchmarks.attention`). Both compute the same function.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.gpu import attention as on_gpu


def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d + bias) V: each argument and the result [B, H, T, D/H]; `dropout` is the share of weights dropped."""
    if not bias_B1TT.is_floating_point():  # the pieces: see `encoder.attention_bias`
        return on_gpu.attend(query, key, value, piece_BT=bias_B1TT, dropout=dropout)
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _two_products(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def _two_products(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor, dropout: float) -> Tensor:
    rows, heads, tokens, size = query.shape
    flat = (rows * heads, tokens, size)
    bias = bias_B1TT.to(query.dtype).expand(rows, heads, tokens, tokens).reshape(rows * heads, tokens, tokens)
    scores = torch.baddbmm(bias, query.reshape(flat), key.reshape(flat).transpose(1, 2), alpha=1 / math.sqrt(size))
    weights = F.dropout(scores.float().softmax(-1), dropout, training=dropout > 0)
    return torch.bmm(weights.to(value.dtype), value.reshape(flat)).view(rows, heads, tokens, size)
