"""Child processes of this Python that exchange whole messages with their parent.

A child is this Python started again with a pipe to its parent: nothing is forked (torch may already hold threads), and
a script needs no `__main__` guard. It has its own session and ignores the signals that its parent answers. When the
parent is gone, however it ended, the pipe ends, and the child with it.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from electra_trainer.errors import STOP, ElectraError, named

__all__ = ["Child", "Connection", "Pool", "WorkerDied", "Workers", "connect", "cores", "serve"]


def cores() -> int:
    """How many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


class Pool:
    """A few children that all run one function. Use as a context manager: leaving it ends them, at once after an error.

    Args:
        entry: `"package.module:function"`, called in each child with its end of the pipe.
        count: number of children, at least 1.
        threads: threads that each computes with.
    """

    def __init__(self, entry: str, *, count: int, threads: int = 1) -> None:
        self.children = [Child(entry, threads=threads) for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for child in self.children:
            child.pipe.close()
        for child in self.children:
            if error is not None or child.exit_status() is None:
                child.process.kill()
            child.process.wait()


def connect(descriptor: int) -> Connection:
    """In a child, first of all: ignore signals, print on standard error only, and open the pipe to the parent."""
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop
    sys.stdout = sys.stderr
    return Connection(descriptor)


def serve(pipe: Connection, prepare: Callable[[bytes], Callable[[bytes], bytes]]) -> None:
    """The life of a worker: the first message sets it up, every other one is answered, the end of the pipe ends it.

    An answer begins with "+", the class and the sentence of an error with "-".
    """
    answer: Callable[[bytes], bytes] | None = None
    while True:
        try:
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            if answer is None:
                answer = prepare(message)
                continue
            reply = b"+" + answer(message)
        except Exception as error:
            is_ours = isinstance(error, ElectraError)
            words = str(error) if is_ours else f"A worker process failed: {type(error).__name__}: {error}."
            reply = b"-" + json.dumps([type(error).__name__ if is_ours else "ElectraError", words]).encode()
        try:
            pipe.send_bytes(reply)
        except BrokenPipeError:  # the parent is gone
            os._exit(0)


class WorkerDied(ElectraError):
    """A child ended before it had answered."""

    def __init__(self, child: Child) -> None:
        self.status = child.exit_status()
        super().__init__(
            f"A worker process died (exit status {self.status}); when that is -9, memory ran out. Run the same command "
            "again with fewer workers."
        )


class Workers(Pool):
    """Children that all run `module:function`, where the function hands its pipe to `serve`: bytes in, bytes out,
    nothing is pickled.

    Args:
        entry: `"package.module:function"`.
        setup: bytes sent to each child first.
        count: number of children, at least 1.
    """

    def __init__(self, entry: str, *, setup: bytes, count: int) -> None:
        super().__init__(entry, count=count)
        for child in self.children:
            _send(child, setup)

    def map(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        """Answers in the order of the requests, of which each child has one at any time.

        Raises:
            WorkerDied: a child ended. ElectraError: raised in a child, raised again here.
        """
        waiting: deque[Child] = deque()
        for child, request in zip(itertools.cycle(self.children), requests, strict=False):
            ready = [_reply(waiting.popleft())] if len(waiting) == len(self.children) else []
            _send(child, request)
            waiting.append(child)
            yield from ready
        yield from map(_reply, waiting)


def _send(child: Child, message: bytes) -> None:
    try:
        child.pipe.send_bytes(message)
    except OSError:
        raise WorkerDied(child) from None


def _reply(child: Child) -> bytes:
    try:
        reply = child.pipe.recv_bytes()
    except (EOFError, OSError):
        raise WorkerDied(child) from None
    if reply[:1] == b"+":
        return reply[1:]
    kind, words = json.loads(reply[1:])
    raise named(kind)(words)
