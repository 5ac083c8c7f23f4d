"""Packing: every token once and in order, hardly any padding, and a brute-force reading of the rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.samples import SPECIALS, pack

from electra_trainer.data.pack import Packer

Documents = list[list[list[int]]]


def read_rows(rows: Any) -> list[list[list[int]]]:
    """Pieces as [A] or [A, B], by the rules in words, one token at a time."""
    pieces: list[list[list[int]]] = []
    for row in rows.tolist():
        assert row[0] == SPECIALS.cls
        is_open = is_padded = False
        for token in row:
            if token == SPECIALS.cls:
                assert not is_open and not is_padded
                pieces.append([[]])
                is_open = True
            elif token == SPECIALS.pad:
                assert not is_open
                is_padded = True
            elif token == SPECIALS.sep:
                assert pieces[-1][-1], "a segment holds something"
                is_open = not is_open
            else:
                if not is_open:  # [SEP] was followed by more: it ended A
                    assert len(pieces[-1]) == 1 and not is_padded
                    pieces[-1].append([])
                    is_open = True
                pieces[-1][-1].append(token)
        assert not is_open
    return pieces


def numbered(lengths: list[list[int]]) -> Documents:
    """Documents whose tokens are all different: 5, 6, 7, …"""
    following = iter(range(5, 10_000_000))
    return [[[next(following) for _ in range(line)] for line in document] for document in lengths]


def check(documents: Documents, rows: Any) -> list[list[list[int]]]:
    """Pieces hold each document's tokens in order, and no piece holds two documents."""
    pieces = read_rows(rows)
    owner = {token: index for index, document in enumerate(documents) for line in document for token in line}
    assert [token for piece in pieces for part in piece for token in part] == list(owner)
    for piece in pieces:
        assert len({owner[token] for part in piece for token in part}) == 1
    return pieces


lengths = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=8), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None, database=None)
@given(lengths=lengths, sequence_length=st.sampled_from([8, 9, 13, 32, 128]), seed=st.integers(0, 2**62))
def test_no_token_is_lost_or_moved(lengths: list[list[int]], sequence_length: int, seed: int) -> None:
    documents = numbered(lengths)
    rows = pack(documents, sequence_length=sequence_length, specials=SPECIALS, seed=seed, dtype="<u4")
    assert rows.shape[1] == sequence_length
    check(documents, rows)


def random_lengths(kind: str, *, tokens: int, seed: int) -> list[list[int]]:
    low, high, line = {"tiny": (3, 12, 6), "mixed": (1, 40, 10), "short": (5, 60, 20), "long": (200, 3000, 40)}[kind]
    draw = np.random.default_rng(seed)
    found: list[list[int]] = []
    while sum(map(sum, found[-1:])) >= 0 and tokens > 0:
        left = int(draw.integers(low, high + 1))
        tokens -= left
        document = []
        while left > 0:
            document.append(min(left, int(draw.integers(1, line + 1))))
            left -= document[-1]
        found.append(document)
    return found


@pytest.mark.parametrize("kind", ["tiny", "mixed", "short", "long"])
@pytest.mark.parametrize("sequence_length", [32, 64, 128, 512])
def test_padding_stays_under_one_percent(kind: str, sequence_length: int) -> None:
    for seed in range(3 if sequence_length < 128 else 1):
        documents = numbered(random_lengths(kind, tokens=400 * sequence_length, seed=seed))
        rows = pack(documents, sequence_length=sequence_length, specials=SPECIALS, seed=seed, dtype="<u4")
        last = int((rows[-1] == SPECIALS.pad).sum())
        assert (rows == SPECIALS.pad).sum() - last < 0.01 * rows.size
        assert len(check(documents, rows)) > len(rows) / 2


def test_the_packer_counts_what_it_does() -> None:
    documents = numbered(random_lengths("short", tokens=9000, seed=5))
    packer = Packer(sequence_length=32, specials=SPECIALS, seed=3, dtype="<u4")
    parts = []
    for index, document in enumerate(documents):
        ids = np.array([token for line in document for token in line], dtype=np.uint32)
        packer.add(index, ids, np.array([len(line) for line in document], dtype=np.uint32))
        if index % 7 == 0:
            parts.append(packer.take())
    parts.append(packer.finish())
    rows = np.concatenate(parts)
    assert packer.rows == len(rows)
    assert packer.padding == (rows == SPECIALS.pad).sum()
    assert packer.text_tokens == (rows > 4).sum()
    assert packer.documents == len(documents)


def test_segments_follow_the_released_rule() -> None:
    """A ends at the end of a line, near half of the room, at one of the two ends around it with equal chance."""
    draw = np.random.default_rng(0)
    documents = numbered([draw.integers(4, 20, 400).tolist() for _ in range(40)])
    rows = pack(documents, sequence_length=128, specials=SPECIALS, seed=1, dtype="<u4")
    pieces = check(documents, rows)
    line_ends = {line[-1] for document in documents for line in document}
    full = [piece for piece in pieces if sum(map(len, piece)) >= 125]
    pairs = [piece for piece in full if len(piece) == 2]
    assert all(piece[0][-1] in line_ends for piece in pieces if len(piece) == 2)
    assert abs(1 - len(pairs) / len(full) - 0.1) < 0.03
    target = (128 - 3) // 2
    sizes = [len(piece[0]) for piece in pairs]
    above = sum(size >= target for size in sizes) / len(sizes)
    assert 0.4 < above < 0.6
    assert min(sizes) > target - 21 and max(sizes) < target + 20
    short = sum(sum(map(len, piece)) < 100 for piece in pieces) / len(pieces)
    assert 0.03 < short < 0.12


def released_cut(lines: list[int], limit: int, coin: bool) -> int:
    """Tokens of A, by the loop of build_pretraining_dataset.py, stopped at the first line of B."""
    target, first = (limit - 3) // 2, 0
    for line in lines:
        if first == 0 or first + line < target or (first < target and coin):
            first += line
        else:
            break
    return first


@settings(max_examples=200, deadline=None, database=None)
@given(lines=st.lists(st.integers(1, 70), min_size=1, max_size=20), seed=st.integers(0, 1000))
def test_the_first_piece_against_the_released_loop(lines: list[int], seed: int) -> None:
    packer = Packer(
        sequence_length=128, specials=SPECIALS, seed=seed, dtype="<u4", single_probability=0, short_probability=0
    )
    ids = np.arange(5, 5 + sum(lines), dtype=np.uint32)
    packer.add(0, ids, np.array(lines, dtype=np.uint32))
    piece = read_rows(packer.finish())[0]
    cuts = {released_cut(lines, 128, coin) for coin in (False, True)}
    if len(piece) == 2:
        assert len(piece[0]) in cuts
    else:
        assert max(cuts) >= min(sum(lines), 125)
