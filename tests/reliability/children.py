"""Work in a copy of this process: torch is imported once, and the copy may be killed."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from electra_trainer.files import processes


def in_a_child(work: Callable[[], int | None]) -> int:
    """Run it in a copy of this process.

    Returns:
        What it returned (None: 0), 1 after an exception, or minus the number of the signal that ended it.
    """
    import scipy.sparse  # noqa: F401 - loaded by the first evaluation: once here, not in each child

    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Copied:
    """In place of `subprocess.Popen` for a child of `files/processes.py`: a copy of this process runs the child's program.

    For tests of what workers do; how they start costs an import of torch each, and is tested elsewhere.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: tuple[int], start_new_session: bool, **_: Any
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            faulthandler.disable()  # pytest's would print each crash
            if start_new_session:
                os.setsid()
            os.closerange(3, pass_fds[0])  # the parents' ends of all pipes: a worker notices when its own is closed
            os.closerange(pass_fds[0] + 1, os.sysconf("SC_OPEN_MAX"))
            os.environ.update(env)
            exec(command[2], {})
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)

    def wait(self, timeout: float = 60) -> int:
        end = time.monotonic() + timeout
        while self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise subprocess.TimeoutExpired("a copy of this process", timeout)
            else:
                time.sleep(0.005)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def copy_workers(patch: pytest.MonkeyPatch) -> None:
    """Workers that are started from here on are copies of this process."""
    patch.setattr(processes, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": Copied}))
