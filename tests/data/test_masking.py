"""Masking against Python loops; its shares against what they should be.

Statistics allow 4.5 standard deviations: a correct program would fail for one seed in 150,000, and the seeds are fixed.
"""

import dataclasses
import hashlib
import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chisquare
from tests.small import CLS, MASK, PAD, SEP, UNK, WORDS, batch, columns_chosen, config, masker, rows

from electra_trainer.cost.parameters import slots
from electra_trainer.data.masking import MaskTokens
from electra_trainer.paper.likelihoods import masked_share
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, Masking, changed

SIGMAS = 4.5
ROUNDINGS: tuple[Literal["nearest", "up"], ...] = ("nearest", "up")

KINDS = pytest.mark.parametrize("fields", [{}, {"draw": "with-replacement"}, {"rarity": 0.5}, {"rarity": 8.0}], ids=str)


def with_masking(**fields: object) -> MaskTokens:
    settings: Config = dataclasses.replace(config(), masking=Masking(**fields))  # type: ignore[arg-type]
    return masker(settings)


def of_lengths(*lengths: int) -> NDArray[np.int64]:
    """Rows of one piece, `[CLS] 9 ... 9 [SEP]`, then padding."""
    made = np.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(made, lengths, strict=True):
        row[:length] = [CLS, *[9] * (length - 2), SEP]
    return made


def wanted(real: int, fraction: float, length: int) -> int:
    """k of the released code, in its own fp32 and with its own rounding."""
    most = max(1, int((fraction + 0.005) * length))
    return int(max(1, min(most, np.round(np.float32(real) * np.float32(fraction)))))


@pytest.mark.parametrize("draw", ["distinct", "with-replacement"])
@pytest.mark.parametrize("fraction", [0.15, 0.25, 0.5])
def test_exactly_k_positions_and_only_candidates(draw: str, fraction: float) -> None:
    made = rows(60, seed=3)
    made[5, 2] = MASK  # a literal [MASK] in the text
    made[6, 2] = UNK  # an unknown word may be chosen
    masked = with_masking(fraction=fraction, draw=draw)(batch(made), Rng(1, 2, 3))
    for row, chosen in zip(made, columns_chosen(masked), strict=True):
        real = int((row != PAD).sum())
        candidates = [column for column, token in enumerate(row) if token not in (PAD, CLS, SEP, MASK)]
        k = wanted(real, fraction, len(row))
        assert len(chosen) == (min(k, len(candidates)) if draw == "distinct" else k)
        assert set(chosen) <= set(candidates)
        assert chosen == sorted(chosen)
        if draw == "distinct":
            assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("fraction", [0.1, 0.15, 0.2, 0.25, 0.3])
def test_k_for_every_length(fraction: float) -> None:
    """Specials count in n; rounding is to even, in fp32, as released."""
    masked = with_masking(fraction=fraction)(batch(of_lengths(*range(3, 201))), Rng(0, 0, 0))
    for real, chosen in enumerate(columns_chosen(masked), 3):
        assert len(chosen) == min(wanted(real, fraction, 200), real - 2), real


@pytest.mark.parametrize(("percent", "most"), [(7, 14), (15, 30), (25, 50)])
def test_k_rounded_up(percent: int, most: int) -> None:
    """`--masking.rounding up`: ⌈percent * n / 100⌉ in whole numbers, for every n, without the released code's cap."""
    mask = with_masking(fraction=percent / 100, rounding="up")
    masked = mask(batch(of_lengths(*range(3, 201))), Rng(0, 0, 0))
    for real, chosen in enumerate(columns_chosen(masked), 3):
        assert len(chosen) == min(-(-percent * real // 100), real - 2), real
    assert mask.masking.most(200) == most
    assert Masking(rounding="up").positions(128) == Masking(rounding="up").most(128) == 20
    tenth = {kind: dataclasses.replace(config(), masking=Masking(fraction=0.1, rounding=kind)) for kind in ROUNDINGS}
    assert {kind: slots(one) for kind, one in tenth.items()} == {"nearest": 2, "up": 3}  # of 24 tokens, for FLOPs


@pytest.mark.parametrize(("length", "chosen"), [(32, 4), (64, 9), (128, 19), (512, 77)])
def test_full_rows_choose_what_flops_and_appendix_g_count(length: int, chosen: int) -> None:
    """The released code's cap, int(0.155 T), is below round(0.15 T) in short rows."""
    full = batch(of_lengths(*[length] * 3))
    assert [len(one) for one in columns_chosen(with_masking()(full, Rng(0, 0, 0)))] == [chosen] * 3
    longer = changed(config(), model={"max_position_embeddings": length})
    given = changed(longer, masking={"fraction": 0.15}, batch={"sequence_length": length})
    assert slots(given) == chosen
    assert masked_share(given).p_mask == chosen / length


def test_unknown_words_are_chosen_and_specials_never() -> None:
    made = rows(40, full=True)
    made[:, 5], made[:, 6] = UNK, MASK
    mask, data = with_masking(fraction=0.5), batch(made)
    counts = np.zeros(made.shape[1], dtype=int)
    for step in range(20):
        for chosen in columns_chosen(mask(data, Rng(1, step, 0))):
            counts[chosen] += 1
    assert counts[0] == counts[6] == counts[-1] == 0
    assert counts[5] > 0


@KINDS
def test_rows_without_a_candidate(fields: dict[str, Any]) -> None:
    made = np.full((3, 10), PAD)
    made[0, :2] = CLS, SEP
    made[1, :3] = CLS, 9, SEP
    masked = with_masking(fraction=0.15, **fields)(batch(made), Rng(1, 1, 1))
    assert columns_chosen(masked) == [[], [1], []]


@pytest.mark.parametrize("draw", ["distinct", "with-replacement"])
def test_every_candidate_is_equally_likely(draw: str) -> None:
    """In rows of every length, side by side: what a row draws has nothing to do with the longest one beside it."""
    made = of_lengths(40, 14, 6)
    mask, data = with_masking(fraction=0.25, draw=draw), batch(made)
    counts = np.zeros(made.shape, dtype=int)
    for step in range(3000):
        np.add.at(counts.reshape(-1), mask(data, Rng(1, step, 0)).slots_K.numpy(), 1)
    for row, length in zip(counts, (40, 14, 6), strict=True):
        assert row[0] == 0 and not row[length - 1 :].any()
        # Distinct positions of a row are a little more even than chi-square assumes: the bound is safe for both
        assert chisquare(row[1 : length - 1]).pvalue > 1e-4


@pytest.mark.parametrize("length", [1024, 1025, 3000])
def test_long_rows(length: int) -> None:
    """Keys of 32 and of 64 bits: k positions, every tenth of the row as likely as another."""
    mask, data = with_masking(), batch(of_lengths(*[length] * 40))
    tenths = np.zeros(10, dtype=int)
    for step in range(5):
        for chosen in columns_chosen(mask(data, Rng(1, step, 0))):
            assert len(set(chosen)) == wanted(length, 0.15, length)
            assert min(chosen) > 0 and max(chosen) < length - 1
            tenths += np.bincount((np.array(chosen) - 1) * 10 // (length - 2), minlength=10)
    assert chisquare(tenths).pvalue > 1e-4


def test_every_pair_of_positions_is_equally_likely() -> None:
    """Two of twelve candidates: each of the 66 pairs in turn, so that positions do not attract or shun one another."""
    mask, data = with_masking(fraction=0.15), batch(of_lengths(*[14] * 500))
    pairs = np.zeros((14, 14), dtype=int)
    for step in range(20):
        for first, second in columns_chosen(mask(data, Rng(3, step, 0))):
            pairs[first, second] += 1
    found = pairs[1:13, 1:13][np.triu_indices(12, 1)]
    assert found.sum() == 500 * 20
    assert chisquare(found).pvalue > 1e-4


def test_the_word_there_does_not_depend_on_the_place() -> None:
    """The share that is hidden is the same in the first and in the second half of a row, and in the first and last rows."""
    mask, data = with_masking(fraction=0.25), batch(rows(64, full=True))
    hidden, total = np.zeros((64, 24)), np.zeros((64, 24))
    for step in range(200):
        masked = mask(data, Rng(1, step, 0))
        slots = masked.slots_K.numpy()
        np.add.at(total.reshape(-1), slots, 1)
        np.add.at(hidden.reshape(-1), slots, masked.input_BT.flatten().numpy()[slots] == MASK)
    for part in (np.s_[:, :12], np.s_[:, 12:], np.s_[:32], np.s_[32:]):
        share, count = hidden[part].sum() / total[part].sum(), total[part].sum()
        assert abs(share - 0.85) <= SIGMAS * math.sqrt(0.85 * 0.15 / count)


def shares(masking: Masking, *, steps: int = 60) -> tuple[dict[str, float], int]:
    """Shares of the chosen positions: hidden, changed to another word, unchanged; and their number."""
    mask = masker(dataclasses.replace(config(), masking=masking))
    counts = {"hidden": 0, "changed": 0, "same": 0}
    for step in range(steps):
        masked = mask(batch(rows(64, seed=step, full=True)), Rng(1, step, 0))
        before, after = masked.labels_K, masked.input_BT.flatten()[masked.slots_K]
        for old, new in zip(before.tolist(), after.tolist(), strict=True):
            counts["hidden" if new == MASK else "same" if new == old else "changed"] += 1
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()}, total


@pytest.mark.parametrize(
    ("masking", "hidden", "random"),
    [
        (Masking(), 0.85, 0.0),
        (Masking(mask_share=1.0), 1.0, 0.0),
        (Masking(mask_share=0.8, random_share=0.1), 0.8, 0.1),
    ],
    ids=["released-85-15", "paper-all", "bert-80-10-10"],
)
def test_words_at_the_chosen(masking: Masking, hidden: float, random: float) -> None:
    """A random word is any of the vocabulary: once in V the same one, once in V [MASK] itself."""
    expected = {
        "hidden": hidden + random / WORDS,
        "changed": random * (1 - 2 / WORDS),
        "same": 1 - hidden - random + random / WORDS,
    }
    found, total = shares(masking)
    assert total > 10_000
    for name, share in expected.items():
        bound = SIGMAS * math.sqrt(share * (1 - share) / total)
        assert abs(found[name] - share) <= bound + 1e-12, (name, found[name], share)


@KINDS
def test_nothing_else_is_touched(fields: dict[str, Any]) -> None:
    masked = with_masking(mask_share=0.8, random_share=0.1, **fields)(batch(rows(64)), Rng(1, 1, 1))
    flat = masked.batch.ids_BT.flatten().clone()
    after = masked.input_BT.flatten()
    untouched = torch.ones_like(flat, dtype=torch.bool)
    untouched[masked.slots_K] = False
    assert torch.equal(flat[untouched], after[untouched])
    assert (flat != MASK).all()  # the batch itself is not written to


def distinct(candidates: int, draws: int) -> float:
    """Expected number of different positions among draws with replacement."""
    return candidates * (1 - (1 - 1 / candidates) ** draws)


def test_with_replacement_repeats_seven_percent() -> None:
    """A full row of 128 tokens has 126 candidates and 19 draws, 6.8 % of which repeat another; short rows beside it have their own rate."""
    lengths, k = [128, 128, 60, 20], [19, 19, 9, 3]
    assert 1 - distinct(126, 19) / 19 == pytest.approx(0.0683, abs=1e-4)
    mask, data = with_masking(draw="with-replacement"), batch(of_lengths(*lengths))
    found = np.array([[len(set(c)) for c in columns_chosen(mask(data, Rng(1, step, 0)))] for step in range(1000)])
    for row, (length, draws) in enumerate(zip(lengths, k, strict=True)):
        off = found[:, row].mean() - distinct(length - 2, draws)
        assert abs(off) <= SIGMAS * found[:, row].std() / math.sqrt(1000), (length, off)


@KINDS
def test_masks_are_a_function_of_seed_step_and_lane(fields: dict[str, Any]) -> None:
    mask, data = with_masking(**fields), batch(rows(30))

    def chosen(seed: int, step: int, lane: int) -> tuple[list[int], list[int]]:
        masked = mask(data, Rng(seed, step, lane))
        return masked.slots_K.tolist(), masked.input_BT.flatten().tolist()

    once = chosen(1, 2, 3)
    torch.manual_seed(0)
    torch.rand(100)  # the library's own generator has no part in it
    assert chosen(1, 2, 3) == once
    others = [chosen(2, 2, 3), chosen(1, 3, 3), chosen(1, 2, 4), chosen(1, 3, 2)]
    assert all(other != once for other in others)
    assert len({tuple(other[0]) for other in others}) == 4


@pytest.mark.parametrize(
    ("draw", "digest"), [("distinct", "15bb084a7fcc30e5"), ("with-replacement", "372c15b20003b032")],
)  # fmt: skip
def test_the_masks_of_a_step_are_the_same_everywhere(draw: str, digest: str) -> None:
    """On every machine and with every version of the libraries: the bytes are written down here."""
    mask = with_masking(draw=draw, mask_share=0.8, random_share=0.1)
    masked = mask(batch(np.tile([CLS, *range(5, WORDS), SEP], (4, 1))), Rng(1, 2, 3))
    data = masked.slots_K.numpy().astype("<i8").tobytes() + masked.input_BT.numpy().astype("<i8").tobytes()
    assert hashlib.sha256(data).hexdigest()[:16] == digest
