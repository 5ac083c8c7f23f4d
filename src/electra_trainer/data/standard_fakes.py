"""Standard fakes: held-out rows in which an n-gram sampler replaced a quarter of the words, the same for every run on
the data.

A run's own fakes are those of its generator, so its AUC on them cannot be compared with that of another run.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.masking import check_ids
from electra_trainer.randomness import Rng

ROWS = 512
"""Held-out rows, the first ones; all where there are fewer."""
_SHARE = 0.25
"""Share of the words that are replaced."""
_COUNTED = 4_000_000
"""Positions of the training rows, the first ones, in which neighbours are counted."""
_SLOTS = 1_024
"""Words that are sampled together, which bounds the memory."""

Ints = NDArray[np.integer[Any]]


def standard_fakes(train_BT: Ints, held_out_BT: Ints, *, vocab_size: int, never: tuple[int, ...]) -> NDArray[np.int64]:
    """The first held-out rows with samples at a quarter of their words; int64 [min(B, 512), T]. A sample may equal the
    original.

    The neighbours of a word are the original ones, also where they are replaced too.

    Args:
        train_BT: training rows, whose first four million positions are counted.
        held_out_BT: held-out rows.
        vocab_size: all ids are below.
        never: ids that neither are replaced nor replace.

    Raises:
        DataError: an id beyond the vocabulary.
    """
    rows_BT = held_out_BT[:ROWS].astype(np.int64)
    counted_BT = train_BT[: -(-_COUNTED // train_BT.shape[1])]
    check_ids(rows_BT, vocab_size)
    check_ids(counted_BT, vocab_size)
    words = np.flatnonzero(~np.isin(rows_BT, never))
    bits = Rng(0, 0, 0).bits("standard fakes")
    slots_K = words[bits.random_raw(len(words)).argsort(kind="stable")[: round(_SHARE * len(words))]]
    draws_K = (bits.random_raw(len(slots_K)) >> 11).astype(np.float64) * 2.0**-53
    sampler = NGrams(counted_BT, vocab_size=vocab_size, never=never)
    around_BT = np.pad(rows_BT, ((0, 0), (1, 1)), constant_values=never[0])  # beyond a row there is no word
    left_K, right_K = around_BT[:, :-2].take(slots_K), around_BT[:, 2:].take(slots_K)
    for first in range(0, len(slots_K), _SLOTS):
        part = slice(first, first + _SLOTS)
        rows_BT.put(slots_K[part], sampler.sample(left_K[part], right_K[part], draws_K[part]))
    return rows_BT


class NGrams:
    """Words by their neighbours on both sides: P(w | l, r) ∝ count(l, w) · count(w, r) / count(w).

    Where no word was counted next to both, one that was counted after l, else one before r, else any by its frequency.

    Args:
        rows_BT: ids that are counted.
        vocab_size: V, all ids are below.
        never: ids that are not sampled; they are neighbours as words are.
    """

    def __init__(self, rows_BT: Ints, *, vocab_size: int, never: tuple[int, ...]) -> None:
        self._allowed_V = ~np.isin(np.arange(vocab_size), never)
        self._count_V = np.bincount(rows_BT.reshape(-1), minlength=vocab_size) * self._allowed_V
        first_N, second_N = rows_BT[:, :-1].reshape(-1), rows_BT[:, 1:].reshape(-1)
        self._after, self._before = self._beside(first_N, second_N), self._beside(second_N, first_N)

    def _beside(self, neighbour_N: Ints, word_N: Ints) -> Any:
        """How often a word stood beside a neighbour, sparse [V neighbours, V words]."""
        from scipy import sparse  # loads in a quarter of a second, and only an evaluation needs it

        kept_N = self._allowed_V[word_N]
        pairs = (neighbour_N[kept_N], word_N[kept_N])
        return sparse.csr_array((np.ones(len(pairs[0])), pairs), shape=(len(self._allowed_V),) * 2)

    def sample(self, left_K: Ints, right_K: Ints, draws_K: NDArray[np.float64]) -> NDArray[np.int64]:
        """A word between each two neighbours, from a uniform number in [0, 1); int64 [K]."""
        after, before = self._after[left_K], self._before[right_K]
        between = after.multiply(before).tocsr()
        between.data /= self._count_V[between.indices]
        sampled_K = _drawn(between, draws_K)
        for weights_KV in (after, before):
            unseen = np.flatnonzero(sampled_K < 0)
            sampled_K[unseen] = _drawn(weights_KV[unseen], draws_K[unseen])
        sums_V = self._count_V.cumsum()
        return np.where(sampled_K < 0, sums_V.searchsorted(draws_K * sums_V[-1], side="right"), sampled_K)


def _drawn(weights_KV: Any, draws_K: NDArray[np.float64]) -> NDArray[np.int64]:
    """A column of each row of a sparse matrix in proportion to its weights, -1 where a row has none; int64 [K]."""
    sums = np.concatenate([[0.0], weights_KV.data.cumsum()])
    start_K, end_K = weights_KV.indptr[:-1], weights_KV.indptr[1:]
    wanted_K = sums[start_K] + draws_K * (sums[end_K] - sums[start_K])
    at_K = np.minimum(sums.searchsorted(wanted_K, side="right") - 1, end_K - 1)
    return np.append(weights_KV.indices, -1)[np.where(start_K < end_K, at_K, -1)].astype(np.int64)
