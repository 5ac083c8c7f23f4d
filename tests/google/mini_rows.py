"""The made-up language on which the small reference was trained: its rows, drawn again from the same random numbers.

Half of the words have the frequencies of Zipf's law, and nine in ten follow from the word before them. NumPy keeps the numbers of
`RandomState` the same for ever; `test_mini_curve.py` compares the batch that Google's code was given after its last step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD, WORDS, TOKENS = 5, 252, 32
FOLLOWS = 0.9
STEPS, BATCH = 800, 32
LENGTHS = (32, 32, 32, 24, 16, 10)
Ids = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All ids [rows, 32]: of training, in order; of the reference's batch; and of batches drawn after it."""

    train: Ids
    reference: Ids
    held_out: Ids


def rows(held_out: int) -> Rows:
    """The rows of the 800 steps, the reference's batch, and `held_out` further batches."""
    language = _Language(np.random.RandomState(0))
    train = [language.batch() for _ in range(STEPS)]
    reference = language.rows([32, 32, 32, 28, 21, 14, 10, 5], [False, True, True, True, False, True, True, True])
    return Rows(
        train=np.concatenate(train),
        reference=reference,
        held_out=np.concatenate([language.batch() for _ in range(held_out)]),
    )


class _Language:
    def __init__(self, random: np.random.RandomState) -> None:
        self.random = random
        share = 1.0 / np.arange(1, WORDS + 1)
        share /= share.sum()
        self.following = random.choice(WORDS, size=(WORDS, 2), p=share)
        self.cumulative = share.cumsum() / share.cumsum()[-1]

    def any_word(self) -> int:
        """Words as `random.choice(WORDS, p=share)` draws them, in a tenth of its time."""
        return int(self.cumulative.searchsorted(self.random.random_sample(), side="right"))

    def words(self, count: int) -> list[int]:
        found = [self.any_word()]
        while len(found) < count:
            follows = self.random.rand() < FOLLOWS
            found.append(int(self.following[found[-1], int(self.random.rand() < 0.25)]) if follows else self.any_word())
        return [FIRST_WORD + word for word in found[:count]]

    def row(self, length: int, two_segments: bool) -> list[int]:
        if not two_segments:
            ids = [CLS, *self.words(length - 2), SEP]
        else:
            words = length - 3
            first = max(1, words // 3 + int(self.random.randint(0, max(1, words // 3))))
            ids = [CLS, *self.words(first), SEP]
            ids += [*self.words(words - first), SEP]
        return ids + [PAD] * (TOKENS - len(ids))

    def rows(self, lengths: list[int], two_segments: list[bool]) -> Ids:
        return np.array([self.row(*one) for one in zip(lengths, two_segments, strict=True)], dtype=np.int64)

    def batch(self) -> Ids:
        lengths = self.random.choice(LENGTHS, size=BATCH).tolist()
        return self.rows(lengths, (self.random.rand(BATCH) < 0.6).tolist())
