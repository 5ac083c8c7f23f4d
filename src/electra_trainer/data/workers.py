"""Encode in other processes, in order and in bounded memory: bytes in, bytes out, nothing is pickled."""

import os
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files.processes import Child, Connection, Pool


def serve(pipe: Connection, prepare: Callable[[bytes], Callable[[bytes], bytes]]) -> None:
    """The life of a worker: the first message sets it up, every other one is answered, the end of the pipe ends it.

    An answer begins with "+", the sentence of a DataError with "-", that of another failure with "!".
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
        except DataError as error:
            reply = b"-" + str(error).encode("utf-8", "replace")
        except Exception as error:
            reply = b"!" + f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        try:
            pipe.send_bytes(reply)
        except BrokenPipeError:  # the parent is gone
            os._exit(0)


class Workers:
    """A few children that all run `module:function`, where the function hands its pipe and a setup to `serve`.

    Args:
        entry: `"package.module:function"`.
        setup: bytes sent to each child first.
        count: number of children, at least 1.
    """

    def __init__(self, entry: str, *, setup: bytes, count: int) -> None:
        self.pool = Pool(entry, count=count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="worker")
        self._free: queue.SimpleQueue[Child] = queue.SimpleQueue()
        for child in self.pool.children:
            self._free.put(child)
            try:
                child.pipe.send_bytes(setup)
            except BrokenPipeError:
                raise _died(child) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for child in self.pool.children:
                child.process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.pool.__exit__(kind, error, trace)

    def map(self, requests: Iterable[bytes]) -> Iterator[bytes]:
        """Answers in the order of the requests; about two requests a child are under way at any time.

        Raises:
            DataError: raised in the child, raised again here.
            ElectraError: a child failed or died.
        """
        waiting: deque[Future[bytes]] = deque()
        for request in requests:
            waiting.append(self._threads.submit(self._ask, request))
            if len(waiting) > 2 * len(self.pool.children):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, request: bytes) -> bytes:
        child = self._free.get()
        try:
            child.pipe.send_bytes(request)
            reply = child.pipe.recv_bytes()
        except (EOFError, OSError):
            raise _died(child) from None
        finally:
            self._free.put(child)
        if reply[:1] == b"+":
            return reply[1:]
        text = reply[1:].decode("utf-8", "replace")
        raise DataError(text) if reply[:1] == b"-" else ElectraError(f"A worker process failed: {text}.")


def _died(child: Child) -> ElectraError:
    return ElectraError(
        f"A worker process died (exit status {child.exit_status()}); when that is -9, memory ran out. Run the same command again "
        "with fewer workers."
    )
