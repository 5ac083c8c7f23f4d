"""Pieces, segments and positions, against a loop that reads a row word by word."""

import numpy as np
import pytest
from numpy.typing import NDArray
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


ROWS = {
    **{f"random {seed}": rows(50, seed=seed) for seed in range(5)},
    "two pieces and padding": np.array([[CLS, 7, SEP, 8, SEP, CLS, 9, SEP, PAD, PAD]]),
    "no separator": np.array([[CLS, 7, 8, 9], [CLS, 7, SEP, 8]]),
    "padding alone": np.full((1, 6), PAD),
}


@pytest.mark.parametrize("made", ROWS.values(), ids=ROWS)
def test_rows_by_a_loop(made: NDArray[np.int64]) -> None:
    found = batch(made)
    for row, ids in enumerate(made.tolist()):
        parts = (found.piece_BT[row], found.segment_BT[row], found.position_BT[row])
        assert [*zip(*(part.tolist() for part in parts), strict=True)] == read_row(ids)
    assert found.ids_BT.tolist() == made.tolist()
    assert found.real_BT.tolist() == (made != PAD).tolist()


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.int64])
def test_any_integer_type_from_disk(kind: type[np.integer]) -> None:
    made = rows(4)
    assert batch(made.astype(kind)).ids_BT.tolist() == made.tolist()


def test_rows_that_are_cut_out_of_others_or_read_only() -> None:
    made = rows(12)
    made.flags.writeable = False
    assert batch(made[::3]).piece_BT.tolist() == batch(made).piece_BT[::3].tolist()
    assert batch(made[:0]).ids_BT.shape == (0, 24)
