"""Standard fakes: the sampler against counts in a loop, which words are replaced, and that nothing but the data decides them."""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.prepared import small_config, write_store

from electra_trainer.data.masking import NGrams, standard_fakes
from electra_trainer.data.store import Store
from electra_trainer.errors import DataError
from electra_trainer.settings.config import Config, Masking
from electra_trainer.settings.methods import MLM, Unigram
from electra_trainer.train.step import Feed

PAD, CLS, SEP, MASK = NEVER = (0, 1, 2, 3)
WORDS = 12
ROWS = np.array(
    [
        [CLS, 4, 5, 6, 4, 5, 7, SEP, PAD],
        [CLS, 4, 8, 6, 5, 5, SEP, CLS, 9],
        [CLS, 7, 8, 6, 4, 5, 6, 9, SEP],
        [CLS, 4, 5, 6, 10, SEP, PAD, PAD, PAD],
    ]
)


def probabilities(left: int, right: int) -> tuple[int, list[float]]:
    """0 where both neighbours decide, 1 or 2 for one of them, 3 for frequencies; and each word's probability, by loops."""
    rows = ROWS.tolist()
    pairs = Counter((row[at], row[at + 1]) for row in rows for at in range(len(row) - 1))
    count = Counter(word for row in rows for word in row)
    words = [word for word in range(WORDS) if word not in NEVER]
    levels = [
        {w: pairs[left, w] * pairs[w, right] / count[w] for w in words if count[w]},
        {w: pairs[left, w] for w in words},
        {w: pairs[w, right] for w in words},
        {w: count[w] for w in words},
    ]
    level = next(n for n, weights in enumerate(levels) if sum(weights.values()))
    total = sum(levels[level].values())
    return level, [levels[level].get(w, 0) / total for w in range(WORDS)]


def test_the_sampler_follows_the_counts() -> None:
    """Evenly spaced draws give each word its probability, to one draw, between any two neighbours."""
    draws, sampler = 1000, NGrams(ROWS, vocab_size=WORDS, never=NEVER)
    left_K, right_K = (side.repeat(draws) for side in np.divmod(np.arange(WORDS**2), WORDS))
    sampled_K = sampler.sample(left_K, right_K, np.tile((np.arange(draws) + 0.5) / draws, WORDS**2))
    levels = set()
    for pair, sampled in enumerate(sampled_K.reshape(-1, draws)):
        level, expected = probabilities(*divmod(pair, WORDS))
        levels.add(level)
        assert np.bincount(sampled, minlength=WORDS) / draws == pytest.approx(expected, abs=1 / draws), divmod(
            pair, WORDS
        )
    assert levels == {0, 1, 2, 3}


def test_a_quarter_of_the_words_by_their_original_neighbours() -> None:
    """In the training rows each word follows from the one before it, so the samples at the chosen words are known."""
    train = np.array([[CLS, *(4 + (first + at) % 40 for at in range(14)), SEP] for first in range(40)])
    held_out = np.random.default_rng(0).integers(4, 44, (600, 16))
    held_out[:, 0], held_out[:, 15] = CLS, SEP
    held_out[:, 14] = np.where(np.arange(600) % 2, PAD, held_out[:, 14])
    fake_BT = standard_fakes(train, held_out, vocab_size=44, never=NEVER)
    assert fake_BT.shape == (512, 16)
    row_K, column_K = np.nonzero(fake_BT != held_out[:512])
    words = int((held_out[:512] > MASK).sum())
    assert held_out[row_K, column_K].min() > MASK
    assert 0.95 * words / 4 < len(row_K) <= words / 4  # a fortieth of the samples are the originals
    left_K = held_out[row_K, column_K - 1]
    inner = left_K > MASK
    assert np.array_equal(fake_BT[row_K, column_K][inner], 4 + (left_K[inner] - 3) % 40)


def test_a_damaged_row_is_data(data: Path) -> None:
    rows = Store.open(data).rows("train")
    with pytest.raises(DataError, match="hold id 4000, and the vocabulary ends at 399"):
        standard_fakes(np.where(rows == rows[3, 3], 4000, rows), rows, vocab_size=400, never=NEVER)


def fakes(config: Config, data: Path) -> np.ndarray:
    return Feed.of(config, Store.open(data), device=torch.device("cpu"), precision="fp32").fakes_BT


def test_nothing_but_the_data_decides_them(data: Path, tmp_path: Path) -> None:
    one = small_config()
    others = [
        dataclasses.replace(one, seed=5),
        dataclasses.replace(one, generator=Unigram(), masking=Masking(fraction=0.4, rarity=0.5)),
        dataclasses.replace(small_config(lanes=1), objective=MLM(), batch=dataclasses.replace(one.batch, size=2)),
    ]
    first = fakes(one, data)
    assert all(np.array_equal(fakes(other, data), first) for other in others)
    again = write_store(tmp_path / "again")
    assert np.array_equal(fakes(one, again), first)
    path = again / "train.bin"
    rows = np.memmap(path, dtype="<u2", mode="r+")
    rows[:] = rows[::-1].copy()  # the same words, the other way round
    rows.flush()
    assert not np.array_equal(fakes(one, again), first)
