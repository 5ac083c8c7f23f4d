"""Dynamic masking: which positions are predicted, and what the generator sees there (§2, §3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from electra_trainer.batch import Batch, Masked
from electra_trainer.config import Masking
from electra_trainer.randomness import Rng


@dataclass(frozen=True, kw_only=True)
class MaskTokens:
    """Chooses k = round(fraction * n) positions of each row, n its real tokens, specials counted (as released).

    At least one position is chosen, at most int((fraction + 0.005) * T); [CLS], [SEP], [MASK] and padding never are.
    """

    masking: Masking
    vocab_size: int
    mask_id: int
    never: tuple[int, ...]
    """Ids that are never chosen."""

    def __call__(self, batch: Batch, rng: Rng) -> Masked:
        """Mask a batch; the same (seed, step, lane) gives the same masks."""
        ids_BT = batch.ids_BT
        device = ids_BT.device
        candidates_BT = batch.real_BT & ~torch.isin(ids_BT, torch.tensor(self.never, device=device))
        generator = rng.generator("mask", device)
        if self.masking.draw == "distinct":
            slots_K = self._distinct(candidates_BT, self._wanted(batch), generator)
        else:
            slots_K = self._with_replacement(candidates_BT, self._wanted(batch), generator)
        what_K = torch.rand(len(slots_K), generator=generator, device=device)
        words_K = torch.randint(self.vocab_size, (len(slots_K),), generator=generator, device=device)
        hide_K = what_K < self.masking.mask_share
        swap_K = ~hide_K & (what_K < self.masking.mask_share + self.masking.random_share)
        flat = ids_BT.flatten().clone()
        flat[slots_K[swap_K]] = words_K[swap_K]
        flat[slots_K[hide_K]] = self.mask_id  # last: a position drawn twice is hidden if either draw says so
        return Masked(batch=batch, input_BT=flat.view_as(ids_BT), slots_K=slots_K)

    def most(self, tokens: int) -> int:
        """The most positions that are chosen in a row of `tokens`."""
        return max(1, int((self.masking.fraction + 0.005) * tokens))

    def _wanted(self, batch: Batch) -> Tensor:
        """Positions to choose in each row, int64 [B]; 0 for a row of padding."""
        real_B = batch.real_BT.sum(1)
        wanted_B = (real_B * self.masking.fraction).round().long().clamp(1, self.most(batch.ids_BT.shape[1]))
        return torch.where(real_B > 0, wanted_B, 0)

    @staticmethod
    def _distinct(candidates_BT: Tensor, wanted_B: Tensor, generator: torch.Generator) -> Tensor:
        scores_BT = torch.rand(candidates_BT.shape, generator=generator, device=candidates_BT.device)
        order_BT = scores_BT.masked_fill(~candidates_BT, 2.0).argsort(dim=1, stable=True)
        rank_BT = torch.empty_like(order_BT).scatter_(
            1, order_BT, torch.arange(order_BT.shape[1], device=order_BT.device).expand_as(order_BT)
        )
        return ((rank_BT < wanted_B[:, None]) & candidates_BT).flatten().nonzero()[:, 0]

    @staticmethod
    def _with_replacement(candidates_BT: Tensor, wanted_B: Tensor, generator: torch.Generator) -> Tensor:
        rows, columns = candidates_BT.shape
        most = int(wanted_B.max()) if rows else 0
        many_B = candidates_BT.sum(1)
        draws_BK = torch.rand((rows, most), generator=generator, device=candidates_BT.device)
        nth_BK = (draws_BK * many_B[:, None]).long().clamp(max=columns - 1)
        by_candidate_BT = candidates_BT.long().argsort(
            dim=1, descending=True, stable=True
        )  # candidates first, in order
        column_BK = by_candidate_BT.gather(1, nth_BK)
        used_BK = (torch.arange(most, device=column_BK.device) < wanted_B[:, None]) & (many_B[:, None] > 0)
        column_BK = column_BK.masked_fill(~used_BK, columns).sort(1).values  # unused draws last, then cut off
        flat_BK = column_BK + torch.arange(rows, device=column_BK.device)[:, None] * columns
        return flat_BK[used_BK]
