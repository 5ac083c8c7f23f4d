"""log p of given words, with a gradient for each, in memory that does not grow with positions times vocabulary.

token_softmax.py takes the gradients of one sum in its forward pass. Here each position has an upstream gradient of its own, known
only in the backward pass, so the logits of a chunk are made a second time there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from electra_trainer.objectives.token_softmax import CHUNK_ELEMENTS, chunks


def log_probability(projected_NE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_N: Tensor) -> Tensor:
    """Log softmax(projected · wordsᵀ + bias) at the labels, fp32 [N]; 0, without gradient, where a label is negative.

    Args:
        projected_NE: what a token head gave at N positions.
        words_VE: the tied output weight.
        bias_V: the output bias.
        labels_N: int64.
    """
    device = projected_NE.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
    found: Tensor = _LogProbability.apply(projected_NE, words_VE, bias_V, labels_N, dtype)  # type: ignore[no-untyped-call]
    return found


def log_probabilities(projected_NE: Tensor, words_VE: Tensor, bias_V: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Log softmax over the whole vocabulary, fp32 [n, V], a chunk of positions at a time with its place; for looking."""
    for part in chunks(len(projected_NE), len(words_VE), CHUNK_ELEMENTS):
        with torch.autocast(projected_NE.device.type, enabled=False):  # it would round the product whatever the dtypes
            log_p_nV = _logits(projected_NE[part], words_VE, bias_V, torch.float32).log_softmax(-1)
        yield part, log_p_nV


class _LogProbability(torch.autograd.Function):
    """d log p(y) / d logits = onehot(y) - p."""

    @staticmethod
    def forward(
        ctx: Any, projected_NE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_N: Tensor, dtype: torch.dtype
    ) -> Tensor:
        found_N = projected_NE.new_zeros(len(labels_N), dtype=torch.float32)
        with torch.autocast(projected_NE.device.type, enabled=False):
            for part in chunks(len(labels_N), len(words_VE), CHUNK_ELEMENTS):
                logits_nV = _logits(projected_NE[part], words_VE, bias_V, dtype)
                label_n1 = labels_N[part, None]
                found_n1 = logits_nV.gather(1, label_n1.clamp(min=0)) - logits_nV.logsumexp(-1, keepdim=True)
                found_N[part] = (found_n1 * (label_n1 >= 0))[:, 0]
        ctx.save_for_backward(projected_NE, words_VE, bias_V, labels_N)
        ctx.dtype = dtype
        return found_N

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        projected_NE, words_VE, bias_V, labels_N = ctx.saved_tensors
        dtype, weight_N1 = ctx.dtype, (upstream[0] * (labels_N >= 0))[:, None]
        grads = [torch.zeros_like(t, dtype=torch.float32) for t in (projected_NE, words_VE, bias_V)]
        with torch.autocast(projected_NE.device.type, enabled=False):
            hidden_NE, words = projected_NE.to(dtype), words_VE.to(dtype)
            for part in chunks(len(labels_N), len(words_VE), CHUNK_ELEMENTS):
                weight_n1 = weight_N1[part]
                delta_nV = _logits(projected_NE[part], words_VE, bias_V, dtype).softmax(-1).mul_(-weight_n1)
                delta_nV.scatter_add_(1, labels_N[part, None].clamp(min=0), weight_n1)
                grads[2] += delta_nV.sum(0)
                rounded_nV = delta_nV.to(dtype)
                grads[0][part] = (rounded_nV @ words).float()
                grads[1] += (rounded_nV.t() @ hidden_NE[part]).float()
        return grads[0].to(projected_NE.dtype), grads[1], grads[2], None, None


def _logits(projected_nE: Tensor, words_VE: Tensor, bias_V: Tensor, dtype: torch.dtype) -> Tensor:
    return (projected_nE.to(dtype) @ words_VE.to(dtype).t()).float().add_(bias_V)
