"""Signals that stop a run (`STOP`), and the end of the parent process as a signal.

A run stops at once where nothing would be lost, else at the end of the step. A training step is a function of (weights,
seed, step), so until the weights move it can be given up and done again later.

If the supervisor or launcher is killed, the run gets a SIGTERM (on Linux, where a process can ask for that): it saves,
and the same command resumes it.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from electra_trainer.errors import STOP as STOP
from electra_trainer.errors import Interrupted

FORWARDS = dict.fromkeys(
    ("PET_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2,SIGXCPU"
)
"""Variables that name the signals torchrun forwards, of newer and older PyTorch. By default it dies of SIGUSR1 and
leaves its processes behind.
"""

WAITS = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600"}
"""Seconds that torchrun gives its processes to save after a forwarded signal before it kills them; 30 in versions that
do not know this variable (PyTorch 2.13 does)."""


def _heard() -> list[signal.Signals]:
    """Signals to listen to: all of STOP, without SIGHUP under nohup. torchrun passes SIGHUP on also there, and waits
    for the end.
    """
    stays = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN and _UNDER_TORCHRUN not in os.environ
    return [one for one in STOP if one != signal.SIGHUP or not stays]


class StopRequest:
    """Context manager: while it is active, a signal sets `name` instead of ending the process.

    Args:
        at_once: raise Interrupted wherever the program is; the attribute may be set and unset meanwhile.
        quiet: say nothing of a signal.
    """

    current: "StopRequest | None" = None
    """The innermost one that is active."""

    def __init__(self, *, at_once: bool = False, quiet: bool = False) -> None:
        self.name: str | None = None
        self.raised = False
        self.at_once, self._quiet = at_once, quiet
        self._before: dict[signal.Signals, object] = {}
        self._outer: StopRequest | None = None

    def __enter__(self) -> "StopRequest":
        self._outer, StopRequest.current = StopRequest.current, self
        if threading.current_thread() is threading.main_thread():
            for number in _heard():
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        StopRequest.current = self._outer
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def stop_now(self) -> None:
        """Raise Interrupted, and remember it: see `raise_again`."""
        self.raised = True
        raise Interrupted(f"{self.name}: stopped; what is done is saved. The same command continues.")

    def _note(self, number: int, frame: FrameType | None) -> None:
        first, self.name = self.name is None, signal.Signals(number).name
        if self.at_once:
            self.at_once = False  # a second signal must not disturb what the first one began
            self.stop_now()
        # os.write: a handler must not enter a stream that was interrupted while it was written
        if first and not self._quiet:
            with suppress(OSError):  # a terminal that is gone
                os.write(2, b"\nelectra: saving at the end of this step, then stopping\n")


def finish_first() -> None:
    """From here on a stop waits for the end of the step: weights are about to move."""
    if StopRequest.current is not None:
        StopRequest.current.at_once = False


def raise_again() -> None:
    """Raise the Interrupted of a signal once more, if there was one: code that tries something and catches every error
    catches it too.

    Raises:
        Interrupted: a signal came where it stops at once.
    """
    if StopRequest.current is not None and StopRequest.current.raised:
        StopRequest.current.stop_now()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it a signal does not stop at once, but at the end: a state is changed and changed back.

    Raises:
        Interrupted: a signal came meanwhile that would have stopped at once.
    """
    stop = StopRequest.current
    if stop is None or not stop.at_once:
        yield
        return
    stop.at_once, before = False, stop.name
    try:
        yield
    finally:
        stop.at_once = True
    if stop.name != before:
        stop.at_once = False
        stop.stop_now()


def leave_when_told() -> None:
    """Until a StopRequest takes over, a signal ends the process with code 75: nothing has begun yet."""
    _own_end.clear()
    for number in _heard():
        signal.signal(number, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)  # `signals_held` blocked them before the process was replaced


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold signals back until the block ends, or, if the process is replaced in it, until the new program calls
    `leave_when_told`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


abandoned = threading.Event()
"""Set when a thread does not end: the process then exits without waiting for threads or exit handlers."""
_own_end = threading.Event()


def end_by_itself() -> None:
    """From here on this process ends with its own code and message, and a signal changes nothing."""
    finish_first()
    _own_end.set()


def _leave(number: int, frame: FrameType | None) -> None:
    if _own_end.is_set():
        return
    with suppress(OSError):
        reported = f"electra: {signal.Signals(number).name}: stopped before it began. The same command begins.\n"
        os.write(2, reported.encode())
    os._exit(Interrupted.exit_code)


LAUNCH = "ELECTRA_LAUNCH"
"""Variable that a supervisor or job file sets: a name for this start of the run."""
STARTED_BY = "ELECTRA_STARTED_BY"
"""Variable with the id of the supervisor: runs must not outlive it."""
_UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"
_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """From here on this process gets a SIGTERM when the supervisor or torchrun that started it ends; nothing where
    neither did.
    """
    starter = os.environ.get(STARTED_BY, "")
    if not sys.platform.startswith("linux") or not (starter.isdigit() or _UNDER_TORCHRUN in os.environ):
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if starter.isdigit():
        try:
            os.kill(int(starter), 0)
        except ProcessLookupError:  # it ended before the signal was requested
            os.kill(os.getpid(), signal.SIGTERM)
        except OSError:
            return  # it lives, and belongs to somebody else


def process_leads() -> bool:
    """Whether this is the only process, or the first of those that torchrun started; also before and after they are
    joined.
    """
    return os.environ.get("RANK", "0") == "0"
