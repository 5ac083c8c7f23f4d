"""Which rows a step of fine-tuning reads, as a pure function of (lengths, batch size, seed, step), and rows -> Batch.

Rows of like length are read together, so that little is computed on padding: each epoch is shuffled, sorted by length within
windows of some batches, and its batches shuffled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.batch import Batch
from electra_trainer.data.rows import to_batch
from electra_trainer.data.tokenizer import Specials
from electra_trainer.finetune.task import Row
from electra_trainer.randomness import key

WINDOW = 50
"""Batches among which rows are sorted by length."""
_GPU_MULTIPLE = 16
"""A GPU's rows are padded to a multiple of this: few shapes, and products that its units like."""


class Order:
    """The batches of a run. An epoch is rows // batch_size batches; the few rows that are left over differ from epoch to epoch."""

    def __init__(self, lengths: NDArray[np.int64], *, batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed = lengths, min(batch_size, len(lengths)), seed
        self.per_epoch = len(lengths) // self.batch_size
        self._epoch = lru_cache(maxsize=1)(self._plan)

    def steps(self, epochs: float) -> int:
        """Steps in so many epochs, at least 1 (released: rows // batch_size * epochs)."""
        return max(1, int(self.per_epoch * epochs))

    def at(self, step: int) -> NDArray[np.int64]:
        """Indices of the rows of step `step`, counted from 0."""
        batch: NDArray[np.int64] = self._epoch(step // self.per_epoch)[step % self.per_epoch]
        return batch

    def _plan(self, epoch: int) -> NDArray[np.int64]:
        random = np.random.default_rng(key(self.seed, "fine-tuning order", epoch))
        shuffled = random.permutation(len(self.lengths))[: self.per_epoch * self.batch_size]
        reach = WINDOW * self.batch_size
        windows = [shuffled[first : first + reach] for first in range(0, len(shuffled), reach)]
        sorted_rows = np.concatenate([rows[np.argsort(self.lengths[rows], kind="stable")] for rows in windows])
        batches: NDArray[np.int64] = sorted_rows.reshape(self.per_epoch, self.batch_size)
        return batches[random.permutation(self.per_epoch)]


def by_length(lengths: NDArray[np.int64], *, batch_size: int) -> list[NDArray[np.int64]]:
    """All rows in batches of like length, the longest first: for evaluation."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def collate(rows: Sequence[Row], specials: Specials, device: torch.device) -> Batch:
    """Rows as a batch on `device`, padded to the longest of them."""
    widest = max(len(row.ids) for row in rows)
    if device.type == "cuda":
        widest = -(-widest // _GPU_MULTIPLE) * _GPU_MULTIPLE
    ids_BT = np.full((len(rows), widest), specials.pad, dtype=np.int64)
    for index, row in enumerate(rows):
        ids_BT[index, : len(row.ids)] = row.ids
    return to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep).to(device)
