"""Leave one optimisation out of this process, to measure what it gains: systems `without-...` of benchmarks/speed.py."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.native import layers, native_softmax
from electra_trainer.model import attention, encoder, modern
from electra_trainer.objectives import generation, vocabulary_softmax
from electra_trainer.objectives.vocabulary_softmax import TokenSoftmax, invert


def _replace(name: str, new: Callable[..., Any], *callers: ModuleType) -> None:
    """Replace a function in each module that calls it; AttributeError: a module no longer does."""
    for module in callers:
        getattr(module, name)
        setattr(module, name, new)


def _native_layers() -> None:
    layers.fits = lambda *_: False


def _native_softmax() -> None:
    native_softmax.fits = lambda *_: False


def _dropout_bits() -> None:
    """PyTorch's Bernoulli numbers, in dropout and in attention."""
    attention.drop = lambda x, p: F.dropout(x, p)
    attention.kept_bits = lambda shape, p, seed: (
        -torch.empty(shape, dtype=torch.int16).bernoulli_(1 - p, generator=torch.Generator().manual_seed(seed))
    )


def _two_products() -> None:
    """PyTorch's scaled_dot_product_attention for all."""

    def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor | None, dropout: float) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)

    _replace("attend", attend, encoder, modern)


def _chunks() -> None:
    """All logits at once, and autograd's own way back."""

    def plain(
        projected_KE: Tensor,
        words_VE: Tensor,
        bias_V: Tensor,
        *,
        labels_K: Tensor,
        draws_K: Tensor | None,
        sampling: object = None,
        diagnose: bool = False,
    ) -> TokenSoftmax:
        logits_KV = F.linear(projected_KE, words_VE, bias_V).float()
        loss = F.cross_entropy(logits_KV, labels_K, reduction="sum")
        sampled = invert(logits_KV.detach().softmax(-1), draws_K) if draws_K is not None else labels_K
        nothing = labels_K.new_zeros(0)
        return TokenSoftmax(loss, sampled, nothing.bool(), nothing.float())

    _replace("token_softmax", plain, vocabulary_softmax, generation)


_WITHOUT: dict[str, Callable[[], None]] = {
    "native-layers": _native_layers,
    "native-softmax": _native_softmax,
    "dropout-bits": _dropout_bits,
    "two-products": _two_products,
    "chunks": _chunks,
}


def leave_out(name: str) -> None:
    """Replace the optimisation called `name` by what PyTorch's users do."""
    _WITHOUT[name]()
