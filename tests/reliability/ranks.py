"""Runs of several processes, as torchrun starts them, without its start-up time: forked, with its variables, on one machine."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping

import torch
from tests.reliability.forking import PATIENCE


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start_ranks(size: int, work: Callable[[int], int | None], variables: Mapping[str, str] | None = None) -> list[int]:
    """Fork `size` processes that call `work(rank)`; its value is the exit code. Returns their process ids."""
    import scipy.sparse  # noqa: F401 - loaded by the first evaluation: once here, not in each rank

    port, started = free_port(), []
    for rank in range(size):
        child = os.fork()
        if child:
            started.append(child)
            continue
        code = 70
        try:
            torch.set_num_threads(1)
            os.environ |= {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), **(variables or {}),
            }  # fmt: skip
            code = work(rank) or 0
        except BaseException as error:
            code = getattr(error, "exit_code", 70)
            if code == 70:
                import traceback

                traceback.print_exc()
        finally:
            os._exit(code)
    return started


def wait_for(processes: list[int], *, seconds: float = PATIENCE) -> list[int]:
    """Their exit codes (negative: the signal that ended them); those that still run after `seconds` are killed and fail the test."""
    codes: dict[int, int] = {}
    end = time.monotonic() + seconds
    while len(codes) < len(processes) and time.monotonic() < end:
        for process in processes:
            if process not in codes:
                found, status = os.waitpid(process, os.WNOHANG)
                if found:
                    codes[process] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    hung = [process for process in processes if process not in codes]
    for process in hung:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    assert not hung, f"{len(hung)} of {len(processes)} processes hung for {seconds} s"
    return [codes[process] for process in processes]


def run_ranks(size: int, work: Callable[[int], int | None], *, seconds: float = PATIENCE) -> list[int]:
    """Start them and wait."""
    return wait_for(start_ranks(size, work), seconds=seconds)


def wait_until(so: Callable[[], bool], *, seconds: float = 300) -> None:
    """Until it is so; the test fails where it takes longer."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.005)
