"""Work as wide as the vocabulary: loss, samples and gradients, a chunk of positions at a time.

The plain way (logits of all positions, cross-entropy, softmax, cumulative sum, and their backward passes) writes some
eight tensors of [K, V]. `token_softmax` computes a chunk's logits once, takes the loss, the sample and all three
gradients from them in fp32, and keeps nothing of that width. Same function, same samples in fp32: a test compares. In
bf16 PyTorch rounds the logits to bf16, the native kernels only what is multiplied.

`log_probability` gives log p of given words. Each position has its own upstream gradient, known only in the backward
pass, so a chunk's logits are computed a second time there.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from electra_trainer.kernels.native import native_softmax as native
from electra_trainer.kernels.vmapped import batched

CHUNK_ELEMENTS = 4_000_000
"""Logits in a chunk: 16 MB in fp32."""
_COMPILED_CHUNKS = 4
"""Compiled chunks are this many times as large: fused code keeps fewer tensors of that width."""
_BLOCK = 128
"""Words whose probabilities are added before one is drawn; on a GPU words of probability 0 fill the last block, also
since its fast matrix products want a multiple of 8.
"""
_UNUSED = -1
"""The label of a slot that is not used."""
_NEVER = -1e30
"""The logit of an added word: exp gives 0, and 0 times it is 0."""


class TokenSoftmax(NamedTuple):
    """Results of one look at the logits."""

    loss: Tensor  # scalar, fp32: sum over positions of -log p(label), with gradient
    sampled_K: Tensor  # int64: a draw from p at each position; zeros without draws
    correct_K: Tensor  # bool: the label is the most probable word; empty unless asked for
    entropy_K: Tensor  # fp32, nats; empty unless asked for


def token_softmax(
    projected_KE: Tensor,
    words_VE: Tensor,
    bias_V: Tensor,
    *,
    labels_K: Tensor,
    draws_K: Tensor | None,
    temperature: float = 1.0,
    disallow_label: bool = False,
    diagnose: bool = False,
) -> TokenSoftmax:
    """Softmax over the vocabulary at K positions: loss, samples and, with `diagnose`, what the record shows.

    Args:
        projected_KE: what the token head gave.
        words_VE: the tied output weight.
        bias_V: the output bias.
        labels_K: original ids; a negative one is a slot that is not used: no loss, no gradient, a sample without
            meaning.
        draws_K: uniform numbers in [0, 1) that the samples are made of; None: no samples.
        temperature: divides the logits that samples are drawn from (Appendix H); the loss does not see it.
        disallow_label: never draw the original word (Appendix H).
        diagnose: also find the most probable word and the entropy.
    """
    special = draws_K is not None and (temperature != 1.0 or disallow_label)
    if not special and native.fits(projected_KE):
        return TokenSoftmax(*native.run_softmax(projected_KE, words_VE, bias_V, labels_K, draws_K))
    if batched(projected_KE):  # all logits at once; their gradients are autograd's
        looked = {"diagnose": diagnose, "temperature": temperature, "disallow_label": disallow_label}
        found = LOOK(projected_KE @ words_VE.t(), bias_V, labels_K, draws_K, delta=None, **looked)
        sampled_K = torch.zeros_like(labels_K) if found.sampled_k is None else found.sampled_k
        nothing = (labels_K.new_zeros(0).bool(), found.loss.new_zeros(0))
        return TokenSoftmax(found.loss, sampled_K, *((found.correct_k, found.entropy_k) if diagnose else nothing))
    lower = torch.is_autocast_enabled(projected_KE.device.type)
    dtype = torch.get_autocast_dtype(projected_KE.device.type) if lower else torch.float32
    how = (dtype, torch.is_grad_enabled(), diagnose, temperature, disallow_label)
    inputs = (projected_KE, words_VE, bias_V, labels_K, draws_K)
    return TokenSoftmax(*_TokenSoftmax.apply(*inputs, how))  # type: ignore[no-untyped-call]


class _TokenSoftmax(torch.autograd.Function):
    """Gradients are taken in the forward pass; the backward pass scales them."""

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
        dtype, wants, diagnose, temperature, disallow_label = how
        on_gpu, count = projected_KE.is_cuda, len(words_VE)
        with torch.autocast(projected_KE.device.type, enabled=False):
            hidden_KE, words, bias = projected_KE.to(dtype), words_VE.to(dtype), bias_V
            if added := -count % _BLOCK if on_gpu else 0:
                words, bias = F.pad(words, (0, 0, 0, added)), F.pad(bias_V, (0, added), value=_NEVER)
            loss = torch.zeros((), device=projected_KE.device)
            inputs = (projected_KE, words, bias) if wants else ()
            grads = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in inputs]
            sampled, correct, entropy = torch.zeros_like(labels_K), [], []
            elements = CHUNK_ELEMENTS * (1 if LOOK._compiled_call_impl is None else _COMPILED_CHUNKS)
            for part in chunks(len(labels_K), len(words), elements, even=on_gpu):  # even: one shape to compile
                found = LOOK(
                    hidden_KE[part] @ words.t(),
                    bias,
                    labels_K[part],
                    None if draws_K is None else draws_K[part],
                    delta=dtype if wants else None,
                    diagnose=diagnose,
                    temperature=temperature,
                    disallow_label=disallow_label,
                )
                loss += found.loss
                if found.sampled_k is not None:
                    sampled[part] = found.sampled_k.clamp(max=count - 1)
                if diagnose:
                    correct.append(found.correct_k)
                    entropy.append(found.entropy_k)
                if found.delta_kV is not None:
                    grads[2] += found.bias_V
                    grads[0][part] = found.delta_kV @ words
                    grads[1] += found.delta_kV.t() @ hidden_KE[part]
            grads[1:] = [grad[:count] for grad in grads[1:]]
        ctx.save_for_backward(*grads)
        looked = torch.cat([labels_K.new_zeros(0).bool(), *correct]), torch.cat([loss.new_zeros(0), *entropy])
        ctx.mark_non_differentiable(sampled, *looked)
        return loss, sampled, *looked

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return *(grad * upstream[0] for grad in ctx.saved_tensors), None, None, None


class _Found(NamedTuple):
    """Results of a chunk of logits."""

    loss: Tensor
    sampled_k: Tensor | None
    correct_k: Tensor | None
    entropy_k: Tensor | None
    delta_kV: Tensor | None  # the gradient of the logits
    bias_V: Tensor | None  # the gradient of the bias


class _Look(nn.Module):
    """All that is as wide as the vocabulary, but the products: a module, so that a GPU's step compiles it
    (train/fast_step.py) as it does the layers.
    """

    def forward(
        self,
        product_kV: Tensor,
        bias_V: Tensor,
        labels_k: Tensor,
        draws_k: Tensor | None,
        *,
        delta: torch.dtype | None,
        diagnose: bool,
        temperature: float,
        disallow_label: bool,
    ) -> _Found:
        """See `_Found`; no gradient without `delta`, in which it is rounded."""
        logits_kV = product_kV.float() + bias_V
        used_k1, label_k1 = labels_k[:, None] >= 0, labels_k[:, None].clamp(min=0)
        log_z_k1 = logits_kV.logsumexp(-1, keepdim=True)
        loss = ((log_z_k1 - logits_kV.gather(1, label_k1)) * used_k1).sum()
        sampled_k, correct_k, entropy_k, delta_kV, bias_grad_V = (None,) * 5
        if diagnose:
            correct_k = logits_kV.argmax(-1) == labels_k
            log_p_kV = logits_kV - log_z_k1  # not log Z - Σ p·logit, which cancels where logits are large
            entropy_k = -(log_p_kV.exp() * log_p_kV).sum(-1)
        draw = invert_in_blocks if product_kV.is_cuda else invert
        plain = temperature == 1.0 and not disallow_label
        if draws_k is not None and not plain:
            other_kV = logits_kV / temperature
            if disallow_label:
                other_kV = other_kV.scatter(1, label_k1, float("-inf"))
            sampled_k = draw(other_kV.softmax(-1), draws_k)
        # an infinite normaliser makes a whole row 0, without another pass over it
        p_kV = (logits_kV - log_z_k1.masked_fill(~used_k1, float("inf"))).exp()
        if draws_k is not None and plain:
            sampled_k = draw(p_kV, draws_k)
        if delta is not None:
            place_V = torch.arange(len(bias_V), device=bias_V.device)
            whole_kV = torch.where(place_V == label_k1, p_kV - used_k1.to(p_kV.dtype), p_kV)
            bias_grad_V, delta_kV = whole_kV.sum(0), whole_kV.to(delta)
        return _Found(loss, sampled_k, correct_k, entropy_k, delta_kV, bias_grad_V)


LOOK = _Look()
"""The one that `token_softmax` uses."""


def invert(p_KV: Tensor, draws_K: Tensor) -> Tensor:
    """The word at which the cumulative distribution of each row passes its draw, int64 [K]; rows need not add up to
    1.
    """
    sums_KV = p_KV.cumsum(-1)
    return _first_above(sums_KV, draws_K[:, None] * sums_KV[:, -1:])[:, 0]


def invert_in_blocks(p_KV: Tensor, draws_K: Tensor) -> Tensor:
    """`invert` up to rounding: first among sums of blocks of words, then in the block, since a GPU adds up a whole row
    slowly.
    """
    count = p_KV.shape[1]
    p_KBW = F.pad(p_KV, (0, -count % _BLOCK)).view(len(p_KV), -1, _BLOCK)
    sums_KB = p_KBW.sum(-1).cumsum(-1)
    target_K1 = draws_K[:, None] * sums_KB[:, -1:]
    block_K1 = _first_above(sums_KB, target_K1)
    before_K1 = F.pad(sums_KB, (1, 0)).gather(1, block_K1)
    share_K1 = (target_K1 - before_K1) / (sums_KB.gather(1, block_K1) - before_K1)
    inside_KW = p_KBW.gather(1, block_K1[:, :, None].expand(-1, -1, _BLOCK))[:, 0].cumsum(-1)
    word_K1 = block_K1 * _BLOCK + _first_above(inside_KW, share_K1 * inside_KW[:, -1:])
    return word_K1[:, 0].clamp(max=count - 1)


def _first_above(cumulative_KN: Tensor, target_K1: Tensor) -> Tensor:
    """The place of each row's first entry above its target, so that one of probability 0 is never taken."""
    return torch.searchsorted(cumulative_KN, target_K1, right=True).clamp(max=cumulative_KN.shape[1] - 1)


def chunks(positions: int, words: int, elements: int, *, even: bool = False) -> list[slice]:
    """Places of the positions, in order, with at most `elements` logits each, but at least one position.

    Args:
        even: as many positions in each, but for the last.
    """
    rows = max(1, elements // words)
    if even and positions:
        rows = -(-positions // -(-positions // rows))
    return [slice(first, first + rows) for first in range(0, positions, rows)]


def log_probability(projected_NE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_N: Tensor) -> Tensor:
    """Log softmax(projected · wordsᵀ + bias) at the labels, fp32 [N]; 0, without gradient, where a label is negative.

    Args:
        projected_NE: what a token head gave at N positions.
        words_VE: the tied output weight.
        bias_V: the output bias.
        labels_N: int64.
    """
    found = [
        checkpoint(
            _log_p, projected_NE[part], words_VE, bias_V, labels_N[part], use_reentrant=False, preserve_rng_state=False
        )
        for part in chunks(len(labels_N), len(words_VE), CHUNK_ELEMENTS) or [slice(0)]
    ]
    return torch.cat(found)


def _log_p(projected_nE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_n: Tensor) -> Tensor:
    logits_nV = F.linear(projected_nE, words_VE).float() + bias_V
    return -F.cross_entropy(logits_nV, labels_n.clamp(min=_UNUSED), ignore_index=_UNUSED, reduction="none")
