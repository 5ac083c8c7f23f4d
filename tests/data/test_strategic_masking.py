"""Strategic masking (Appendix H: "masking our rarer tokens more frequently"): how often a position is chosen, against enumeration."""

import itertools

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chisquare
from tests.small import CLS, MASK, PAD, SEP, WORDS, batch, columns_chosen, rows

from electra_trainer.data.masking import MaskTokens
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
