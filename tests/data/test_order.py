"""Every row once an epoch, across the seams of batches, as a pure function of (seed, step)."""

import numpy as np
import pytest

from electra_trainer.data.batches import batch_rows


@pytest.mark.parametrize(("rows", "size"), [(10, 3), (10, 10), (7, 20), (1, 4), (64, 16), (5, 5)])
def test_each_epoch_reads_each_row_once(rows: int, size: int) -> None:
    steps = 6 * rows
    read = np.concatenate([batch_rows(step, rows=rows, size=size, seed=3) for step in range(steps)])
    assert len(read) == steps * size
    epochs = len(read) // rows
    assert epochs >= 6
    for epoch in range(epochs):
        assert sorted(read[epoch * rows : (epoch + 1) * rows].tolist()) == list(range(rows))


def test_rows_that_stay_together() -> None:
    """Pairs of neighbours, each once an epoch; the odd row at the end is left out."""
    read = np.concatenate([batch_rows(step, rows=21, size=4, seed=3, together=2) for step in range(5)])
    assert sorted(read.tolist()) == list(range(20)) and read.tolist() != list(range(20))
    assert (read[::2] % 2 == 0).all() and (read[1::2] == read[::2] + 1).all()


def test_a_step_is_the_same_whenever_it_is_asked_for() -> None:
    in_order = [batch_rows(step, rows=50, size=8, seed=3).tolist() for step in range(40)]
    backwards = [batch_rows(step, rows=50, size=8, seed=3).tolist() for step in reversed(range(40))]
    assert in_order == backwards[::-1]


def test_seeds_and_epochs_differ() -> None:
    first = batch_rows(0, rows=100, size=100, seed=1).tolist()
    assert first != batch_rows(0, rows=100, size=100, seed=2).tolist()
    assert first != batch_rows(1, rows=100, size=100, seed=1).tolist()
    assert first != sorted(first)


def test_a_late_step_of_a_long_run() -> None:
    """Step 4M of 2,048 rows: past 2**32 rows read."""
    late = batch_rows(4_000_000, rows=1000, size=2048, seed=1)
    assert late.min() >= 0 and late.max() < 1000
    assert np.bincount(late, minlength=1000).min() >= 1


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_the_order_is_that_of_numpys_permutation(rows: int) -> None:
    """In half of its memory; the order of earlier runs stays."""
    from electra_trainer.randomness import key

    expected = np.random.Generator(np.random.Philox(key(3, "order", 0))).permutation(rows)
    assert batch_rows(0, rows=rows, size=rows, seed=3).tolist() == expected.tolist()
