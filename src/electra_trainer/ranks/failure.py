"""When one rank fails, every rank on every machine stops with the same message and exit code, and none waits for it.

The first error is written to the store through which the ranks found one another. A thread of each rank polls it
several times a second, since a rank that waits inside a collective operation cannot. Errors that then occur on other
ranks (a closed connection, a signal of the launcher) follow from the first one and give way to it. A rank that does not
end by itself is ended.

The thread also counts in the store, and reads the count of the next rank. One that was killed, or whose machine is
gone, leaves no error, and
NCCL does not notice: its operations wait on the GPU, where no signal is handled either.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, ProcessLost, as_known, named, out_of_memory
from electra_trainer.runs.signals import end_by_itself

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

LOOK = 0.2
"""Seconds between two polls."""
HEARD_WITHIN = 5.0
"""Seconds in which every living rank learns of an error. The failed rank stays that long at most, since it may host the
store.
"""
LEAVES_WITHIN = 20.0
"""Seconds that a rank has to end by itself after another's error, including a save in progress; torchrun gives 30."""
CONNECTS_WITHIN = 2.0
"""Watch for a rank that is still connecting, which nothing interrupts: there is nothing to save yet."""
BEAT = 2.0
"""Seconds between two signs of life."""
SILENT = 15
"""Looks at the next rank, one a beat, in which it gave no sign of life, after which it is lost. Looks, not seconds:
where all ranks of a run were suspended, none is lost."""
_SOON = 0.02
_HERE, _FIRST, _HEARD, _ALIVE, _MET = "here", "first", "heard", "alive", "met"
_LEFT = 1 << 40
"""Added to the count of a rank that leaves in order."""


class Watch:
    """Watches for errors of other ranks, on one rank.

    Args:
        store: shared by all ranks of this start of the run.
        rank, size: of the run.
        last_words: called with the error before a stuck rank is ended.
    """

    def __init__(self, store: "Store", rank: int, size: int, *, last_words: Callable[[ElectraError], None]) -> None:
        self._store, self._rank, self._size, self._last_words = store, rank, size, last_words
        self._all_here, self._connected = False, False
        self._meetings, self._count, self._silent, self._last_beat = 0, 0, 0, 0.0
        self._heard: dict[str, object] | None = None
        self._raised: ElectraError | None = None
        self._over = threading.Event()
        own = store.clone()  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._look, args=(own,), name="electra-watch", daemon=True)

    def wait_for_all(self, patience: timedelta) -> None:
        """Wait for every rank, in a way that a signal interrupts; from then on poll for errors.

        Raises:
            ConfigError: some did not come.
            ElectraError: that of another rank, which failed before it came.
        """
        self._meet(_HERE, patience)
        self._all_here = True
        self._thread.start()

    def connected(self) -> None:
        """Call this when the ranks are joined: from now on there may be something to save."""
        self._connected = True

    def meet(self) -> None:
        """Wait until every rank is here, without a timeout (a collective operation would time out).

        Raises:
            ElectraError: that of another rank.
        """
        self._meetings += 1
        self._meet(f"{_MET}/{self._meetings}")

    def _meet(self, name: str, patience: timedelta = timedelta.max) -> None:
        end = time.monotonic() + patience.total_seconds()
        with together():
            come = self._store.add(name, 1)
            while come < self._size:
                if (first := self._heard if self._all_here else _first(self._store)) is not None:
                    if not self._all_here:
                        self._store.add(_HEARD, 1)
                    self._raised = self._another(first)
                    raise self._raised
                if time.monotonic() > end:
                    raise ConfigError(
                        f"{self._size - come} of the {self._size} processes of this run did not come within "
                        f"{patience}. Start all of them with torchrun, and look at their messages."
                    )
                time.sleep(_SOON)
                come = self._store.add(name, 0)

    def settled(self, error: Exception) -> Exception:
        """The error that this rank ends with: `error`, or that of another rank which caused it."""
        end_by_itself()
        if error is self._raised or (isinstance(error, ElectraError) and error.agreed):
            return error
        try:
            first = self._tell(error)
        except RuntimeError:
            return error  # the store is gone too
        kind, own = first["kind"], type(error).__name__
        alone = kind != ProcessLost.__name__ and not self._heard_by_all()
        if alone and self._all_here and kind == Interrupted.__name__:
            return ProcessLost(  # the others were stopped by the launcher's signal, since one was killed
                "a process of this run ended or hangs while it was starting. The same command resumes from the newest "
                "checkpoint."
            )
        another = first["rank"] != self._rank
        if another and isinstance(error, ElectraError) and (kind, first["text"]) == (own, str(error)):
            error.reported = True  # all have it, the first rank prints it
        follows = another and isinstance(error, Interrupted | ProcessLost) and kind != own
        return self._another(first) if follows else error

    def close(self) -> None:
        """Stop polling."""
        self._over.set()
        if self._all_here:
            self._thread.join()

    def _tell(self, error: Exception) -> dict[str, object]:
        """Record this error unless one was recorded before; return the first. A rank that already knows it does not
        query the store, which may be gone with the rank that hosted it. Before all are here nothing polls, and this
        rank says itself that it heard.
        """
        if self._heard is not None:
            return self._heard
        known = as_known(error)
        where = f"rank {self._rank} of {self._size} on {platform.node()}"
        kind, text = type(known or ElectraError()).__name__, str(known or f"{type(error).__name__}: {error}")
        announced = {"rank": self._rank, "where": where, "kind": kind, "text": text}
        first: dict[str, object] = json.loads(self._store.compare_set(_FIRST, "", json.dumps(announced)))
        if not self._all_here:
            self._store.add(_HEARD, 1)
        return first

    def _another(self, first: dict[str, object]) -> ElectraError:
        same = named(str(first["kind"]))(f"{first['where']}: {first['text']}")
        speaks = 1 if first.get("silent") and first["rank"] == 0 else 0
        same.reported = self._rank != speaks  # where that rank is, and on rank 0
        return same

    def _heard_by_all(self) -> bool:
        """Whether every rank knows of the error; waits for them, also for those still to come, since this rank may host
        the store.
        """
        end = time.monotonic() + HEARD_WITHIN
        try:
            while self._store.add(_HEARD, 0) < self._size:
                if time.monotonic() > end:
                    return False
                time.sleep(_SOON)
        except RuntimeError:
            return True  # the rank that hosts the store waited here too, and has left
        return True

    def _look(self, store: "Store") -> None:
        try:
            while (first := _first(store)) is None:
                if self._over.wait(LOOK):
                    store.add(f"{_ALIVE}/{self._rank}", _LEFT)
                    return
                if time.monotonic() - self._last_beat >= BEAT:
                    self._beat(store)
            self._heard = first
            store.add(_HEARD, 1)
        except RuntimeError:
            return  # the rank or launcher that hosted the store has ended, as every connection to it shows
        leaves = self._over.wait(CONNECTS_WITHIN)
        if not leaves and not (self._connected and self._over.wait(LEAVES_WITHIN - CONNECTS_WITHIN)):
            error = self._another(first)
            self._last_words(error)
            os.write(2, f"electra: {error} This process hung and was ended.\n".encode())
            os._exit(error.exit_code)

    def _beat(self, store: "Store") -> None:
        """Give a sign of life, look for that of the next rank, and tell all where it is lost."""
        self._last_beat = time.monotonic()
        store.add(f"{_ALIVE}/{self._rank}", 1)
        after = (self._rank + 1) % self._size
        count = store.add(f"{_ALIVE}/{after}", 0)
        self._silent = self._silent + 1 if count == self._count and count < _LEFT else 0
        self._count = count
        if self._silent >= SILENT:
            lost = (
                f"no sign of life for {SILENT * BEAT:.0f} s: its process was killed or hangs, or its machine is gone. "
            )
            announced = {
                "rank": after,
                "where": f"rank {after} of {self._size}",
                "kind": ProcessLost.__name__,
                "silent": True,
                "text": f"{lost}The same command resumes from the newest checkpoint.",
            }
            store.compare_set(_FIRST, "", json.dumps(announced))


def _first(store: "Store") -> dict[str, object] | None:
    if not store.check([_FIRST]):
        return None
    first: dict[str, object] = json.loads(store.get(_FIRST))
    return first


@contextmanager
def together() -> Iterator[None]:
    """Wrap a collective operation: an error in it means that another process is lost.

    Raises:
        ProcessLost: another process ended, hangs, or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        heard = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ProcessLost(
            f"another process of this run has ended or cannot be reached ({heard}). The same command resumes from the "
            "newest checkpoint."
        ) from error
