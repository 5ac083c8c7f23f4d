"""Start a run again when its process dies: `electra pretrain … --restarts 5`.

The run itself makes this safe: it resumes from its newest verified checkpoint with the same bits. This file only
decides when to restart.

- Finished, stopped by a signal, or an error that would recur (bad data, bad settings, diverged): no restart, its exit
code is returned.
- Killed, crashed, a disk that failed, out of memory: restart after 1, 2, 4, ... seconds, at most a minute.
- Three starts in a row without a new checkpoint: a crash loop, which ends.
"""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from electra_trainer.errors import ElectraError, Interrupted, StorageError, tell
from electra_trainer.runs import checkpoint, progress, signals
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import read_table

_LOOK = 0.05
_STOPPED, _FAILED = Interrupted.exit_code, ElectraError.exit_code
_AGAIN = (_FAILED, StorageError.exit_code)
"""Exit codes after which a restart may help."""
_KNOWN = {0, 130, _FAILED, *(error.exit_code for error in ElectraError.__subclasses__())}
"""Exit codes of a run. Any other code comes from a launcher, Python or the system, and is mapped to 70."""
_FRUITLESS = 3
"""Starts in a row without a new checkpoint that make a crash loop."""


def supervise(command: Sequence[str], out: Path, *, restarts: int, pause: float = 1.0) -> int:
    """Run a command that trains into `out`, and restart it until it ends for good.

    Args:
        command: program and arguments; it may be our torchrun with any number of processes on this machine.
        out: the run folder, where status.json records how each start ended.
        restarts: the most restarts.
        pause: seconds before the first restart; doubled after each start without a new checkpoint, at most a minute.

    Returns:
        The exit code of the run (errors.py).
    """
    run, starts, fruitless = RunFolder(out), 0, 0
    step = _step(run, 0)
    with signals.StopRequest(quiet=True) as stop:
        while True:
            launch, starts = uuid.uuid4().hex, starts + 1
            code, why = _start(command, stop, launch)
            if code == _STOPPED and (own := _own(run, launch)):  # a launcher does not know whether the run saved
                code = own.get("exit_code", _FAILED)
            before, step = step, _step(run, step)
            fruitless = 0 if step > before else fruitless + 1
            left = restarts - starts + 1
            again = code in _AGAIN and stop.name is None and left > 0 and fruitless < _FRUITLESS
            if again:
                seconds = min(60.0, pause * 2**fruitless)
                tell(f"{why}; starting again from step {step:,} in {seconds:.0f} s ({left} restarts left)")
                # processes of a launcher that was killed may still save, and hold the run's lock
                _record(run, launch, code, why, wait=600.0, step=step, starts=starts)
                end = time.monotonic() + seconds
                while time.monotonic() < end and stop.name is None:
                    time.sleep(_LOOK)
                if stop.name is None:
                    continue
                code, why = _STOPPED, f"{stop.name}: stopped before the next start"
            elif code in _AGAIN and fruitless >= _FRUITLESS:
                why += f"; giving up after {fruitless} starts in a row without a new checkpoint"
            _record(run, launch, code, why, wait=2.0, step=step, starts=starts)
            if again or code in _AGAIN:
                tell(f"{why}. The same command resumes at step {step:,}.")
            return code


def _start(command: Sequence[str], stop: signals.StopRequest, launch: str) -> tuple[int, str]:
    """Run one start and pass a signal on to it; return its exit code and a description."""
    ours = {signals.LAUNCH: launch, signals.STARTED_BY: str(os.getpid())}
    variables = {**signals.FORWARDS, **signals.WAITS, **os.environ, **ours}
    child, signalled = subprocess.Popen(list(command), env=variables, start_new_session=True), False
    while child.poll() is None:
        time.sleep(_LOOK)
        if stop.name is not None and not signalled:
            child.send_signal(signal.SIGTERM)
            signalled = True
    code = child.returncode
    if code < 0:  # of a SIGTERM it dies only before anything has begun
        stopped = signalled and code == -signal.SIGTERM
        return _STOPPED if stopped else _FAILED, f"killed by {signal.Signals(-code).name}"
    return code if code in _KNOWN else _FAILED, f"ended with code {code}"


def _own(run: RunFolder, launch: str) -> dict[str, Any]:
    """The run's own record of this start; empty where it had no time to write one."""
    with suppress(ElectraError):
        table = read_table(run.path / progress.STATUS)
        return table if table.get("launch") == launch else {}
    return {}


def _step(run: RunFolder, known: int) -> int:
    """The step of the newest checkpoint; the last known one if the folder cannot be read."""
    with suppress(StorageError):  # a failing disk is one of the reasons to restart
        return max((step for step, _ in checkpoint.numbered(run.checkpoints)), default=0)
    return known


def _record(run: RunFolder, launch: str, code: int, why: str, *, wait: float, **facts: int) -> None:
    """Write status.json with the step and the number of starts, if there is a run."""
    table = _own(run, launch)
    if table.get("exit_code") != code:  # it had no time to write how it ended
        state = {0: "done", _STOPPED: "stopped"}.get(code, "failed")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        table = {"state": state, "exit_code": code, "message": why, "time": now, "launch": launch}
    try:
        if run.exists:
            progress.put_status(run, table | facts, wait=wait)
    except StorageError as error:
        tell(str(error))
