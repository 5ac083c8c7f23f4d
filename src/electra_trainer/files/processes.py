"""Child processes of this Python that exchange whole messages with their parent.

A child is this Python started again with a pipe to its parent: nothing is forked (torch may already hold threads), and a script needs
no `__main__` guard. It has its own session and ignores the signals that its parent answers. When the parent is gone, however it ended,
the pipe ends, and the child with it.
"""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

__all__ = ["Child", "Connection", "Pool", "connect", "cores"]
_ANSWERED_BY_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


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
        program = f"from {__name__} import connect; pipe = connect({theirs.fileno()}); from {module} import {function}; {function}(pipe)"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), start_new_session=True,
            )  # fmt: skip

    def exit_status(self) -> int | None:
        """What it ended with, negative for a signal, once its pipe has ended; None if it still runs after 5 seconds."""
        try:
            return self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
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
    for number in _ANSWERED_BY_PARENT:
        signal.signal(number, signal.SIG_IGN)  # the parent says when to stop
    sys.stdout = sys.stderr
    return Connection(descriptor)
