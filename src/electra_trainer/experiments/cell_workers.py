"""Cells in several processes at once.

Orders and what they need go down a worker's pipe, events come up. Ctrl-C reaches the parent alone, which asks all
workers to save and stop. When the parent is gone, however it ended, a thread of the worker sees the end of the pipe and
ends it at once.

What is sent is unpickled on the other side, between a process and the child that it started; nothing that comes from a
file is.
"""

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.reduction import ForkingPickler

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, named
from electra_trainer.experiments import folder
from electra_trainer.files.processes import Child, Connection, Pool
from electra_trainer.runs.signals import StopRequest
from electra_trainer.train.device import set_threads

_STOP = b"stop"
_ELSEWHERE = "Put its class into a module that can be imported, or do one run at a time: --parallel 1."
_LOOK = 0.2
"""Seconds between looks for a signal."""


def do_in_workers(
    orders: Sequence[folder.Order],
    *,
    setups: Sequence[folder.Setup],
    threads: int,
    heard: Callable[[folder.Cell, folder.Event | None], None],
    idle: Callable[[], None],
    stop: Callable[[], str | None],
) -> None:
    """Do all orders, one worker for each setup; an error in one stops the others, saved, and is raised when they have
    ended.

    Args:
        threads: threads that each worker computes with.
        heard: called with each event of a cell; None: it begins.
        idle: called now and then.
        stop: names the signal that asks to stop, once there was one.

    Raises:
        Interrupted: all of them saved and stopped. ElectraError: of a worker, with its class and words, after the
            cell's name.
    """
    waiting, error, stopping = deque(orders), None, False
    with Pool(f"{__name__}:serve", count=len(setups), threads=threads) as pool:
        at_work: dict[object, tuple[Child, folder.Cell]] = {}

        def employ(child: Child) -> None:
            at_work.pop(child.pipe, None)
            if waiting and not stopping:
                order = waiting.popleft()
                at_work[child.pipe] = child, order.cell
                _send(child, order)
                heard(order.cell, None)

        for child, setup in zip(pool.children, setups, strict=True):
            _send(child, (sys.path, threads))
            _send(child, setup)
            employ(child)
        while at_work:
            if not stopping and (stop() or error is not None):
                stopping = True
                for child, _ in at_work.values():
                    _send(child, None)
            idle()
            for pipe in wait([child.pipe for child, _ in at_work.values()], timeout=_LOOK):
                child, cell = at_work[pipe]
                event = _hear(child)
                heard(cell, event)
                if event.kind == "failed" and error is None and not (stopping and not event.error):
                    error = named(event.error)(f"{cell}: {event.text}")
                if event.kind == "done":
                    employ(child)
                elif event.kind in ("stopped", "failed"):
                    del at_work[pipe]
    if error is not None:
        raise error
    if stopping:
        raise Interrupted(f"{stop()}: all runs are saved. The same command resumes.")


def _send(child: Child, message: object) -> None:
    """An order, or what it needs; None asks to save and stop. A child that has ended is found out when it is heard."""
    try:
        if message is None:
            child.pipe.send_bytes(_STOP)
        else:
            child.pipe.send(message)
    except OSError:
        return
    except Exception as error:  # pickle has many
        raise ConfigError(f"the tasks cannot be sent to another process ({error}). {_ELSEWHERE}") from None


def _hear(child: Child) -> folder.Event:
    """The next event; a worker that is gone has failed."""
    try:
        event: folder.Event = child.pipe.recv()
    except (EOFError, OSError):
        code = child.exit_status()
        why = "memory may have run out: do fewer at once with --parallel" if code == -9 else f"exit status {code}"
        return folder.Event(kind="failed", text=f"its process died ({why}). The same command resumes.")
    return event


def serve(pipe: Connection) -> None:
    """The life of a worker."""
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stopped, saving = threading.Event(), threading.Event()

    def listen() -> None:
        while True:
            try:
                message = pipe.recv_bytes()
            except (EOFError, OSError):
                os._exit(1)  # the parent is gone
            if message != _STOP:
                inbox.put(message)
                continue
            stopped.set()
            if not saving.is_set():
                os._exit(0)
            while saving.is_set():  # fine-tuning looks at `stopped`, pre-training waits for a signal
                if StopRequest.current is not None and StopRequest.current.name is None:
                    os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(_LOOK)

    signal.signal(
        signal.SIGXCPU, lambda *_: stopped.set()
    )  # its own limit of computing time: another process continues
    threading.Thread(target=listen, daemon=True).start()
    try:
        _work(pipe, inbox, stopped=stopped, saving=saving)
    except BrokenPipeError:
        os._exit(1)


def _work(
    pipe: Connection, inbox: "queue.SimpleQueue[bytes]", *, stopped: threading.Event, saving: threading.Event
) -> None:
    """Do orders until one fails or is stopped, or the parent has no more and ends the process."""
    sys.path[:], threads = ForkingPickler.loads(inbox.get())
    set_threads(threads)
    reports = folder.Reports(
        tell=pipe.send,
        stop=lambda: "stop" if stopped.is_set() else None,
        saving=lambda on: saving.set() if on else saving.clear(),
    )
    try:
        try:
            setup: folder.Setup = ForkingPickler.loads(inbox.get())
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"a worker cannot import the task ({error}). {_ELSEWHERE}") from None
        while True:
            setup.do(ForkingPickler.loads(inbox.get()), reports)
            pipe.send(folder.Event(kind="done"))
    except Interrupted:
        pipe.send(folder.Event(kind="stopped"))
    except ElectraError as error:
        pipe.send(folder.Event(kind="failed", error=type(error).__name__, text=str(error)))
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()
        pipe.send(folder.Event(kind="failed", text=f"{type(error).__name__}: {error}. The lines above say where."))
