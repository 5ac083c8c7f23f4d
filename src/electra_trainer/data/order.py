"""Which rows step s reads: a pure function of (seed, s).

Each epoch is a permutation of all rows, drawn from hash(seed, "order", epoch); the epochs follow one another without a seam,
so a batch may hold the end of one and the beginning of the next. No loader, and no loader state.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from electra_trainer.randomness import key


@lru_cache(maxsize=3)
def _permutation(rows: int, seed: int, epoch: int) -> NDArray[np.unsignedinteger]:
    order = np.arange(rows, dtype="u4" if rows <= 1 << 32 else "u8")  # half of `permutation(rows)`'s memory
    np.random.Generator(np.random.Philox(key(seed, "order", epoch))).shuffle(order)
    return order


def batch_rows(step: int, *, rows: int, size: int, seed: int) -> NDArray[np.int64]:
    """Indices of the `size` rows of step `step` (counted from 0), out of `rows` rows."""
    first = step * size
    indices = np.arange(first, first + size)
    picked = np.empty(size, dtype=np.int64)
    for epoch in range(int(first // rows), int((first + size - 1) // rows) + 1):
        here = indices // rows == epoch
        picked[here] = _permutation(rows, seed, epoch)[indices[here] % rows]
    return picked
