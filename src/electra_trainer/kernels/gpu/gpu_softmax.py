"""Softmax over the vocabulary at masked slots: loss, samples and gradients without K x V logits in memory.

Two passes make the logits in registers: the first leaves, of each slot and each block of 128 words, the largest logit
and the sum of
exponentials; from these follow the normaliser, the loss and (a block first, then a word in it) the sample. The second
writes the logits' gradient, in the type of the products, a chunk of slots at a time, and two matrix products turn it
into gradients.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.gpu import trust

NAME = "vocabulary softmax"
_CHUNK_ELEMENTS = 80_000_000
"""Elements of the logits' gradient that are in memory together: 160 MB in bf16."""
_BLOCK_K, _BLOCK_V = 64, 128
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Relative, of loss and gradients, against the plain way in fp32."""


@dataclass(frozen=True)
class Shape:
    """What kernels are compiled for."""

    dtype: torch.dtype
    """Of the products."""
    width: int
    words: int


def usable(device: torch.device, shape: Shape) -> bool:
    """True where this is to be used instead of the plain way."""
    return shape.dtype in TOLERANCE and trust.trusted(NAME, device, shape)


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
        how: tuple[Any, ...],
    ) -> tuple[Tensor, ...]:
        dtype, wants, look = how
        with torch.autocast(projected_KE.device.type, enabled=False), trust.on(projected_KE.device):
            labels_K = labels_K.contiguous()
            hidden_KE, bias = projected_KE.to(dtype).contiguous(), bias_V.float().contiguous()
            # of words that are not there, 0: products along the vocabulary are fast where it is a multiple of 128
            words = hidden_KE.new_zeros((-(-len(words_VE) // _BLOCK_V) * _BLOCK_V, words_VE.shape[1]))
            words[: len(words_VE)] = words_VE
            loss_K, log_z_K, sampled, correct, entropy = _look(hidden_KE, words, bias, labels_K, draws_K, look=look)
            grads = _gradients(hidden_KE, words, bias, labels_K, log_z_K) if wants else ()
        ctx.save_for_backward(*grads)
        ctx.dtypes = (projected_KE.dtype, words_VE.dtype, bias_V.dtype)
        ctx.mark_non_differentiable(sampled, correct, entropy)
        return loss_K.sum(), sampled, correct, entropy

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = ((grad * upstream[0]).to(to) for grad, to in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return *scaled, None, None, None


def _tiles(width: int) -> dict[str, Any]:
    inner = 32 if width % 64 else 64
    return {"WIDTH": width, "BLOCK_K": _BLOCK_K, "BLOCK_V": _BLOCK_V, "BLOCK_E": inner, "WIDEN": trust.interpreted()}


def _look(
    hidden_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, draws_K: Tensor | None, *, look: bool
) -> tuple[Tensor, ...]:
    """Loss, normaliser (inf where not used), sample, correct, entropy of each slot; the last two empty without `look`.

    `words_VE` has more rows than `bias_V`, up to a multiple of 128, here and below.
    """
    kernels = trust.softmax_kernels()
    (slots, width), words, device = hidden_KE.shape, len(bias_V), hidden_KE.device
    blocks = kernels.triton.cdiv(words, _BLOCK_V)
    shape = (slots, blocks)
    most, mass = (torch.empty(shape, device=device) for _ in range(2))
    best, spread = (
        torch.empty(shape if look else 1, device=device, dtype=kind) for kind in (torch.int32, torch.float32)
    )
    loss, log_z, label_logit = (torch.empty(slots, device=device) for _ in range(3))
    sampled = torch.zeros_like(labels_K) if draws_K is None else torch.empty_like(labels_K)
    correct = torch.empty(slots if look else 0, device=device, dtype=torch.int8)
    entropy = torch.empty(slots if look else 0, device=device)
    if slots:
        tiles = _tiles(width)
        kernels.block_statistics[(kernels.triton.cdiv(slots, _BLOCK_K), blocks)](
            hidden_KE, words_VE, bias_V, labels_K, most, mass, best, spread, label_logit, slots, words, blocks,
            LOOK=look, num_warps=4, **tiles,
        )  # fmt: skip
        del tiles["BLOCK_K"]
        kernels.choose[(slots,)](
            hidden_KE, words_VE, bias_V, labels_K, labels_K if draws_K is None else draws_K, most, mass, best, spread, label_logit,
            loss, log_z, sampled, correct, entropy, words, blocks,
            SAMPLE=draws_K is not None, LOOK=look, BLOCK_B=kernels.triton.next_power_of_2(blocks), num_warps=4, **tiles,
        )  # fmt: skip
    return loss, log_z, sampled, correct.view(torch.bool), entropy


def _gradients(
    hidden_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, log_z_K: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the sum of losses with respect to hidden states, words and bias, fp32."""
    kernels = trust.softmax_kernels()
    slots, stride, device = len(hidden_KE), len(words_VE), hidden_KE.device
    rows = max(_BLOCK_K, min(slots, _CHUNK_ELEMENTS // stride) // _BLOCK_K * _BLOCK_K)
    delta_all = torch.empty((min(rows, slots), stride), device=device, dtype=hidden_KE.dtype)
    for_hidden: list[Tensor] = []
    totals: list[Tensor] = []
    for first in range(0, max(1, slots), rows):
        part = slice(first, min(first + rows, slots))
        hidden, delta = hidden_KE[part], delta_all[: part.stop - first]
        tiles_of_slots = kernels.triton.cdiv(len(hidden), _BLOCK_K)
        sums = torch.empty((tiles_of_slots, stride), device=device)
        if slots:
            kernels.logit_gradient[(tiles_of_slots, stride // _BLOCK_V)](
                hidden, words_VE, bias_V, labels_K[part], log_z_K[part], delta, sums, len(hidden), len(bias_V), stride,
                num_warps=4, **_tiles(hidden.shape[1]),
            )  # fmt: skip
        for_hidden.append(_product(delta, words_VE))
        made = [_product(delta.t(), hidden), sums.sum(0)]
        totals = [total + more for total, more in zip(totals, made, strict=True)] if totals else made
    for_words, for_bias = (total[: len(bias_V)] for total in totals)
    return torch.cat(for_hidden), for_words, for_bias


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Left @ right, accumulated and returned in fp32."""
    if left.dtype == torch.float32:
        return left @ right
    if not left.is_cuda:
        return left.float() @ right.float()
    try:
        return torch.mm(left, right, out_dtype=torch.float32)
    except (NotImplementedError, RuntimeError, TypeError):  # a PyTorch that rounds its result
        return (left @ right).float()


def plain(
    projected_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The plain twin, with all logits: loss (with gradient), cumulative distribution [K, V], correct, entropy."""
    logits_KV = F.linear(projected_KE.float(), words_VE.float(), bias_V.float())
    loss = F.cross_entropy(logits_KV, labels_K, ignore_index=-100, reduction="sum")
    log_p_KV = logits_KV.detach().log_softmax(-1)
    return loss, log_p_KV.exp().cumsum(-1), logits_KV.argmax(-1) == labels_K, -(log_p_KV.exp() * log_p_KV).sum(-1)


def check(device: torch.device, shape: Shape, *, slots: int = 200) -> None:
    """Compare with the plain twin on some slots.

    Loss and gradients to TOLERANCE; a sample must be the word at which the cumulative distribution passes the draw, to
    1e-5 (fp32) or 1e-3 (bf16) of probability.
    """
    dtype, width, words = shape.dtype, shape.width, shape.words
    random = torch.Generator().manual_seed(5)
    made = [torch.randn(shape, generator=random) for shape in ((slots, width), (words, width), (words,))]
    made[0] *= 3 / width**0.5  # logits between about -10 and 10
    labels = torch.randint(words, (slots,), generator=random).to(device)
    labels[::7] = -100
    draws = torch.rand(slots, generator=random).to(device)
    tolerance = TOLERANCE[dtype]
    # the twin gets what the products get, so that only the arithmetic differs
    tensors = [tensor.to(dtype).float().to(device).requires_grad_() for tensor in made]
    loss, cumulative_KV, correct, entropy = plain(tensors[0], tensors[1], tensors[2], labels)
    expected = torch.autograd.grad(loss, tensors)
    found = VocabularySoftmax.apply(*tensors, labels, draws, (dtype, True, True))  # type: ignore[no-untyped-call]
    trust.close(f"the loss ({dtype})", found[0], loss, tolerance)
    for name, mine, theirs in zip(
        ("hidden states", "words", "bias"), torch.autograd.grad(found[0], tensors), expected, strict=True
    ):
        trust.close(f"the gradient of the {name} ({dtype})", mine, theirs, tolerance)
    trust.close(f"the entropy ({dtype})", found[3], entropy, tolerance)
    used = labels >= 0
    if not torch.equal(found[2][used], correct[used]):
        raise trust.Mismatch(f"the most probable words differ ({dtype})")
    _check_samples(found[1], cumulative_KV, draws, 1e-5 if dtype == torch.float32 else 1e-3)


def _check_samples(sampled_K: Tensor, cumulative_KV: Tensor, draws_K: Tensor, slack: float) -> None:
    up_to = cumulative_KV.gather(1, sampled_K[:, None])[:, 0]
    below = torch.where(sampled_K > 0, cumulative_KV.gather(1, (sampled_K - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    if not bool(((below - slack <= draws_K) & (draws_K <= up_to + slack)).all()):
        raise trust.Mismatch("a sample is not where its draw falls")


trust.register(NAME, check, usual=Shape(torch.bfloat16, width=128, words=30522))
