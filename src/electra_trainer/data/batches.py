"""Make batches of rows of ids, whose pieces, segments and positions follow from the ids; choose the rows of step s;
count words.

The rows of step s are a pure function of (seed, s).

Each epoch is a permutation of all rows, drawn from hash(seed, "order", epoch); the epochs follow one another without a
seam, so a batch may hold the end of one and the beginning of the next. No loader, and no loader state.

Counts of words in the training rows are for the unigram generator (§3.2) and for strategic masking.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from electra_trainer import batch, randomness
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials


def to_batch(rows_BT: NDArray[np.integer], *, pad: int, cls: int, sep: int) -> batch.Batch:
    """Make a batch of packed rows.

    A piece begins at each [CLS]. Its tokens up to and including the first [SEP] are segment 0, the others segment 1;
    positions count from its [CLS]. Prepared text cannot contain these ids anywhere else.

    Args:
        rows_BT: integer ids, [B, T]; each row begins with [CLS] and is padded at its end only.
        pad, cls, sep: ids of the special tokens.
    """
    rows_BT = np.ascontiguousarray(rows_BT)
    is_start_BT = rows_BT == cls
    piece_BT = is_start_BT.cumsum(axis=1, dtype=np.int64)
    is_start_BT[:, :1] = True  # of a row of padding too: a run of tokens never reaches into the next row
    # P runs of tokens, one after another through all rows; what a run has is computed once and repeated over its tokens
    start_P = np.flatnonzero(is_start_BT)
    length_P = np.diff(start_P, append=rows_BT.size)
    separators = np.append(np.flatnonzero(rows_BT == sep), rows_BT.size)
    end_P = separators[np.searchsorted(separators, start_P)]  # the first [SEP] of a run, or one of a later run
    index = np.arange(rows_BT.size)
    position = index - np.repeat(start_P, length_P)
    segment = (index > np.repeat(end_P, length_P)).astype(np.int64)
    padding = np.flatnonzero(rows_BT == pad)  # seldom any
    for values in (piece_BT.reshape(-1), position, segment):
        values[padding] = 0
    shape = rows_BT.shape
    return batch.Batch(
        ids_BT=torch.from_numpy(rows_BT.astype(np.int64)),
        segment_BT=torch.from_numpy(segment.reshape(shape)),
        position_BT=torch.from_numpy(position.reshape(shape)),
        piece_BT=torch.from_numpy(piece_BT),
    )


@lru_cache(maxsize=3)
def _permutation(rows: int, seed: int, epoch: int) -> NDArray[np.unsignedinteger]:
    order = np.arange(rows, dtype="u4" if rows <= 1 << 32 else "u8")  # half of `permutation(rows)`'s memory
    np.random.Generator(np.random.Philox(randomness.key(seed, "order", epoch))).shuffle(order)
    return order


def batch_rows(step: int, *, rows: int, size: int, seed: int, together: int = 1) -> NDArray[np.int64]:
    """Indices of the `size` rows of step `step` (counted from 0), out of `rows` rows; `together` rows at a time that
    follow one another in the text. Rows that are left over at its end are not drawn.
    """
    if together > 1:
        groups = batch_rows(step, rows=rows // together, size=size // together, seed=seed)
        return np.add.outer(groups * together, np.arange(together)).reshape(-1)
    first = step * size
    indices = np.arange(first, first + size)
    picked = np.empty(size, dtype=np.int64)
    for epoch in range(int(first // rows), int((first + size - 1) // rows) + 1):
        here = indices // rows == epoch
        picked[here] = _permutation(rows, seed, epoch)[indices[here] % rows]
    return picked


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
    """`counts` with those of the special tokens set to 0; [UNK] keeps its count, since it represents words of the
    text.
    """
    special = store.specials
    counts[[special.pad, special.cls, special.sep, special.mask]] = 0
    return counts


def encode_rows(ids: Sequence[Sequence[int]] | Tensor) -> batch.Batch:
    """Rows of equal length, each one piece of one segment, as a batch; on the device of `ids` where that is a
    tensor.
    """
    ids_BT = torch.as_tensor(ids, dtype=torch.int64)
    positions_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device).expand_as(ids_BT)
    return batch.Batch(
        ids_BT=ids_BT, segment_BT=torch.zeros_like(ids_BT), position_BT=positions_BT, piece_BT=torch.ones_like(ids_BT)
    )


def by_length(lengths: NDArray[np.int64], *, tokens: int = 16_384, multiple: int = 1) -> Iterator[NDArray[np.int64]]:
    """All rows in batches of similar length, each of at most `tokens` when it is `padded` (at least one row), the
    longest first: for evaluation.
    """
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        rows = max(1, tokens // _rounded_up(int(lengths[order[0]]), multiple))
        yield order[:rows]
        order = order[rows:]


def _rounded_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def padded(rows: Sequence[Sequence[int]], specials: Specials, *, multiple: int = 1) -> batch.Batch:
    """Rows of ids as a batch, padded to the longest of them, or to a multiple of `multiple`."""
    widest = _rounded_up(max(map(len, rows)), multiple)
    ids_BT = np.full((len(rows), widest), specials.pad, dtype=np.int64)
    for index, row in enumerate(rows):
        ids_BT[index, : len(row)] = row
    return to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep)
