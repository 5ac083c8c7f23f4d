"""Sampling and putting in: the right words, at the right places, with the right labels."""

import dataclasses

import pytest
import torch
from tests.small import WORDS, batch, config, masker, rows

from electra_trainer.batch import Batch, Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Masking


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masked_rows(draw: str = "distinct", *, seed: int = 1) -> Masked:
    masking = Masking(fraction=0.3, draw=draw)  # type: ignore[arg-type]
    return masker(dataclasses.replace(config(), masking=masking))(batch(rows(20, seed=seed)), Rng(seed, 0, 0))


@pytest.mark.parametrize("draw", ["distinct", "with-replacement"])
def test_replaces_the_chosen_and_nothing_else(draw: str) -> None:
    """Word by word; a position that was drawn more than once gets the floored average of its samples."""
    masked = masked_rows(draw)
    sampled = torch.randint(WORDS, (len(masked.slots_K),), generator=generator())
    found = corrupt(masked, sampled)
    original = masked.batch.ids_BT.flatten().tolist()
    samples_of: dict[int, list[int]] = {}
    for slot, word in zip(masked.slots_K.tolist(), sampled.tolist(), strict=True):
        samples_of.setdefault(slot, []).append(word)
    assert (max(map(len, samples_of.values())) > 1) == (draw == "with-replacement")
    for place, (old, new) in enumerate(zip(original, found.input_BT.flatten().tolist(), strict=True)):
        words = samples_of.get(place, [old])
        assert new == sum(words) // len(words)
        assert bool(found.replaced_BT.flatten()[place]) == (new != old)
    assert found.sampled_K.tolist() == sampled.tolist()


def test_a_slot_that_is_not_used_puts_nothing_in() -> None:
    batch = Batch(**{name: torch.arange(8).view(2, 4) for name in ("ids_BT", "segment_BT", "position_BT", "piece_BT")})
    masked = Masked(batch=batch, input_BT=batch.ids_BT, slots_K=torch.tensor([-1, 3, 6, -1]))
    assert masked.labels_K.tolist() == [-100, 3, 6, -100]
    found = corrupt(masked, torch.tensor([50, 60, 70, 80]))
    assert found.input_BT.flatten().tolist() == [0, 1, 2, 60, 4, 5, 70, 7]
