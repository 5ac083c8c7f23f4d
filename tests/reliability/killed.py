"""Kill a piece of work before each of its changes of files, and do it again: it must end as if nothing had been, with nothing left."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.reliability.children import in_a_child
from tests.reliability.operations import Operations, killing


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file under a folder with its bytes, and every folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


TIMED = ("timing.json", "log.txt", "environment.json", "metrics.jsonl", "result.json", "manifest.json")
"""Files with times, or with the run's id in them."""


def untimed(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: content for name, content in found.items() if not name.endswith(TIMED)}


def killed_at_each(
    work: Callable[[Path], object],
    folder: Path,
    *,
    there: Path | None = None,
    every: int = 1,
    same: Callable[[dict[str, bytes | None]], object] = lambda found: found,
) -> int:
    """Number of kills.

    Args:
        work: makes or completes the place it is given.
        folder: scratch space of the test.
        there: a folder of which a copy is in that place at first.
        every: kill only before every n-th operation.
        same: what of a tree must be that of an undisturbed one; all of it by default.
    """

    def begun(place: Path) -> None:
        place.mkdir(parents=True)
        if there is not None:
            shutil.copytree(there, place / "out")

    begun(folder / "whole")
    work(folder / "whole" / "out")
    whole = tree(folder / "whole")
    for number in range(1, 1000):
        place = folder / "killed"
        begun(place)

        def doomed(kill: int = every * number, place: Path = place) -> None:
            with Operations(place, killing(kill), sync=False):
                work(place / "out")

        if (status := in_a_child(doomed)) == 0:
            return number - 1
        assert status == -signal.SIGKILL
        with Operations(place, lambda _: None, sync=False):
            work(place / "out")
        found = tree(place)
        assert found.keys() == whole.keys() and same(found) == same(whole), every * number
        shutil.rmtree(place)
    raise AssertionError("it never ended")
