"""A rank that gives no sign of life is lost, one that leaves in order is not; and waiting for a long piece of work ends in no timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist
from tests.reliability.ranks import free_port, run_ranks, wait_until
from torch import device

from electra_trainer.errors import ElectraError, ProcessLost
from electra_trainer.ranks import failure, world


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[dist.TCPStore]:
    """The watch of this process, where beats are quick."""
    for name, value in {"LOOK": 0.01, "BEAT": 0.02, "SILENT": 5, "CONNECTS_WITHIN": 0.02, "LEAVES_WITHIN": 0.1}.items():
        monkeypatch.setattr(failure, name, value)
    yield dist.TCPStore("127.0.0.1", free_port(), is_master=True)


def watches(store: dist.TCPStore, ranks: int, *, size: int) -> tuple[list[failure.Watch], list[ElectraError]]:
    """Watches of the first ranks, all here; the others come and say nothing more. And the last words of ranks that were ended."""
    said: list[ElectraError] = []
    made = [failure.Watch(store, rank, size, last_words=said.append) for rank in range(ranks)]
    store.add(failure._HERE, size - ranks)
    coming = [threading.Thread(target=watch.wait_for_all, args=(timedelta(seconds=20),)) for watch in made]
    for thread in coming:
        thread.start()
    for thread in coming:
        thread.join()
    for watch in made:
        watch.connected()
    return made, said


def test_a_rank_that_was_killed_ends_the_others_where_they_hang(
    store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As with NCCL: no operation fails, no signal is handled."""
    codes: list[int] = []
    monkeypatch.setattr(failure.os, "_exit", codes.append)
    made, said = watches(store, 2, size=3)
    wait_until(lambda: len(codes) == 2, seconds=20)
    assert codes == [ProcessLost.exit_code] * 2 and len(said) == 2
    assert str(said[0]).startswith("rank 2 of 3: no sign of life for 0 s: its process was killed or hangs")
    assert isinstance(made[0].settled(ProcessLost("connection closed")), ProcessLost)
    assert "This process hung and was ended" in capfd.readouterr().err


def test_ranks_that_live_or_leave_in_order_are_not_lost(store: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure.os, "_exit", lambda code: None)
    made, said = watches(store, 2, size=2)
    time.sleep(0.5)
    made[1].close()
    time.sleep(0.5)
    assert not said and not store.check([failure._FIRST])
    made[0].close()


def test_ranks_wait_for_a_long_piece_of_work() -> None:
    """Longer than a collective operation waits."""

    def of_two(rank: int) -> None:
        world.PATIENCE = timedelta(seconds=1)
        with world.joined(lambda: device("cpu")):
            assert world.patiently(lambda: time.sleep(3 * (1 - rank)) or rank) == rank  # type: ignore[func-returns-value]
            assert world.led(lambda: b"then") == b"then"

    assert run_ranks(2, of_two) == [0, 0]


def test_an_error_in_a_long_piece_of_work_ends_all() -> None:
    def fails() -> None:
        time.sleep(1)
        raise ElectraError("a flipped bit")

    def of_two(rank: int) -> None:
        with pytest.raises(ElectraError, match="a flipped bit"), world.joined(lambda: device("cpu")):
            world.patiently(fails if rank == 0 else lambda: None)

    assert run_ranks(2, of_two) == [0, 0]
