"""Sums of the two losses, and the corrupted input x_corrupt = REPLACE(x, m, x̂) (§2). The loop divides, once."""

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.batch import Corrupted, Masked


def replaced_loss(logits_BT: Tensor, replaced_BT: Tensor, counted_BT: Tensor) -> Tensor:
    """L_Disc: sum over counted tokens of the binary cross-entropy of "replaced"; fp32 scalar."""
    return (replaced_losses(logits_BT, replaced_BT) * counted_BT).sum()


def replaced_losses(logits_BT: Tensor, replaced_BT: Tensor) -> Tensor:
    """Binary cross-entropy of "replaced" at each token, fp32 [B, T]."""
    return F.binary_cross_entropy_with_logits(logits_BT.float(), replaced_BT.float(), reduction="none")


def invert(p_KV: Tensor, draws_K: Tensor) -> Tensor:
    """The word at which the cumulative distribution of each row passes its draw, int64 [K]; rows need not add up to 1."""
    cumulative_KV = p_KV.cumsum(-1)
    # right=True finds the first entry above the draw, so a word of probability 0 is never taken
    found_K1 = torch.searchsorted(cumulative_KV, draws_K[:, None] * cumulative_KV[:, -1:], right=True)
    return found_K1[:, 0].clamp(max=p_KV.shape[1] - 1)


def corrupt(masked: Masked, sampled_K: Tensor) -> Corrupted:
    """Put the sampled ids at the chosen positions, also where the generator saw the original word.

    A sample that equals the original counts as original (§2). A position that was drawn twice gets the floored average of
    its sampled ids, as in the released code; with distinct positions there are none. Slots that are not used put in nothing.
    """
    ids_BT = masked.batch.ids_BT
    flat, used_K, place_K = ids_BT.flatten(), (masked.slots_K >= 0).long(), masked.slots_K.clamp(min=0)
    total = torch.zeros_like(flat).index_add_(0, place_K, sampled_K * used_K)
    times = torch.zeros_like(flat).index_add_(0, place_K, used_K)
    input_BT = torch.where(times > 0, total // times.clamp(min=1), flat).view_as(ids_BT)
    return Corrupted(batch=masked.batch, input_BT=input_BT, replaced_BT=input_BT != ids_BT, sampled_K=sampled_K)
