"""Child processes of this Python that exchange whole messages with their parent.

A child is this Python started again with a pipe to its parent: nothing is forked (torch may already hold threads), and
a script needs no `__main__` guard. It has its own session and ignores the signals that its parent answers. When the
parent is gone, however it ended, the pipe ends, and the child with it.
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Self

from electra_trainer.errors import STOP, ElectraError, Interrupted, named

__all__ = ["ASK_TO_STOP", "EVENT", "Child", "Connection", "WorkerDied", "Workers", "connect", "cores", "serve", "wait"]

ASK_TO_STOP = b"stop"
"""Message to a child: a SIGTERM that arrives however early it is sent. Only a child that listens to signals stops."""
_ANSWER, _ERROR, EVENT = b"+", b"-", b"*"
"""First letters of messages from a child; events are sent while it works on a request."""


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerDied(ElectraError):
    """A child ended before it had answered."""

    def __init__(self, status: int | None) -> None:
        self.status = status
        super().__init__(
            f"A worker process died (exit status {status}); when that is -9, memory ran out. Run the same command with "
            "fewer workers (--workers, --parallel)."
        )


class Child:
    """A child as its parent sees it: `pipe` to talk to it, `process` to end it."""

    def __init__(self, entry: str, *, threads: int) -> None:
        module, function = entry.split(":")
        source = str(Path(__file__).resolve().parents[2])  # the folder that holds the package, installed or not
        environment = {
            "OMP_NUM_THREADS": str(threads),
            "RAYON_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
            "PYTHONPATH": os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")])),
        }
        self.pipe, theirs = Pipe()
        program = (
            f"from {__name__} import connect; pipe = connect({theirs.fileno()}); from {module} import {function}; "
            f"{function}(pipe)"
        )
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, *sys.argv[1:]],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def exit_status(self) -> int | None:
        """Exit status, negative for a signal, once its pipe has ended; None if it still runs after 5 seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout=5)
        return None

    def send(self, message: bytes) -> None:
        """Send it the setup, a request or ASK_TO_STOP. Its end is noticed when it is read."""
        with suppress(OSError):
            self.pipe.send_bytes(message)

    def read(self) -> tuple[bool, bytes]:
        """Wait for its next message: whether it is the answer to the oldest request, and the message itself.

        Raises:
            WorkerDied: it ended. ElectraError: raised in the child, raised again here.
        """
        try:
            message = self.pipe.recv_bytes()
        except (EOFError, OSError):
            raise WorkerDied(self.exit_status()) from None
        if message[:1] == _ERROR:
            kind, words = json.loads(message[1:])
            raise named(kind)(words)
        return message[:1] == _ANSWER, message[1:]


class Workers:
    """Children that all run one function. Use as a context manager: leaving it ends them, at once after an error.

    Args:
        entry: `"package.module:function"`, called in each child with its pipe, which it hands to `serve`.
        setup: bytes sent to each child first.
        count: number of children, at least 1.
        threads: threads that each computes with.
    """

    def __init__(self, entry: str, *, setup: bytes, count: int, threads: int = 1) -> None:
        self.children = [Child(entry, threads=threads) for _ in range(count)]
        for child in self.children:
            child.send(setup)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for child in self.children:
            child.pipe.close()
        for child in self.children:
            if error is not None or child.exit_status() is None:
                child.process.kill()
            child.process.wait()

    def map(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        """Answers in the order of the requests, which the children take in turn, two each at any time.

        Raises:
            WorkerDied: a child ended. ElectraError: raised in a child, raised again here.
        """
        waiting: deque[Child] = deque()
        for child, request in zip(itertools.cycle(self.children), requests, strict=False):
            child.send(request)
            waiting.append(child)
            if len(waiting) > 2 * len(self.children):
                yield waiting.popleft().read()[1]
        while waiting:
            yield waiting.popleft().read()[1]


def connect(descriptor: int) -> Connection:
    """In a child, first of all: ignore signals, print on standard error only, and open the pipe to the parent."""
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop
    sys.stdout = sys.stderr
    return Connection(descriptor)


def serve(pipe: Connection, prepare: Callable[[bytes], Callable[[bytes], bytes]]) -> None:
    """The life of a worker: the first message sets it up, every other one is answered, the end of the pipe ends it at
    once.

    An answer begins with "+", the class and the sentence of an error with "-". An error of the setup, or a stop at any
    moment, is sent and ends it.
    """
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    gone = suppress(BrokenPipeError)  # the parent, and this process with it
    try:
        threading.Thread(target=_listen, args=(pipe, inbox), daemon=True).start()
        answer = prepare(inbox.get())
        while True:
            message = inbox.get()
            try:
                reply = _ANSWER + answer(message)
            except Interrupted:
                raise
            except Exception as error:
                reply = _failure(error)
            with gone:
                pipe.send_bytes(reply)
    except Exception as error:
        with gone:
            pipe.send_bytes(_failure(error))


def _failure(error: Exception) -> bytes:
    """The message on an error; a bug's traceback is printed."""
    is_ours = isinstance(error, ElectraError)
    if not is_ours:
        traceback.print_exception(error)
    words = str(error) if is_ours else f"A worker process failed: {type(error).__name__}: {error}."
    return _ERROR + json.dumps([type(error).__name__ if is_ours else "ElectraError", words]).encode()


def _listen(pipe: Connection, inbox: "queue.SimpleQueue[bytes]") -> None:
    """Take messages as they come, so that neither side waits for the other to read."""
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)
        if message == ASK_TO_STOP:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            inbox.put(message)
