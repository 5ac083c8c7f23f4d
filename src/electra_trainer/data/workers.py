"""Work in other processes, in order, in bounded memory: bytes in, bytes out.

A worker is this Python started again as a plain child that reads requests from its standard input and answers on its
standard output. Nothing is forked (torch may already hold threads), nothing is pickled, a script needs no `__main__` guard, and a
worker ends by itself when its parent is gone.
"""

import io
import os
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from electra_trainer.errors import DataError, ElectraError

_HEADER = struct.Struct(
    "<cQ"
)  # "+" an answer or request, "-" a DataError, "!" another failure; then the length in bytes


def _write(stream: IO[bytes], kind: bytes, payload: bytes) -> None:
    stream.write(_HEADER.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def _read(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, length = _HEADER.unpack(header)
    payload = stream.read(length)
    return (kind, payload) if len(payload) == length else None


def serve(prepare: Callable[[bytes], Callable[[bytes], bytes]]) -> None:
    """The life of a worker: the first request sets it up, every other one is answered, end of input ends it.

    Signals from the terminal are left to the parent, which closes the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    requests = sys.stdin.buffer
    # Not sys.stdout.buffer: under PYTHONUNBUFFERED that writes what the pipe takes at once, and drops the rest of an answer
    answers = io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "w", closefd=False))
    sys.stdout = sys.stderr  # a stray print must not enter the answers
    answer: Callable[[bytes], bytes] | None = None
    while (message := _read(requests)) is not None:
        try:
            if answer is None:
                answer = prepare(message[1])
                continue
            kind, payload = b"+", answer(message[1])
        except DataError as error:
            kind, payload = b"-", str(error).encode("utf-8", "replace")
        except Exception as error:
            kind, payload = b"!", f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        try:
            _write(answers, kind, payload)
        except BrokenPipeError:  # the parent is gone
            os._exit(0)


class Workers:
    """A few children that all run `module:function`, where the function hands a setup to `serve`.

    Args:
        entry: `"package.module:function"`; called in the child without arguments.
        setup: bytes sent to each child first.
        count: number of children, at least 1.
    """

    def __init__(self, entry: str, *, setup: bytes, count: int) -> None:
        module, function = entry.split(":")
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1")
        source = str(Path(__file__).resolve().parents[2])  # the folder that holds the package, installed or not
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-c", f"from {module} import {function}; {function}()"]
        self._local = threading.local()
        self._children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            for _ in range(count)
        ]
        self._free = deque(self._children)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="worker")
        for child in self._children:
            assert child.stdin is not None
            try:
                _write(child.stdin, b"+", setup)
            except BrokenPipeError:
                raise self._died(child) from None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for child in self._children:
                child.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for child in self._children:
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        continue
            child.wait()

    def map(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        """Answers in the order of the requests; about two requests a child are under way at any time.

        Raises:
            DataError: raised in the child, raised again here.
            ElectraError: a child failed or died.
        """
        waiting: deque[Future[bytes]] = deque()
        for request in requests:
            waiting.append(self._pool.submit(self._ask, request))
            if len(waiting) > 2 * len(self._children):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, request: bytes) -> bytes:
        if not hasattr(self._local, "child"):
            self._local.child = self._free.popleft()  # one thread, one child
        child: subprocess.Popen[bytes] = self._local.child
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            _write(child.stdin, b"+", request)
            message = _read(child.stdout)
        except (BrokenPipeError, ValueError):
            message = None
        if message is None:
            raise self._died(child)
        kind, payload = message
        if kind == b"+":
            return payload
        text = payload.decode("utf-8", "replace")
        raise DataError(text) if kind == b"-" else ElectraError(f"A worker process failed: {text}.")

    @staticmethod
    def _died(child: subprocess.Popen[bytes]) -> ElectraError:
        try:
            code: int | None = child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        return ElectraError(
            f"A worker process died (exit status {code}); when that is -9, memory ran out. Run the same command again "
            "with fewer workers."
        )
