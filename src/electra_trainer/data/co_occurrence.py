"""Word vectors from co-occurrence: pairs of word pieces counted over rows, their positive mutual information, and its
truncated SVD.

As Levy, Goldberg and Dagan (2015): a window whose weight falls with the distance, contexts to the power 0.75,
U·sqrt(S).
"""

from dataclasses import astuple
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from electra_trainer.data.tokenizer import Specials

WINDOW = 10
"""Words after a word that are its neighbours; at distance d a pair weighs 1 - (d - 1) / WINDOW."""
MOST_TOKENS = 30_000_000
"""Positions that are counted. Of more, rows at equal distances through all of them: so a count is below 2**31."""
_BLOCK = 1 << 20
"""Positions that are counted at a time; one takes up to 200 bytes."""
_SMOOTHING = 0.75
"""Power of a context's frequency, so that rare contexts count for less."""


def word_directions(
    rows_RT: NDArray[np.integer[Any]], specials: Specials, *, vocab_size: int, width: int
) -> NDArray[np.float32]:
    """A vector of length 1 for each word, [V, E]: words with like contexts have like directions, and their mean is
    taken off.

    Special tokens, and words without a context that they have more often than chance, have zeros. The same rows give
    the same bits on the same machine with as many threads.

    Args:
        rows_RT: ids of packed rows (data/batches.py).
        specials: ids that are no words.
        vocab_size: V.
        width: E, at most V.
    """
    informed = ppmi(pair_counts(rows_RT, specials, vocab_size=vocab_size))
    left_VE, values_E, _ = randomized_svd(informed, width, n_oversamples=16, n_iter=3, random_state=0)
    known_V = np.diff(informed.indptr) > 0
    vectors_VE = left_VE * np.sqrt(values_E)
    vectors_VE -= vectors_VE.mean(axis=0, where=known_V[:, None])
    length_V1 = np.linalg.norm(vectors_VE, axis=1, keepdims=True)
    directions_VE: NDArray[np.float32] = np.zeros_like(vectors_VE)
    np.divide(vectors_VE, length_V1, out=directions_VE, where=known_V[:, None] & (length_V1 > 0))
    return directions_VE


def pair_counts(
    rows_RT: NDArray[np.integer[Any]], specials: Specials, *, vocab_size: int, most_tokens: int = MOST_TOKENS
) -> Any:
    """How often each word occurs near each other one in a piece, in tenths: symmetric, sparse (CSR) [V, V], fp32.

    Special tokens are left out before distances are measured, so the segments of a piece adjoin.
    """
    rows, length = rows_RT.shape
    counted, at_once = min(rows, max(1, most_tokens // length)), max(1, _BLOCK // length)
    picked_R = np.arange(counted) * rows // counted
    total = scipy.sparse.csr_array((vocab_size, vocab_size), dtype=np.int32)
    for first in range(0, counted, at_once):
        total = total + _followers(rows_RT[picked_R[first : first + at_once]], specials, vocab_size)
    total = total.astype(np.float32)
    return (total + total.T).tocsr()


def _followers(rows_RT: NDArray[np.integer[Any]], specials: Specials, vocab_size: int) -> Any:
    """Count the words after each word alone, int32: integers add up to the same sum in any order."""
    ids = rows_RT.reshape(-1).astype(np.int32)
    words = np.flatnonzero(~np.isin(ids, astuple(specials)))
    piece_N = np.cumsum(ids == specials.cls, dtype=np.int32)[words]  # each row begins with [CLS]
    ids_N = ids[words]
    after_NW = sliding_window_view(np.pad(ids_N[1:], (0, WINDOW)), WINDOW)
    near_NW = sliding_window_view(np.pad(piece_N[1:], (0, WINDOW), constant_values=-1), WINDOW) == piece_N[:, None]
    weight_NW = np.broadcast_to(np.arange(WINDOW, 0, -1, dtype=np.int32), near_NW.shape)
    ends_N = np.append(0, near_NW.sum(axis=1).cumsum())
    shape = (len(ids_N), vocab_size)
    after = scipy.sparse.csr_array((weight_NW[near_NW], after_NW[near_NW], ends_N), shape=shape)
    here = scipy.sparse.csr_array((np.ones_like(ids_N), ids_N, np.arange(len(ids_N) + 1)), shape=shape)
    return here.T.tocsr() @ after


def ppmi(counts: Any) -> Any:
    """Positive pointwise mutual information of words (rows) with contexts (columns), sparse [V, V]; `counts` is
    overwritten.

    max(0, log(n_wc · Σ_c' n_c'^0.75 / (n_w · n_c^0.75))), with n_w the sum of a row of the symmetric counts.
    """
    sums_V = counts.sum(axis=1, dtype=np.float64)
    log_V = np.log(sums_V.clip(1)).astype(np.float32)  # a word that occurs has at least one tenth
    np.log(counts.data, out=counts.data)
    counts.data += np.float32(np.log((sums_V**_SMOOTHING).sum()))
    counts.data -= np.repeat(log_V, np.diff(counts.indptr))
    counts.data -= _SMOOTHING * log_V[counts.indices]
    counts.data.clip(0, out=counts.data)
    counts.eliminate_zeros()
    return counts
