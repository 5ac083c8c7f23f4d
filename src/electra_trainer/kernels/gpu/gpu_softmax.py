"""Softmax over the vocabulary at masked slots: loss, samples and gradients without K x V logits in memory.

Two passes make the logits in registers. The first leaves, for each slot and each block of 128 words, the largest logit
and the sum of exponentials; the normaliser, the loss and the sample (a block first, then a word in it) follow from
these. The second writes the logits' gradient, in the type of the products, a chunk of slots at a time, and two matrix
products turn it into gradients.
"""

import os
from collections.abc import Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NAME = "vocabulary softmax"
_CHUNK_ELEMENTS = 80_000_000
"""Elements of the logits' gradient that are in memory together: 160 MB in bf16."""
_BLOCK_K, _BLOCK_V = 64, 128


@dataclass(frozen=True)
class Shape:
    """A call that is proved by itself: type of the products, positions K, width E, words V."""

    dtype: str
    slots: int
    width: int
    words: int


_scopes: list[tuple[Set[Shape], set[Shape]]] = []


@contextmanager
def proved(shapes: Set[Shape]) -> Iterator[set[Shape]]:
    """Use the kernels for `shapes` within the context; yields the set of shapes that are asked for there.

    Elsewhere, as in evaluation and fine-tuning, no kernel is used.
    """
    asked: set[Shape] = set()
    _scopes.append((shapes, asked))
    try:
        yield asked
    finally:
        _scopes.pop()


def usable(projected_KE: Tensor, words_VE: Tensor, dtype: torch.dtype) -> bool:
    """True where the kernels are to be used for a call of this shape."""
    if not _scopes:
        return False
    (shapes, asked), (slots, width) = _scopes[-1], projected_KE.shape
    shape = Shape(str(dtype).removeprefix("torch."), slots, width, len(words_VE))
    asked.add(shape)
    return shape in shapes


class VocabularySoftmax(torch.autograd.Function):
    """Arguments and results as objectives/vocabulary_softmax.py's; gradients are taken in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        projected_KE: Tensor,
        words_VE: Tensor,
        bias_V: Tensor,
        labels_K: Tensor,
        draws_K: Tensor | None,
        how: tuple[torch.dtype, bool, bool],
    ) -> tuple[Tensor, ...]:
        dtype, wants, look = how
        with torch.autocast(projected_KE.device.type, enabled=False), _on(projected_KE.device):
            labels_K = labels_K.contiguous()
            hidden_KE, bias = projected_KE.to(dtype).contiguous(), bias_V.float().contiguous()
            # 0 for words that are not there: products along the vocabulary are fast where it is a multiple of 128
            words = hidden_KE.new_zeros((-(-len(words_VE) // _BLOCK_V) * _BLOCK_V, words_VE.shape[1]))
            words[: len(words_VE)] = words_VE
            loss_K, log_z_K, *found = _look(hidden_KE, words, bias, labels_K, draws_K, look=look)
            grads = _gradients(hidden_KE, words, bias, labels_K, log_z_K) if wants else ()
        ctx.save_for_backward(*grads)
        ctx.dtypes = (projected_KE.dtype, words_VE.dtype, bias_V.dtype)
        ctx.mark_non_differentiable(*found)
        return loss_K.sum(), *found

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ((grad * upstream[0]).to(to) for grad, to in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return *scaled, None, None, None


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Make `device` the current one: Triton launches its kernels there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _kernels() -> Any:
    """The module of the kernels; importing it needs Triton."""
    from electra_trainer.kernels.gpu import softmax_kernels

    return softmax_kernels


def _tiles(width: int) -> dict[str, Any]:
    """Compile-time constants; Triton's interpreter, how the tests run kernels on a CPU, needs wider numbers."""
    widen = os.environ.get("TRITON_INTERPRET") == "1"
    tiles = {"BLOCK_K": _BLOCK_K, "BLOCK_V": _BLOCK_V, "BLOCK_E": 32 if width % 64 else 64}
    return {"WIDTH": width, **tiles, "WIDEN": widen, "num_warps": 4}


def _look(
    hidden_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, draws_K: Tensor | None, *, look: bool
) -> tuple[Tensor, ...]:
    """Loss, normaliser (inf where not used), sample, correct and entropy by slot; the last two empty without `look`.

    `words_VE` has more rows than `bias_V`, up to a multiple of 128, here and below.
    """
    kernels, device, many = _kernels(), hidden_KE.device, len(hidden_KE)
    blocks = -(-len(bias_V) // _BLOCK_V)
    each, looked = (many, blocks), (many, blocks) if look else (1, 1)
    most, mass, spread = (torch.empty(size, device=device) for size in (each, each, looked))
    best = torch.empty(looked, device=device, dtype=torch.int32)
    loss, log_z, label_logit = (torch.empty(many, device=device) for _ in range(3))
    sampled = torch.zeros_like(labels_K) if draws_K is None else torch.empty_like(labels_K)
    correct = torch.empty(many if look else 0, device=device, dtype=torch.int8)
    entropy = torch.empty(many if look else 0, device=device)
    statistics = (most, mass, best, spread, label_logit)
    if many:
        tiles, inputs = _tiles(hidden_KE.shape[1]), (hidden_KE, words_VE, bias_V, labels_K)
        kernels.block_statistics[-(-many // _BLOCK_K), blocks](
            *inputs, *statistics, many, len(bias_V), blocks, LOOK=look, **tiles
        )
        del tiles["BLOCK_K"]
        draws, results = labels_K if draws_K is None else draws_K, (loss, log_z, sampled, correct, entropy)
        flags = {"SAMPLE": draws_K is not None, "LOOK": look, "BLOCK_B": kernels.triton.next_power_of_2(blocks)}
        kernels.choose[(many,)](*inputs, draws, *statistics, *results, len(bias_V), blocks, **flags, **tiles)
    return loss, log_z, sampled, correct.view(torch.bool), entropy


def _gradients(
    hidden_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, log_z_K: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the sum of losses with respect to hidden states, words and bias, fp32."""
    kernels, many, stride, device = _kernels(), len(hidden_KE), len(words_VE), hidden_KE.device
    rows = max(_BLOCK_K, min(many, _CHUNK_ELEMENTS // stride) // _BLOCK_K * _BLOCK_K)
    for_hidden = torch.zeros(hidden_KE.shape, device=device)
    for_words, for_bias = torch.zeros(words_VE.shape, device=device), torch.zeros(stride, device=device)
    for first in range(0, many, rows):
        part = slice(first, min(first + rows, many))
        hidden, tiles_of_slots = hidden_KE[part], -(-(part.stop - first) // _BLOCK_K)
        delta = hidden.new_empty((len(hidden), stride))
        sums = torch.empty((tiles_of_slots, stride), device=device)
        kernels.logit_gradient[tiles_of_slots, stride // _BLOCK_V](
            hidden, words_VE, bias_V, labels_K[part], log_z_K[part], delta, sums, len(hidden), len(bias_V), stride,
            **_tiles(hidden.shape[1]),
        )  # fmt: skip
        for_hidden[part] = _product(delta, words_VE)
        for_words += _product(delta.t(), hidden)
        for_bias += sums.sum(0)
    return for_hidden, for_words[: len(bias_V)], for_bias[: len(bias_V)]


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Left @ right, accumulated and returned in fp32."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
