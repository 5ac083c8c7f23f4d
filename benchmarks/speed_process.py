"""A worker process and the pipes to it, for benchmarks/speed.py."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import electra_trainer
from electra_trainer.runs import launcher

_ROOT = Path(__file__).resolve().parents[1]
_SOURCE = Path(electra_trainer.__file__).resolve().parents[1]
_OURS = (*launcher.tuned(), "GLIBC_TUNABLES", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "ELECTRA_NATIVE")
"""Variables that a user's shell does not have; this process may, where it was started from a tuned one."""


class Failed(Exception):
    """A worker cannot go on; the message says why."""


def environment(*, tuned: bool, threads: int, more: dict[str, str]) -> dict[str, str]:
    """A user's environment, with what `electra` sets for itself if `tuned`."""
    plain = {name: value for name, value in os.environ.items() if name not in _OURS}
    paths = [str(_ROOT), str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    plain |= {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return {**plain, **(launcher.tuned() if tuned else {}), **more}


class Process:
    """A worker that sleeps until it is asked."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=settings, bufsize=0,
        )  # fmt: skip

    def ask(self, request: dict[str, Any], *, limit: float) -> dict[str, Any]:
        """Its answer.

        Raises:
            Failed: it says so, it ended, or `limit` seconds have passed. It is of no more use then.
        """
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._line(time.monotonic() + limit))
        except BrokenPipeError:
            raise Failed(self._how_it_ended()) from None
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def close(self) -> None:
        """End it; harmless if it has ended."""
        self._child.kill()
        self._child.communicate()
        self._errors.close()

    def _line(self, deadline: float) -> bytes:
        assert self._child.stdout is not None
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise Failed("no answer in time")
                part = os.read(self._child.stdout.fileno(), 1 << 16)
                if not part:
                    raise Failed(self._how_it_ended())
                found += part
        return found

    def _how_it_ended(self) -> str:
        code = self._child.wait()
        if code == -9:
            return "killed by the system: out of memory"
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended with {code}: {said[-1] if said else 'without a word'}"
