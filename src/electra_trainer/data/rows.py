"""Rows of ids -> Batch. Pieces, segments and positions follow from the ids alone."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.batch import Batch


def to_batch(rows_BT: NDArray[np.integer], *, pad: int, cls: int, sep: int) -> Batch:
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
    return Batch(
        ids_BT=torch.from_numpy(rows_BT.astype(np.int64)),
        segment_BT=torch.from_numpy(segment.reshape(shape)),
        position_BT=torch.from_numpy(position.reshape(shape)),
        piece_BT=torch.from_numpy(piece_BT),
    )
