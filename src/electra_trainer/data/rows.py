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
    ids_BT = torch.from_numpy(rows_BT.astype(np.int64))
    columns_T = torch.arange(ids_BT.shape[1])
    starts_BT = ids_BT == cls
    real_BT = ids_BT != pad
    piece_BT = starts_BT.cumsum(1) * real_BT
    start_BT = torch.where(starts_BT, columns_T, 0).cummax(1).values
    ends_BT = ids_BT == sep
    ended_BT = ends_BT.cumsum(1) - ends_BT.long()  # separators strictly before each token, in the row
    ended_before_piece_BT = ended_BT.gather(1, start_BT)
    return Batch(
        ids_BT=ids_BT,
        segment_BT=((ended_BT > ended_before_piece_BT) & real_BT).long(),
        position_BT=(columns_T - start_BT) * real_BT,
        piece_BT=piece_BT,
    )
