"""Pieces, segments and positions, against a loop that reads a row word by word."""

import numpy as np
import pytest
from tests.small import CLS, PAD, SEP, batch, rows


def read_row(ids: list[int]) -> list[tuple[int, int, int]]:
    """(piece, segment, position) of each token."""
    found, piece, segment, position = [], 0, 0, 0
    for token in ids:
        if token == PAD:
            found.append((0, 0, 0))
            continue
        if token == CLS:
            piece, segment, position = piece + 1, 0, 0
        found.append((piece, segment, position))
        position += 1
        if token == SEP:
            segment = 1
    return found


@pytest.mark.parametrize("seed", range(5))
def test_random_rows(seed: int) -> None:
    made = rows(50, seed=seed)
    found = batch(made)
    for row in range(len(made)):
        expected = read_row(made[row].tolist())
        got = zip(
            found.piece_BT[row].tolist(), found.segment_BT[row].tolist(), found.position_BT[row].tolist(), strict=True
        )
        assert list(got) == expected
    assert found.ids_BT.tolist() == made.tolist()
    assert found.real_BT.tolist() == (made != PAD).tolist()


def test_two_pieces_written_out() -> None:
    found = batch(np.array([[CLS, 7, SEP, 8, SEP, CLS, 9, SEP, PAD, PAD]]))
    assert found.piece_BT.tolist() == [[1, 1, 1, 1, 1, 2, 2, 2, 0, 0]]
    assert found.segment_BT.tolist() == [[0, 0, 0, 1, 1, 0, 0, 0, 0, 0]]
    assert found.position_BT.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 0, 0]]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.int64])
def test_any_integer_type_from_disk(kind: type[np.integer]) -> None:
    made = rows(4)
    assert batch(made.astype(kind)).ids_BT.tolist() == made.tolist()


def test_a_row_of_padding_is_nothing() -> None:
    found = batch(np.full((1, 6), PAD))
    assert not found.real_BT.any()
    assert not found.position_BT.any() and not found.segment_BT.any()


def test_rows_that_are_cut_out_of_others_or_read_only() -> None:
    made = rows(12)
    made.flags.writeable = False
    assert batch(made[::3]).piece_BT.tolist() == batch(made).piece_BT[::3].tolist()
    assert batch(made[:0]).ids_BT.shape == (0, 24)


def test_a_piece_without_a_separator_ends_with_its_row() -> None:
    found = batch(np.array([[CLS, 7, 8, 9], [CLS, 7, SEP, 8]]))
    assert found.segment_BT.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1]]
    assert found.position_BT.tolist() == [[0, 1, 2, 3]] * 2
