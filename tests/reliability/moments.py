"""Something happens to a rank at a moment that is named and counted, not timed: so it happens on any machine, however loaded."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from electra_trainer.ranks import failure
from electra_trainer.runs import checkpoint, progress
from electra_trainer.runs.signals import STOP
from electra_trainer.train import loop, step

MOMENTS: dict[str, tuple[Any, str, int]] = {
    "joining": (failure.Watch, "wait_for_all", 1),
    "start-up": (loop, "settle", 1),
    "data": (step.Feed, "lanes", 11),
    "step": (step, "update", 11),
    "evaluation": (loop, "evaluate", 2),
    "saving": (checkpoint, "save", 3),
    "end": (progress.Status, "_end", 1),
}
"""Function that is about to be called, and how often a run of 12 steps calls it at least."""
TOLD = "told"
"""File whose time says when it happened."""


def just_before(moment: str, nth: int, act: Callable[[], object]) -> None:
    """In this process: do something before the n-th call, counted from 1, of what a moment is called by."""
    place, name, _ = MOMENTS[moment]
    real, calls = getattr(place, name), [0]

    def watched(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth:
            act()
        return real(*arguments, **more)

    setattr(place, name, watched)


class Signalled(NamedTuple):
    """One moment, and who gets the signal."""

    moment: str
    nth: int
    number: signal.Signals
    target: str

    @classmethod
    def drawn(cls, at: int, chance: random.Random, targets: tuple[str, ...], moments: tuple[str, ...]) -> Signalled:
        """The moments, signals and targets in turn; of signals and targets every pair."""
        moment, turn = moments[at % len(moments)], at // len(STOP)  # six signals and four targets have a common divisor
        target = targets[(at + turn) % len(targets)]
        return cls(moment, chance.randint(1, MOMENTS[moment][2]), STOP[at % len(STOP)], target)


def signal_at(told: Signalled, notes: Path, *, later: float = 0) -> None:
    """In a rank: rank 0, which does all that a run does, sends the signal when the moment comes, or some seconds later.

    Rank 1 notes its process id once it listens.
    """
    if os.environ["RANK"] == "1":
        just_before("joining", 1, lambda: (notes / "1").write_text(str(os.getpid())))

    def act() -> None:
        receivers = {
            "launcher": [os.getppid],
            "supervisor": [lambda: int(os.environ["ELECTRA_TEST_SUPERVISOR"])],
            "rank 0": [os.getpid],
            "rank 1": [lambda: _pid(notes / "1")],
            "both": [os.getpid, lambda: _pid(notes / "1")],
        }[told.target]
        pids = [receiver() for receiver in receivers]
        (notes / TOLD).touch()
        threading.Timer(later, send, [pids]).start() if later else send(pids)

    def send(pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):  # rank 1 may end before rank 0 does
                os.kill(pid, told.number)

    if os.environ["RANK"] == "0":
        just_before(told.moment, told.nth, act)


def _pid(path: Path) -> int:
    while not (path.exists() and path.read_text()):
        time.sleep(0.01)
    return int(path.read_text())
