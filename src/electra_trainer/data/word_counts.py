"""How often each word occurs in the training rows: what the unigram generator samples by (§3.2) and strategic masking weighs by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.store import Store

_ROWS = 65_536
"""Rows that are read at a time."""


def word_counts(store: Store) -> NDArray[np.int64]:
    """Occurrences of each id in the training rows, [V]; [PAD], [CLS], [SEP] and [MASK] have none."""
    rows = store.rows("train")
    counts = np.zeros(store.vocab_size, dtype=np.int64)
    for first in range(0, len(rows), _ROWS):
        counts += np.bincount(rows[first : first + _ROWS].reshape(-1), minlength=store.vocab_size)
    return without_specials(counts, store)


def uniform_counts(store: Store) -> NDArray[np.int64]:
    """One for each word, none for [PAD], [CLS], [SEP] and [MASK]; [V]."""
    return without_specials(np.ones(store.vocab_size, dtype=np.int64), store)


def without_specials(counts: NDArray[np.int64], store: Store) -> NDArray[np.int64]:
    """`counts` with those of the special tokens set to 0; [UNK] stands for words of the text and keeps its own."""
    special = store.specials
    counts[[special.pad, special.cls, special.sep, special.mask]] = 0
    return counts
