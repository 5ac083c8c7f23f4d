"""SIGINT, SIGTERM and SIGUSR1 ask the run to save and stop: at once where nothing would be lost, else at the end of the step.

A training step is a function of (weights, seed, step), so up to the moment when weights move it can be given up and done again later.

Signs of life of each rank, and the code that it ended with, for whoever supervises the run; nothing without a supervisor.

A run whose supervisor or launcher was killed is told to stop, as if by SIGTERM: it saves, and the same command goes on.

On Linux alone, where a process can ask for a signal at the end of the one that started it.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType

from electra_trainer.errors import Interrupted

STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""What asks a run to stop. SIGUSR1 is what Slurm sends some time before the end (`--signal`)."""
FORWARDS = dict.fromkeys(
    ("PET_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
)
"""Variables that say what torchrun passes on to its processes, of newer and older PyTorch; of itself it dies of SIGUSR1 and leaves them behind."""

WAITS = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}
"""Seconds in which torchrun lets its processes save after a signal that it passed on, before it kills them; 30 where it does not know this
variable (that of PyTorch 2.13 does)."""


class StopRequest:
    """Context manager: while it is active, a signal sets `name` instead of ending the process.

    Args:
        at_once: raise Interrupted wherever the program is; an attribute of that name may be set and unset in between.
    """

    current: "StopRequest | None" = None
    """The innermost one that is active."""

    def __init__(self, *, at_once: bool = False) -> None:
        self.name: str | None = None
        self.at_once = at_once
        self._before: dict[signal.Signals, object] = {}
        self._outer: StopRequest | None = None

    def __enter__(self) -> "StopRequest":
        self._outer, StopRequest.current = StopRequest.current, self
        if threading.current_thread() is threading.main_thread():
            for number in STOP:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        StopRequest.current = self._outer
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        first, self.name = self.name is None, signal.Signals(number).name
        if self.at_once:
            self.at_once = False  # a second signal is not to disturb what the first one began
            raise Interrupted(f"{self.name}: stopped; what is done is saved. The same command goes on.")
        if first:  # os.write: a handler must not enter a stream that was interrupted while writing
            with suppress(OSError):  # a terminal that is gone
                os.write(2, b"\nelectra: saving at the end of this step, then stopping\n")


def finish_first() -> None:
    """From here on the step in progress is finished before a stop: weights are about to move."""
    if StopRequest.current is not None:
        StopRequest.current.at_once = False


def leave_when_told() -> None:
    """Until a StopRequest takes over, a signal ends the process with code 75: nothing was begun, the same command begins."""
    _own_end.clear()
    for number in STOP:
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)  # as `signals_held` left them, over a restart of the process


@contextmanager
def signals_held() -> Iterator[None]:
    """Signals wait until the block ends, or, in the program that this process becomes in it, until `leave_when_told`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_own_end = threading.Event()


def end_by_itself() -> None:
    """From here on this process is about to end with a code and a message of its own, and a signal changes nothing."""
    finish_first()
    _own_end.set()


def _leave(number: int, frame: FrameType | None) -> None:
    if _own_end.is_set():
        return
    with suppress(OSError):
        os.write(
            2, f"electra: {signal.Signals(number).name}: stopped before it began. The same command begins.\n".encode()
        )
    ended(Interrupted.exit_code)
    os._exit(Interrupted.exit_code)


LAUNCH, FOLDER = "ELECTRA_LAUNCH", "ELECTRA_HEARTBEATS"
"""Variables that a supervisor sets: a name for this start of the run, and the folder of the signs of life."""
ENDED = ".ended"
"""What the name of a file ends in that holds an exit code."""


def beat() -> None:
    """Note that this process began, or did a step: the file of its rank is written, its process id in it."""
    _note("", os.getpid())


def ended(code: int) -> None:
    """Note what this process is about to end with: launchers hide it."""
    _note(ENDED, code)


def _note(suffix: str, number: int) -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        path = Path(folder) / (os.environ.get("RANK", "0") + suffix)
        try:
            path.write_text(str(number))
        except OSError:
            return  # a full disk is told by what cannot do without it


STARTED_BY = "ELECTRA_STARTED_BY"
"""Variable with the id of the process that starts runs and must not be outlived by them."""
_UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"
_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """From here on the end of the process that started this one is a SIGTERM; nothing where neither a supervisor nor torchrun did."""
    starter = os.environ.get(STARTED_BY, "")
    if not sys.platform.startswith("linux") or not (starter.isdigit() or _UNDER_TORCHRUN in os.environ):
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if starter.isdigit() and _is_gone(int(starter)):  # before this was asked for
        os.kill(os.getpid(), signal.SIGTERM)


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False


def process_leads() -> bool:
    """Whether this is the one process, or the first of those that torchrun started; also before and after they are joined."""
    return os.environ.get("RANK", "0") == "0"
