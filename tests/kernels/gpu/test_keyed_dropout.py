"""The dropout masks of the GPU's kernels, on the CPU: their share, and that no two elements, rows, heads or keys know of each other."""

from __future__ import annotations

import pytest
import torch

from electra_trainer.kernels.gpu import keyed_dropout
from electra_trainer.randomness import Rng

HEADS, TOKENS = 128, 128
CPU = torch.device("cpu")


def masks(key: tuple[int, int], p: float) -> torch.Tensor:
    """Attention's masks, [HEADS, TOKENS, TOKENS], less their mean and by their deviation: 0 and 1 if they are right."""
    places = torch.arange(TOKENS * TOKENS).view(TOKENS, TOKENS)
    kept = keyed_dropout.kept(torch.tensor(key), torch.arange(HEADS)[:, None, None], places, p)
    return (kept.double() - (1 - p)) / (p * (1 - p)) ** 0.5


def deviations(mean: torch.Tensor, count: int) -> float:
    """How many deviations a mean of `count` independent numbers of variance 1 is from 0."""
    return abs(float(mean)) * count**0.5


def together(one: torch.Tensor, two: torch.Tensor) -> float:
    """Correlation of two masks, in deviations."""
    return deviations((one * two).mean(), one.numel())


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("key", [(0, 0), (0, 1), (12345, 2**32 - 1), (2**31, 987654321)])
def test_masks_are_as_independent_numbers_would_be(key: tuple[int, int], p: float) -> None:
    z, above = masks(key, p), torch.triu_indices(TOKENS, TOKENS, 1)
    found = {
        "the share": deviations(z.mean(), z.numel()),
        "the next column": together(z[..., 1:], z[..., :-1]),
        "the next row": together(z[:, 1:], z[:, :-1]),
        "the next head": together(z[1:], z[:-1]),
        "four heads on, as in the next row of a batch of four heads": together(z[4:], z[:-4]),
        "half a row on": together(z[..., TOKENS // 2 :], z[..., : TOKENS // 2]),
        "rows and columns exchanged": together(z[:, *above], z.transpose(1, 2)[:, *above]),
        "the next key": together(z, masks((key[0] + 1 & 0xFFFFFFFF, key[1]), p)),
        "the next second word": together(z, masks((key[0], key[1] + 1 & 0xFFFFFFFF), p)),
        "sums of rows": deviations((z.sum(2) / TOKENS**0.5).var() - 1, z.shape[0] * TOKENS // 2),
        "sums of columns": deviations((z.sum(1) / TOKENS**0.5).var() - 1, z.shape[0] * TOKENS // 2),
        "sums of heads": deviations((z.sum((1, 2)) / TOKENS).var() - 1, HEADS // 2),
    }
    assert max(found.values()) < 4.5, found


def test_a_share_is_exact_to_many_digits_and_0_keeps_everything() -> None:
    places = torch.arange(1 << 22)
    key = torch.tensor([3, 4])
    assert keyed_dropout.kept(key, 0, places, 0.0).all()
    for p in (1e-4, 0.0625, 0.9):
        share = 1 - keyed_dropout.kept(key, 0, places, p).double().mean()
        assert abs(float(share) - p) < 4.5 * (p * (1 - p) / len(places)) ** 0.5


def test_keys_follow_the_step_and_the_lane() -> None:
    def drawn(step: int, lane: int) -> list[int]:
        Rng(1, step, lane).seed_dropout()
        return keyed_dropout.draw_keys(CPU, 3).flatten().tolist()

    assert drawn(3, 0) == drawn(3, 0)
    assert len({tuple(drawn(step, lane)) for step in (3, 4) for lane in (0, 1)}) == 4
    assert len(set(drawn(3, 0))) == 3 * keyed_dropout.WORDS
    assert keyed_dropout.no_keys(CPU, 12, 3).shape == keyed_dropout.draw_keys(CPU, 12, 3).shape
