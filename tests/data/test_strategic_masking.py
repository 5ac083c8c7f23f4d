"""Strategic masking (Appendix H: "masking our rarer tokens more frequently"): how often a position is chosen, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chisquare
from tests.small import CLS, MASK, PAD, SEP, WORDS, batch, columns_chosen, rows

from electra_trainer.data.masking import MaskTokens
from electra_trainer.errors import ConfigError
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Masking

COUNTS = np.arange(WORDS, dtype=np.int64) ** 2 + 1


def mask(rarity: float, *, counts: NDArray[np.int64] | None = COUNTS, fraction: float = 0.25) -> MaskTokens:
    return MaskTokens(
        masking=Masking(fraction=fraction, rarity=rarity), vocab_size=WORDS, mask_id=MASK,
        never=(PAD, CLS, SEP, MASK), counts_V=counts,
    )  # fmt: skip


def one_row(words: list[int], times: int) -> NDArray[np.int64]:
    return np.tile([CLS, *words, SEP], (times, 1))


def test_without_rarity_nothing_changes() -> None:
    """To the bit, whether the words were counted or not."""
    data = batch(rows(40))
    for step in range(5):
        one, two = (mask(0.0, counts=counts)(data, Rng(1, step, 0)) for counts in (None, COUNTS))
        assert torch.equal(one.slots_K, two.slots_K) and torch.equal(one.input_BT, two.input_BT)


@pytest.mark.parametrize("rarity", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("fraction", [0.15, 0.25, 0.5])
def test_exactly_k_different_positions_and_never_a_special(rarity: float, fraction: float) -> None:
    """As many as without rarity; a literal [MASK] in the text is none of them, though as the least frequent word it is the rarest."""
    made = rows(60, seed=3)
    made[5, 2] = MASK
    counts = COUNTS.copy()
    counts[[PAD, CLS, SEP, MASK]] = 0
    data = batch(made)
    expected = mask(0.0, fraction=fraction)(data, Rng(1, 2, 3))
    found = mask(rarity, counts=counts, fraction=fraction)(data, Rng(1, 2, 3))
    for row, mine, plain in zip(made, columns_chosen(found), columns_chosen(expected), strict=True):
        assert len(mine) == len(plain) == len(set(mine)) and mine == sorted(mine)
        assert not {int(row[column]) for column in mine} & {PAD, CLS, SEP, MASK}
    assert found.slots_K.tolist() != expected.slots_K.tolist()


@pytest.mark.parametrize("rarity", [0.5, 1.0, 2.0])
def test_one_of_six_in_proportion_to_count_to_the_minus_rarity(rarity: float) -> None:
    """8 tokens, one position: chi-square against c^-r / Σ c^-r; a word twice in the row has two chances; count 0 is taken as 1."""
    words = [10, 20, 30, 10, 60, 96]
    counts = COUNTS.copy()
    counts[20] = 0
    weight = [max(int(counts[word]), 1) ** -rarity for word in words]
    share = np.array(weight) / sum(weight)
    chooser, data, found = mask(rarity, counts=counts, fraction=0.15), batch(one_row(words, 1000)), np.zeros(6)
    for step in range(30):
        for (column,) in chooser(data, Rng(1, step, 0)).slots_K.view(-1, 1).remainder(8).tolist():
            found[column - 1] += 1
    assert found.sum() == 30_000
    common = share * 30_000 > 5
    assert common.sum() >= 2 or rarity == 2.0
    off = np.abs(found / 30_000 - share)
    assert (off <= 4.5 * np.sqrt(share * (1 - share) / 30_000) + 1e-3).all()
    pooled = (
        [*found[common], found[~common].sum() + 1e-9],
        [*share[common] * 30_000, share[~common].sum() * 30_000 + 1e-9],
    )
    assert chisquare(pooled[0], np.array(pooled[1]) * sum(pooled[0]) / sum(pooled[1])).pvalue > 1e-4


def test_two_of_six_by_enumeration() -> None:
    """One after another, each in proportion to the chances of those that are left: all 15 pairs as often as that gives."""
    words = [10, 20, 30, 40, 60, 96]
    p = np.array([float(COUNTS[word]) ** -0.5 for word in words])
    p = p / p.sum()
    share = [p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j]) for i, j in itertools.combinations(range(6), 2)]
    assert sum(share) == pytest.approx(1)
    pairs = dict.fromkeys(itertools.combinations(range(1, 7), 2), 0)
    chooser, data = mask(0.5, fraction=0.25), batch(one_row(words, 1000))
    for step in range(20):
        for first, second in columns_chosen(chooser(data, Rng(2, step, 0))):
            pairs[first, second] += 1
    assert chisquare(list(pairs.values()), np.array(share) * 20_000).pvalue > 1e-4


def test_rarer_words_are_chosen_more_often() -> None:
    """In long rows of any words the share that is chosen falls with the word's count, and the more so the greater the rarity."""
    made = np.random.default_rng(0).integers(MASK + 1, WORDS, (200, 64))
    made[:, 0], made[:, -1] = CLS, SEP
    data, counts = batch(made), np.where(np.arange(WORDS) < 35, 100, np.where(np.arange(WORDS) < 65, 10_000, 1_000_000))
    spread = []
    for rarity in (0.0, 0.25, 0.5):
        total, hit = np.zeros(3), np.zeros(3)
        for step in range(10):
            flat = made.reshape(-1)
            inside = (flat > MASK).nonzero()[0]
            group = np.digitize(flat, [35, 65])
            np.add.at(total, group[inside], 1)
            np.add.at(hit, group[mask(rarity, counts=counts)(data, Rng(1, step, 0)).slots_K.numpy()], 1)
        rare, middle, common = hit / total
        if rarity:
            assert rare > middle > common > 0
        spread.append(rare / common)
    assert abs(spread[0] - 1) < 0.05 and spread[2] > spread[1] > 1.5


def test_masks_are_a_function_of_seed_step_and_lane() -> None:
    chooser, data = mask(0.5), batch(rows(30))
    once = chooser(data, Rng(1, 2, 3))
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    again = chooser(data, Rng(1, 2, 3))
    assert torch.equal(again.slots_K, once.slots_K) and torch.equal(again.input_BT, once.input_BT)
    for rng in (Rng(2, 2, 3), Rng(1, 3, 3), Rng(1, 2, 4)):
        assert chooser(data, rng).slots_K.tolist() != once.slots_K.tolist()


def test_words_at_the_chosen_positions() -> None:
    """85 % [MASK] of the rare and of the frequent ones alike; the rest of the row is untouched."""
    made = rows(200, full=True)
    chooser, data, hidden, total = mask(0.5), batch(made), np.zeros(2), np.zeros(2)
    for step in range(20):
        masked = chooser(data, Rng(1, step, 0))
        after, before = masked.input_BT.flatten(), masked.batch.ids_BT.flatten()
        rare = (before[masked.slots_K] < 40).long().numpy()
        np.add.at(total, rare, 1)
        np.add.at(hidden, rare, (after[masked.slots_K] == MASK).numpy())
        same = torch.ones_like(after, dtype=torch.bool)
        same[masked.slots_K] = False
        assert torch.equal(after[same], before[same])
    assert (np.abs(hidden / total - 0.85) <= 4.5 * np.sqrt(0.85 * 0.15 / total)).all()


@pytest.mark.parametrize("rarity", [0.5, 8.0])
def test_edges(rarity: float) -> None:
    """Rows of padding, of specials alone, and counts in the billions: numbers, and as many as can be chosen."""
    made = np.full((3, 10), PAD)
    made[0, :2] = CLS, SEP
    made[1, :3] = CLS, 9, SEP
    counts = np.full(WORDS, 10**10, dtype=np.int64)
    with np.errstate(all="raise"):
        assert columns_chosen(mask(rarity, counts=counts)(batch(made), Rng(1, 1, 1))) == [[], [1], []]


def test_counts_are_needed_and_positions_are_distinct() -> None:
    with pytest.raises(AssertionError):
        mask(0.5, counts=None)
    with pytest.raises(ConfigError):
        Masking(rarity=0.5, draw="with-replacement")
