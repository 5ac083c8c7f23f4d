"""Which words of held-out rows are predicted one at a time: a pure function of the seed and the row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from electra_trainer.batch import Batch
from electra_trainer.data.rows import to_batch
from electra_trainer.data.tokenizer import Specials
from electra_trainer.randomness import Rng


@dataclass(frozen=True, kw_only=True)
class Sites:
    """K words, each in a row of its own."""

    rows_BT: NDArray[np.integer]
    row_K: NDArray[np.int64]
    """Row of each word, ascending."""
    column_K: NDArray[np.int64]
    specials: Specials

    @property
    def truth_K(self) -> NDArray[np.int64]:
        """The word that stands there."""
        return self.rows_BT[self.row_K, self.column_K].astype(np.int64)

    def contexts(self, part: slice) -> Batch:
        """Rows of some sites, [k, T], the words not masked; a token attends to its own piece as in training."""
        specials = self.specials
        return to_batch(self.rows_BT[self.row_K[part]], pad=specials.pad, cls=specials.cls, sep=specials.sep)


def choose_sites(rows_BT: NDArray[np.integer], *, rows: int, per_row: int, seed: int, specials: Specials) -> Sites:
    """`per_row` random words of each of `rows` random rows; all that there are where there are fewer.

    [PAD], [CLS], [SEP], [MASK] and [UNK] are never chosen. A row's words do not depend on how many rows are taken.
    """
    order = np.argsort(Rng(seed, 0, 0).bits("cloze rows").random_raw(len(rows_BT)), kind="stable")
    never = [specials.pad, specials.unk, specials.cls, specials.sep, specials.mask]
    row_K, column_K = [], []
    for row in np.sort(order[:rows]):
        columns = np.flatnonzero(~np.isin(rows_BT[row], never))
        keys = Rng(seed, 0, int(row)).bits("cloze columns").random_raw(len(columns))
        chosen = np.sort(columns[np.argsort(keys, kind="stable")[:per_row]])
        row_K += [int(row)] * len(chosen)
        column_K += chosen.tolist()
    return Sites(
        rows_BT=rows_BT,
        row_K=np.array(row_K, dtype=np.int64),
        column_K=np.array(column_K, dtype=np.int64),
        specials=specials,
    )
