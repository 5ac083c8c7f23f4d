"""Cells in several processes at once.

A worker is this Python started again, with a pipe to its parent: orders and what they need go down, events come up. It is its own
session, so that Ctrl-C reaches the parent alone, which then asks all workers to save and stop. When the parent is gone, however it
went, the pipe ends, and the worker ends at once: a thread of its own listens. It inherits the experiment's lock, so that the same
command, given again, begins when the last worker has ended.

What is sent is unpickled on the other side, between a process and the child that it started; nothing is that comes from a file.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, TYPE_CHECKING

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, named
from electra_trainer.runs.signals import STOP

if TYPE_CHECKING:
    from electra_trainer.experiments.experiment_file import Cell
    from electra_trainer.finetuning.cell_work import Event, Order, Setup

_STOP = b"stop"
_ELSEWHERE = "Put its class into a module that can be imported, or do one run at a time: --parallel 1."
_LOOK = 0.2
"""Seconds between looks for a signal."""


def do_in_workers(
    orders: "Sequence[Order]",
    *,
    setups: "Sequence[Setup]",
    lock: IO[str],
    heard: "Callable[[Cell, Event | None], None]",
    idle: Callable[[], None],
    stop: Callable[[], str | None],
) -> None:
    """Do all orders, one worker for each setup; an error in one stops the others, saved, and is raised when they have ended.

    Args:
        lock: an open file that workers keep open.
        heard: told what happens to a cell; None: it begins.
        idle: called now and then.
        stop: names the signal that asks to stop, once there was one.

    Raises:
        Interrupted: all of them saved and stopped. ElectraError: of a worker, with its class and words, after the cell's name.
    """
    waiting, error, stopping = deque(orders), None, False
    with ExitStack() as stack:
        workers = {
            worker.pipe: worker for setup in setups for worker in [stack.enter_context(_Worker(setup, lock=lock))]
        }

        def employ(worker: _Worker) -> None:
            if waiting and not stopping:
                heard(worker.take(waiting.popleft()), None)
            else:
                del workers[worker.pipe]

        for worker in list(workers.values()):
            employ(worker)
        while workers:
            if not stopping and (stop() or error is not None):
                stopping = True
                for worker in workers.values():
                    worker.ask_to_stop()
            idle()
            for pipe in wait(list(workers), timeout=_LOOK):
                worker = workers[pipe]  # type: ignore[index]
                event = worker.hear()
                heard(worker.cell, event)
                if event.kind == "failed" and error is None and not (stopping and not event.error):
                    error = _as_raised(worker.cell, event)
                if event.kind == "done":
                    employ(worker)
                elif event.kind in ("stopped", "failed"):
                    del workers[worker.pipe]
    if error is not None:
        raise error
    if stopping:
        raise Interrupted(f"{stop()}: all runs are saved. The same command goes on.")


class _Worker:
    """A child, as its parent sees it. Leaving the context ends it."""

    def __init__(self, setup: "Setup", *, lock: IO[str]) -> None:
        self.pipe, theirs = Pipe()
        threads = str(setup.declared.threads)
        source = str(Path(__file__).resolve().parents[2])  # the folder that holds the package, installed or not
        environment = dict(
            os.environ,
            OMP_NUM_THREADS=threads,
            RAYON_NUM_THREADS=threads,
            PYTHONPATH=os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
        )
        program = f"from {__name__} import serve; serve({theirs.fileno()})"
        self.cell: Cell
        self._child = subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), lock.fileno()),
            start_new_session=True,
        )
        theirs.close()
        self._send([sys.path, setup])

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.close()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def take(self, order: "Order") -> "Cell":
        """Give it an order."""
        self.cell = order.cell
        self._send([order])
        return order.cell

    def ask_to_stop(self) -> None:
        """It saves and stops, or ends at once where it has nothing to save."""
        try:
            self.pipe.send_bytes(_STOP)
        except OSError:
            return  # it has ended: `hear` finds out

    def hear(self) -> "Event":
        """The next event; a worker that is gone has failed."""
        from electra_trainer.finetuning.cell_work import Event

        try:
            event: Event = self.pipe.recv()
        except (EOFError, OSError):
            code = self._child.wait()
            why = "memory may have run out: do fewer at once with --parallel" if code == -9 else f"exit status {code}"
            return Event(kind="failed", text=f"its process died ({why}). The same command goes on.")
        return event

    def _send(self, messages: Sequence[object]) -> None:
        try:
            for message in messages:
                self.pipe.send(message)
        except OSError:
            return  # it has ended: `hear` finds out
        except Exception as error:  # pickle has many
            self.pipe.close()
            raise ConfigError(f"the tasks cannot be sent to another process ({error}). {_ELSEWHERE}") from None


def _as_raised(cell: "Cell", event: "Event") -> ElectraError:
    return named(event.error)(f"{cell}: {event.text}")


def serve(descriptor: int) -> None:
    """The life of a worker."""
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop
    sys.stdout = sys.stderr
    pipe: Connection = Connection(descriptor)
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

    threading.Thread(target=listen, daemon=True).start()
    try:
        _work(pipe, inbox, stopped=stopped, saving=saving)
    except BrokenPipeError:
        os._exit(1)


def _work(
    pipe: Connection, inbox: queue.SimpleQueue[bytes], *, stopped: threading.Event, saving: threading.Event
) -> None:
    """Do orders until one fails or is stopped, or the parent has no more and ends the process."""
    sys.path[:] = ForkingPickler.loads(inbox.get())
    from electra_trainer.finetuning.cell_work import CellWork, Event
    from electra_trainer.train.device import set_threads

    try:
        try:
            setup: Setup = ForkingPickler.loads(inbox.get())
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"a worker cannot import the task ({error}). {_ELSEWHERE}") from None
        set_threads(setup.declared.threads)
        work = CellWork(setup, saving=lambda on: saving.set() if on else saving.clear())
        while True:
            order: Order = ForkingPickler.loads(inbox.get())
            work.do(order, tell=pipe.send, stop=lambda: "stop" if stopped.is_set() else None)
            pipe.send(Event(kind="done"))
    except Interrupted:
        pipe.send(Event(kind="stopped"))
    except ElectraError as error:
        pipe.send(Event(kind="failed", error=type(error).__name__, text=str(error)))
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()
        pipe.send(Event(kind="failed", text=f"{type(error).__name__}: {error}. The lines above say where."))
