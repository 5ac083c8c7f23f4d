"""Sampling replacements and putting them in (§2): x_corrupt = REPLACE(x, m, x̂)."""

from __future__ import annotations

import torch
from torch import Tensor

from electra_trainer.batch import Corrupted, Masked


def sample(logits_KV: Tensor, generator: torch.Generator) -> Tensor:
    """One draw from softmax(logits) for each row, int64 [K]; fp32, by inverting the cumulative distribution."""
    cumulative_KV = logits_KV.detach().float().softmax(-1).cumsum(-1)
    draw_K1 = torch.rand((len(logits_KV), 1), generator=generator, device=logits_KV.device)
    # right=True finds the first entry above the draw, so a word of probability 0 is never taken
    found_K1 = torch.searchsorted(cumulative_KV, draw_K1 * cumulative_KV[:, -1:], right=True)
    return found_K1[:, 0].clamp(max=logits_KV.shape[1] - 1)


def corrupt(masked: Masked, sampled_K: Tensor) -> Corrupted:
    """Put the sampled ids at the chosen positions, also where the generator saw the original word.

    A sample that equals the original counts as original (§2). A position that was drawn twice gets the floored average of
    its sampled ids, as in the released code; with distinct positions there are none.
    """
    ids_BT = masked.batch.ids_BT
    flat = ids_BT.flatten()
    total = torch.zeros_like(flat).index_add_(0, masked.slots_K, sampled_K)
    times = torch.zeros_like(flat).index_add_(0, masked.slots_K, torch.ones_like(sampled_K))
    input_BT = torch.where(times > 0, total // times.clamp(min=1), flat).view_as(ids_BT)
    return Corrupted(batch=masked.batch, input_BT=input_BT, replaced_BT=input_BT != ids_BT, sampled_K=sampled_K)
