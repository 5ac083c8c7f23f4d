"""Choose the positions to predict, and what the generator sees there (§2, §3.1); make standard fakes.

On the CPU, in NumPy and from raw random bits, so that every device, machine and version of the libraries sees the same
masks.

Standard fakes are held-out rows in which an n-gram sampler replaced a quarter of the words, the same for every run on
the data. A run's own fakes are those of its generator, so its AUC on them cannot be compared with that of another run.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer import errors, randomness
from electra_trainer.batch import Batch, Masked
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Masking

FAKE_ROWS = 512
"""Held-out rows with standard fakes, the first ones; all where there are fewer."""
_SHARE = 0.25
"""Share of the words that are replaced."""
_COUNTED = 4_000_000
"""Positions of the training rows, the first ones, in which neighbours are counted."""
_SLOTS = 1_024
"""Words that are sampled together, which bounds the memory."""
_SPAN = 3.8
"""Mean length in tokens of the spans into which a row is cut, lengths being geometric, as SpanBERT's mean."""

Ids = NDArray[np.integer[Any]]


def standard_fakes(train_BT: Ids, held_out_BT: Ids, *, vocab_size: int, never: tuple[int, ...]) -> NDArray[np.int64]:
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
    rows_BT = held_out_BT[:FAKE_ROWS].astype(np.int64)
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

    def __init__(self, rows_BT: Ids, *, vocab_size: int, never: tuple[int, ...]) -> None:
        self._allowed_V = ~np.isin(np.arange(vocab_size), never)
        self._count_V = np.bincount(rows_BT.reshape(-1), minlength=vocab_size) * self._allowed_V
        first_N, second_N = rows_BT[:, :-1].reshape(-1), rows_BT[:, 1:].reshape(-1)
        self._after, self._before = self._beside(first_N, second_N), self._beside(second_N, first_N)

    def _beside(self, neighbour_N: Ids, word_N: Ids) -> Any:
        """How often a word stood beside a neighbour, sparse [V neighbours, V words]."""
        from scipy import sparse  # loads in a quarter of a second, and only an evaluation needs it

        kept_N = self._allowed_V[word_N]
        pairs = (neighbour_N[kept_N], word_N[kept_N])
        return sparse.csr_array((np.ones(len(pairs[0])), pairs), shape=(len(self._allowed_V),) * 2)

    def sample(self, left_K: Ids, right_K: Ids, draws_K: NDArray[np.float64]) -> NDArray[np.int64]:
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


Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint32] | NDArray[np.uint64]
_NARROW = 1024  # columns up to which 32-bit keys leave 22 random bits above the column


@dataclass(frozen=True, kw_only=True)
class MaskTokens:
    """Chooses k = round(fraction * n) positions of each row, n its real tokens, specials counted (as released); or
    ⌈fraction * n⌉.

    At least one position is chosen, at most int((fraction + 0.005) * T) of the rounded; [CLS], [SEP], [MASK] and
    padding never are. Where words or spans are drawn, fewer than k are chosen in a row where they do not add up to k.
    """

    masking: Masking
    vocab_size: int
    mask_id: int
    never: tuple[int, ...]
    """Ids that are never chosen."""
    counts_V: Ints | None = None
    """How often each word occurs; needed where the masking has a `rarity`."""
    begins_V: Bools | None = None
    """Whether a token begins a word (`tokenizer.word_starts`); needed where the masking draws words."""

    def __post_init__(self) -> None:
        assert (self.counts_V is not None) or not self.masking.rarity, "strategic masking needs the words' counts"
        assert (self.begins_V is not None) or self.masking.unit != "word", "whole-word masking needs to know words"

    def __call__(self, batch: Batch, rng: randomness.Rng) -> Masked:
        """Mask a batch that is on the CPU; the same (seed, step, lane) gives the same masks. DataError: an id beyond
        the vocabulary.
        """
        ids_BT: Ints = batch.ids_BT.numpy()
        check_ids(ids_BT, self.vocab_size)
        real_BT: Bools = batch.real_BT.numpy()
        candidates_BT = real_BT.copy()
        for special in self.never:
            candidates_BT &= ids_BT != special
        bits = _Bits(rng)
        wanted_B = self._wanted(real_BT)
        if self.counts_V is not None and self.masking.rarity:  # rarer words more often
            chance_V = self.counts_V.clip(1).astype(np.float64) ** -self.masking.rarity
            slots_K = _weighted(candidates_BT, wanted_B, chance_V[ids_BT], bits)
        elif self.masking.unit == "span":
            begins_BT = bits.narrow(ids_BT.size).reshape(ids_BT.shape) < _of_32_bits(1 / _SPAN)
            slots_K = _whole_words(candidates_BT, begins_BT, wanted_B, bits)
        elif self.begins_V is not None and self.masking.unit == "word":
            slots_K = _whole_words(candidates_BT, self.begins_V[ids_BT], wanted_B, bits)
        else:
            choose = _distinct if self.masking.draw == "distinct" else _with_replacement
            slots_K = choose(candidates_BT, wanted_B, bits)
        input_BT = ids_BT.copy()
        self._replace(input_BT.reshape(-1), slots_K, bits)
        return Masked(batch=batch, input_BT=torch.from_numpy(input_BT), slots_K=torch.from_numpy(slots_K))

    def _wanted(self, real_BT: Bools) -> Ints:
        """Positions to choose in each row, [B]; 0 for a row of padding."""
        real_B = np.count_nonzero(real_BT, axis=1)
        if self.masking.rounding == "up":
            wanted_B = np.array([self.masking.positions(real) for real in real_B.tolist()])
        else:
            wanted_B = np.rint(real_B.astype(np.float32) * np.float32(self.masking.fraction)).astype(np.int64)
        return np.where(real_B > 0, wanted_B.clip(1, self.masking.most(real_BT.shape[1])), 0)

    def _replace(self, flat: Ints, slots_K: Ints, bits: "_Bits") -> None:
        """Put [MASK], or a random word, at some of the slots."""
        masking = self.masking
        what_K = bits.narrow(len(slots_K)).astype(np.int64)
        hide_K = what_K < _of_32_bits(masking.mask_share)
        if masking.random_share:
            swap_K = ~hide_K & (what_K < _of_32_bits(masking.mask_share + masking.random_share))
            flat[slots_K[swap_K]] = bits.below(self.vocab_size, len(slots_K))[swap_K]
        flat[slots_K[hide_K]] = self.mask_id  # last: a position drawn twice is hidden if either draw says so


def check_ids(ids_BT: NDArray[np.integer[Any]], vocab_size: int) -> None:
    """DataError: an id beyond the vocabulary."""
    if ids_BT.max(initial=0) >= vocab_size:
        raise errors.DataError(
            f"the prepared rows hold id {ids_BT.max()}, and the vocabulary ends at {vocab_size - 1}: their files were "
            "changed or damaged. Delete them, and prepare again."
        )


class _Bits:
    """Random bits of one lane of one step, drawn one portion after another."""

    def __init__(self, rng: randomness.Rng) -> None:
        self._source = rng.bits("mask")

    def narrow(self, count: int) -> NDArray[np.uint32]:
        """Numbers of 32 random bits."""
        return self._source.random_raw(-(-count // 2)).view(np.uint32)[:count]

    def wide(self, count: int) -> NDArray[np.uint64]:
        """Numbers of 64 random bits."""
        return self._source.random_raw(count)

    def below(self, limit: int | NDArray[np.int64], count: int) -> Ints:
        """Numbers from 0 to below `limit`, which is at most 2**31; it biases them by a share of limit / 2**32 at
        most.
        """
        return (self.narrow(count).astype(np.int64) * limit) >> 32


def _of_32_bits(share: float) -> int:
    return round(share * (1 << 32))


def _distinct(candidates_BT: Bools, wanted_B: Ints, bits: _Bits) -> Ints:
    """The candidates with the least random keys; a key ends with its column, so that no two of a row are equal."""
    rows, columns = candidates_BT.shape
    keys: Keys = bits.narrow(rows * columns) if columns <= _NARROW else bits.wide(rows * columns)
    zero = keys.dtype.type(0)
    low = keys.dtype.type((1 << (columns - 1).bit_length()) - 1)
    keys_BT = (keys.reshape(rows, columns) & ~low) | np.arange(columns).astype(keys.dtype)
    keys_BT = np.where(candidates_BT, keys_BT, ~zero)  # the end of the order
    last_B1 = np.take_along_axis(np.sort(keys_BT, axis=1), (wanted_B[:, None] - 1).clip(0), axis=1)
    return np.flatnonzero((keys_BT <= last_B1) & candidates_BT)


def _weighted(candidates_BT: Bools, wanted_B: Ints, chances_BT: NDArray[np.float64], bits: _Bits) -> Ints:
    """Different candidates, each draw in proportion to the chances of those that are left.

    The first to arrive, when each candidate waits an exponential time with its chance as rate (Efraimidis and Spirakis,
    2006).
    """
    uniform_BT = (bits.wide(chances_BT.size).reshape(chances_BT.shape) >> 11).astype(np.float64) * 2.0**-53
    wait_BT = np.where(candidates_BT, -np.log1p(-uniform_BT) / chances_BT, np.inf)
    rank_BT = wait_BT.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return np.flatnonzero((rank_BT < wanted_B[:, None]) & candidates_BT)


def _whole_words(candidates_BT: Bools, begins_BT: Bools, wanted_B: Ints, bits: _Bits) -> Ints:
    """The tokens of words in random order; a word that is longer than what its row may still choose is passed over.

    A word begins where `begins_BT` says so, and after a token that is not a candidate, such as [CLS] or [SEP].
    """
    first_BT = candidates_BT.copy()
    first_BT[:, 1:] &= begins_BT[:, 1:] | ~candidates_BT[:, :-1]
    word_BT = first_BT.cumsum().reshape(first_BT.shape) - 1  # W words, numbered through all rows
    length_W = np.bincount(word_BT[candidates_BT])
    key_BT = np.where(first_BT, bits.wide(first_BT.size).reshape(first_BT.shape), ~np.uint64(0))
    order_BT = key_BT.argsort(axis=1, kind="stable")
    length_BT = np.full(first_BT.shape, first_BT.shape[1] + 1)  # where no word begins: longer than any row
    length_BT[first_BT] = length_W
    length_BT = np.take_along_axis(length_BT, order_BT, axis=1)
    left_B, fits_BT = wanted_B.copy(), np.zeros_like(first_BT)
    for turn in range(int(np.count_nonzero(first_BT, axis=1).max(initial=0))):
        fits_BT[:, turn] = length_BT[:, turn] <= left_B
        left_B -= length_BT[:, turn] * fits_BT[:, turn]
        if not left_B.any():
            break
    taken_BT = np.zeros_like(first_BT)
    np.put_along_axis(taken_BT, order_BT, fits_BT, axis=1)
    taken_BT = taken_BT[first_BT][word_BT] & candidates_BT if len(length_W) else taken_BT
    return np.flatnonzero(taken_BT)


def _with_replacement(candidates_BT: Bools, wanted_B: Ints, bits: _Bits) -> Ints:
    """Draws of one candidate after another, in the order of positions, some of them more than once."""
    many_B = np.count_nonzero(candidates_BT, axis=1)
    row_K = np.repeat(np.arange(len(many_B)), np.where(many_B > 0, wanted_B, 0))
    first_B = np.cumsum(many_B) - many_B  # where a row's candidates begin among all
    return np.sort(np.flatnonzero(candidates_BT)[first_B[row_K] + bits.below(many_B[row_K], len(row_K))])
