"""Counts of neighbours against a plain loop, mutual information written out by hand, and words of equal contexts in real text."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import small
from tests.data.samples import SPECIALS
from tests.prepared import embedded_lines

from electra_trainer.data import co_occurrence
from electra_trainer.data.co_occurrence import WINDOW, pair_counts, ppmi, word_directions
from electra_trainer.data.tokenizer import as_plain_text
from electra_trainer.data.vocabulary import train_tokenizer


def counted_plainly(rows_RT: NDArray[np.int64], vocab_size: int) -> NDArray[np.float64]:
    """Each pair of words of a piece, specials taken out, both ways."""
    counts = np.zeros((vocab_size, vocab_size))
    for row in rows_RT.tolist():
        pieces: list[list[int]] = []
        for number in row:
            if number == SPECIALS.cls:
                pieces.append([])
            elif number not in (SPECIALS.pad, SPECIALS.unk, SPECIALS.sep, SPECIALS.mask):
                pieces[-1].append(number)
        for piece in pieces:
            for at, word in enumerate(piece):
                for distance, other in enumerate(piece[at + 1 : at + 1 + WINDOW], start=1):
                    counts[word, other] += 1 - (distance - 1) / WINDOW
                    counts[other, word] += 1 - (distance - 1) / WINDOW
    return counts


@pytest.mark.parametrize("block", [48, 1 << 20])
def test_counts_are_those_of_a_plain_loop(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several pieces and of one, longer than the window; two rows at a time, or all."""
    monkeypatch.setattr(co_occurrence, "_BLOCK", block)
    rows = np.concatenate([small.rows(40), small.rows(10, full=True)])
    rows[3, 2] = small.UNK
    found = pair_counts(rows, SPECIALS, vocab_size=small.WORDS).toarray()
    np.testing.assert_allclose(found / WINDOW, counted_plainly(rows, small.WORDS), rtol=1e-6)


def test_of_many_rows_some_are_counted() -> None:
    """At equal distances."""
    rows = small.rows(30)
    found = pair_counts(rows, SPECIALS, vocab_size=small.WORDS, most_tokens=10 * rows.shape[1])
    np.testing.assert_allclose(found.toarray() / WINDOW, counted_plainly(rows[::3], small.WORDS), rtol=1e-6)


def test_mutual_information_by_hand() -> None:
    """Four times `a b`, four times `c d`, once `a c`: n_a = n_c = 5, n_b = n_d = 4."""
    a, b, c, d = range(5, 9)
    pieces = [(a, b)] * 4 + [(c, d)] * 4 + [(a, c)]
    rows = np.array([[small.CLS, *piece, small.SEP] for piece in pieces])
    found = ppmi(pair_counts(rows, SPECIALS, vocab_size=10)).toarray()
    contexts = 2 * 5**0.75 + 2 * 4**0.75
    expected = np.zeros((10, 10))
    expected[a, b] = expected[c, d] = math.log(4 * contexts / (5 * 4**0.75))
    expected[b, a] = expected[d, c] = math.log(4 * contexts / (4 * 5**0.75))
    # together less often than chance: log(1 · 12.34 / (5 · 3.34)) < 0
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found[a, b] == pytest.approx(1.2503, abs=1e-4) and found[b, a] == pytest.approx(1.3061, abs=1e-4)


def split_words(words: int) -> tuple[NDArray[np.int64], list[tuple[int, int]], int]:
    """Rows of the embedded corpus in which every other occurrence of some frequent words is another, new word; the pairs; V."""
    plain: Any = as_plain_text(train_tokenizer(lines := embedded_lines(3000), vocab_size=1000))
    encoded = [line.ids for line in plain.encode_batch(lines, add_special_tokens=False)]
    rows = np.full((len(encoded), 34), small.PAD)
    for row, ids in zip(rows, encoded, strict=True):
        kept = ids[:32]
        row[: len(kept) + 2] = [SPECIALS.cls, *kept, SPECIALS.sep]
    size = plain.get_vocab_size()
    counts = np.bincount(rows.reshape(-1), minlength=size)
    counts[: small.MASK + 1] = 0
    pairs = [(int(word), size + n) for n, word in enumerate(np.argsort(-counts)[20 : 20 + words])]
    for word, twin in pairs:
        rows.reshape(-1)[np.flatnonzero(rows == word)[::2]] = twin
    return rows, pairs, size + words


def test_words_of_equal_contexts_are_near_each_other() -> None:
    rows, pairs, size = split_words(30)
    found = word_directions(rows, SPECIALS, vocab_size=size, width=32)
    lengths = np.linalg.norm(found, axis=1)
    seen = np.bincount(rows.reshape(-1), minlength=size) > 0
    seen[: small.MASK + 1] = False
    np.testing.assert_allclose(lengths[seen], 1, rtol=1e-5)
    assert not lengths[~seen].any() and (~seen).sum() >= small.MASK + 1
    likeness = found @ found.T
    np.fill_diagonal(likeness, -1)
    nearest = [likeness[word].argmax() == twin for word, twin in pairs]
    assert sum(nearest) >= 0.7 * len(pairs), nearest


def test_the_same_rows_give_the_same_bits() -> None:
    made = [word_directions(small.rows(60), SPECIALS, vocab_size=small.WORDS, width=16).tobytes() for _ in range(2)]
    assert made[0] == made[1]
