"""A save that is killed or that the disk fails, at every operation and any byte: a verified checkpoint is found, and the next save is whole."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operation, Operations, killing
from tests.reliability.tiny_checkpoints import RUN, made, naive_step, same, write, write_in_place

from electra_trainer.errors import StorageError
from electra_trainer.runs.checkpoint import load_newest

Way = Callable[[Path, int, Callable[[], None]], tuple[int, ...]]
"""Stop work in a folder at its n-th operation: the steps of which one has to be found then; none where it came to its end."""
NUMBERS = 2048
"""Rows of a tensor: files of 32 kB, so that there is a place for each offset."""
OFFSETS = 200 if LONG else 24


def found(folder: Path, *steps: int) -> bool:
    """Whether one of these steps is found, to the bit, without a warning."""
    warnings: list[str] = []
    newest = load_newest(folder, origin=RUN, warn=warnings.append)
    return not warnings and any(same(newest, made(step, numbers=NUMBERS)) for step in steps)


def killed(*, torn: bool) -> Way:
    """Stop by SIGKILL before the operation, or in a write, half of its bytes written."""

    def way(folder: Path, at: int, work: Callable[[], None]) -> tuple[int, ...]:
        def doomed() -> None:
            with Operations(folder, killing(at, torn=torn), sync=False):
                work()

        status = in_a_child(doomed)
        assert status in (0, -signal.SIGKILL)
        return (1, 2) if status else ()

    return way


def failed(code: int, *, stays: bool) -> Way:
    """Stop by an error of the operation, and of all after it: a storage error that names the place, or a save that is there."""

    def way(folder: Path, at: int, work: Callable[[], None]) -> tuple[int, ...]:
        count, reached = itertools.count(1), False

        def meet(_: Operation) -> None:
            nonlocal reached
            number = next(count)
            if number == at or (stays and number > at):
                reached = True
                raise OSError(code, os.strerror(code))

        try:
            with Operations(folder, meet, reads=True, sync=False):
                work()
        except StorageError as error:
            assert str(folder) in str(error)
            return (1, 2)
        except OSError:  # of the control
            return (1, 2)
        return (2,) if reached else ()

    return way


def full(folder: Path, at: int, work: Callable[[], None]) -> tuple[int, ...]:
    """No file may be larger than that share of the largest one."""
    largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = largest * (at - 1) // OFFSETS
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        with suppress(StorageError, OSError):
            work()

    if at > OFFSETS:
        return ()
    assert in_a_child(limited) == 0
    return (1,)


CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)
WAYS: dict[str, tuple[int, list[Way]]] = {
    "kill_in_save": (20, [killed(torn=False), killed(torn=True)]),
    "disk_error_at_call": (80, [failed(code, stays=stays) for code in CODES for stays in (False, True)]),
    "disk_full_at_byte": (20, [full]),
}
"""With the least number of stops."""


@pytest.mark.parametrize("name", WAYS)
def test_a_save_that_is_stopped(name: str, tmp_path: Path) -> None:
    least, ways = WAYS[name]
    kept, control = list[bool](), list[bool]()
    for way in ways:
        for at in itertools.count(1):
            folder, naive = tmp_path / "ours" / str(at), tmp_path / "naive" / str(at)
            for place in (folder, naive):
                place.mkdir(parents=True)
            write(folder, 1, numbers=NUMBERS)
            write_in_place(naive / "model", 1)
            if allowed := way(folder, at, lambda folder=folder: write(folder, 2, numbers=NUMBERS)):  # type: ignore[misc]
                kept.append(found(folder, *allowed) and (way is not full or len(list(folder.iterdir())) == 1))
                write(folder, 3, numbers=NUMBERS)  # and the disk is well again
                kept[-1] &= found(folder, 3) and len(list(folder.iterdir())) == 1
            if way(naive, at, lambda naive=naive: write_in_place(naive / "model", 2)):  # type: ignore[misc]
                control.append(naive_step(naive / "model", range(1, 3)) is not None)
            shutil.rmtree(folder.parent)
            shutil.rmtree(naive.parent)
            if not allowed:
                break
    report(name, stops=len(kept), kept=sum(kept), control_stops=len(control), control_kept=sum(control))
    assert all(kept) and len(kept) > least
    assert not all(control)
