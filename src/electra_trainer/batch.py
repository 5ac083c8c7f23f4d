"""The values that flow through a step, one type an arrow.

Shape letters, used as suffixes everywhere:

    B  rows in a batch            T  tokens in a row
    K  masked slots in a batch    V  words in the vocabulary
    D  hidden size                E  embedding size
    H  attention heads            N  real (non-pad) tokens in a batch
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of token ids and what follows from them.

    A row holds one or more pieces `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, then padding. A token attends only to
    tokens with its own `piece_BT`.
    """

    ids_BT: Tensor  # int64, token ids
    segment_BT: Tensor  # int64, 0 for [CLS] A [SEP], 1 for B [SEP]; 0 on padding
    position_BT: Tensor  # int64, counted from 0 in each piece; 0 on padding
    piece_BT: Tensor  # int64, 1, 2, … within a row; 0 on padding

    @property
    def real_BT(self) -> Tensor:
        """bool, True on every token that is not padding."""
        return self.piece_BT > 0

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to another device."""
        return Batch(**{name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Masked:
    """A batch with some positions chosen for prediction, in the order of rows.

    With the released code's draw with replacement a position can be chosen more than once; each choice is a slot.
    """

    batch: Batch
    input_BT: Tensor  # int64, ids with the chosen positions masked: what the generator reads
    slots_K: Tensor  # int64, flat index (row * T + column) of each chosen position; -1: a slot that is not used

    def to(self, device: torch.device) -> "Masked":
        """Copy it to another device."""
        return Masked(
            batch=self.batch.to(device),
            input_BT=self.input_BT.to(device, non_blocking=True),
            slots_K=self.slots_K.to(device, non_blocking=True),
        )

    @property
    def labels_K(self) -> Tensor:
        """int64, the original id at each slot; negative where the slot is not used."""
        return self.batch.ids_BT.flatten()[self.slots_K].masked_fill(self.slots_K < 0, -100)

    @property
    def chosen_BT(self) -> Tensor:
        """bool, True at the chosen positions."""
        used_K = (self.slots_K >= 0).long()
        flat = torch.zeros_like(self.batch.ids_BT).flatten().index_add_(0, self.slots_K.clamp(min=0), used_K)
        return (flat > 0).view_as(self.batch.ids_BT)


@dataclass(frozen=True, kw_only=True)
class Corrupted:
    """A batch with the chosen positions replaced by the generator's samples."""

    batch: Batch
    input_BT: Tensor  # int64, ids with samples put in: what the discriminator reads
    replaced_BT: Tensor  # bool, True where the id differs from the original (a lucky sample: as RTD.lucky says)
    sampled_K: Tensor  # int64, the sampled id of each slot


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of a loss: a sum over things that were counted beforehand, and its weight in the total."""

    sum: Tensor  # scalar, fp32
    count: str  # the name in `counts(masked)` of what it is divided by
    weight: float


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Output of an objective: loss sums, never means, and diagnostics.

    `diagnostics` holds detached tensors for the record and the health line; it is empty unless asked for.
    """

    terms: dict[str, Term]
    diagnostics: dict[str, Tensor] = field(default_factory=dict)

    def total(self, counts: Mapping[str, float | Tensor]) -> Tensor:
        """Weighted sum of the terms, each divided by the count of the whole step (over micro-batches and ranks)."""
        atleast = {name: n.clamp(min=1.0) if isinstance(n, Tensor) else max(n, 1.0) for name, n in counts.items()}
        parts = [term.weight * term.sum / atleast[term.count] for term in self.terms.values()]
        return torch.stack(parts).sum()
