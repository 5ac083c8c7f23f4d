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

from electra_trainer import errors
from electra_trainer.runs import checkpoint, progress, run_folder, signals
from electra_trainer.settings.records import read_table

_LOOK = 0.05
_FAILED, _STOPPED = errors.ElectraError.exit_code, errors.Interrupted.exit_code
_RECUR = (errors.DataError, errors.CheckpointError, errors.MissingInputError, errors.Diverged, errors.ConfigError)
FINAL = {0, *(error.exit_code for error in _RECUR), _STOPPED, 130}
"""Exit codes after which a restart would end the same way, or is not wanted."""
_KNOWN = {*FINAL, _FAILED, errors.StorageError.exit_code}
"""Exit codes of a run. Any other code comes from a launcher, Python or the system, and is mapped to 70."""
_USELESS = 3
"""Starts in a row without a new checkpoint that make a crash loop."""
_UNLOCKED_WITHIN = 2.0
"""Seconds in which a process that has ended releases the run's lock."""
_SAVED_WITHIN = 600.0
"""Seconds in which the processes of a launcher that was killed save and release the run's lock."""


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
    run, starts, useless = run_folder.RunFolder(out), list[dict[str, Any]](), 0
    step = _step(run, 0)
    with signals.StopRequest(quiet=True) as stop:
        while True:
            launch = uuid.uuid4().hex
            code, why = _once(command, stop, launch)
            own = _status(run, launch)
            if code == _STOPPED:  # a launcher does not know whether the run saved before it ended
                code = own.get("exit_code", _FAILED if own else _STOPPED)
            before, step = step, _step(run, step)
            useless = 0 if step > before else useless + 1
            starts.append({"exit_code": code, "why": why, "step": step})
            left, stopped = restarts - len(starts) + 1, stop.name is not None
            final = code in FINAL or stopped or left < 1 or useless >= _USELESS
            _record(run, launch, code, why, starts, wait=_UNLOCKED_WITHIN if final else _SAVED_WITHIN)
            if final:
                ending = "" if stopped else f"; giving up after {restarts} restarts"
                if useless >= _USELESS:
                    ending = f"; giving up after {useless} starts in a row without a new checkpoint"
                if code not in FINAL:
                    errors.tell(f"{why}{ending}. The same command resumes at step {step:,}.")
                return code
            seconds = min(60.0, pause * 2**useless)
            errors.tell(f"{why}; starting again from step {step:,} in {seconds:.0f} s ({left} restarts left)")
            end = time.monotonic() + seconds
            while time.monotonic() < end and stop.name is None:
                time.sleep(_LOOK)
            if stop.name is not None:
                why = f"{stop.name}: stopped before the next start. The same command resumes."
                _record(run, launch, _STOPPED, why, starts, wait=_UNLOCKED_WITHIN)
                errors.tell(why)
                return _STOPPED


def _once(command: Sequence[str], stop: signals.StopRequest, launch: str) -> tuple[int, str]:
    """Run one start and pass a signal on to it; return its exit code and a description."""
    ours = {signals.LAUNCH: launch, signals.STARTED_BY: str(os.getpid())}
    variables = {**signals.FORWARDS, **signals.WAITS, **os.environ, **ours}
    try:
        child = subprocess.Popen(list(command), env=variables, start_new_session=True)
    except OSError as error:
        raise errors.ConfigError(f"{command[0]}: cannot be started: {error.strerror}.") from None
    signalled = False
    while child.poll() is None:
        time.sleep(_LOOK)
        if stop.name is not None and not signalled:
            child.send_signal(signal.SIGTERM)
            signalled = True
    code = child.returncode
    if code < 0:  # of a SIGTERM it dies only before anything has begun
        name = signal.Signals(-code).name
        return _STOPPED if signalled and -code == signal.SIGTERM else _FAILED, f"killed by {name}"
    return code if code in _KNOWN else _FAILED, f"ended with code {code}"


def _status(run: run_folder.RunFolder, launch: str) -> dict[str, Any]:
    """The run's own record of this start; empty where it had no time to write one."""
    with suppress(errors.ElectraError):
        table = read_table(run.path / progress.STATUS)
        return table if table.get("launch") == launch else {}
    return {}


def _step(run: run_folder.RunFolder, known: int) -> int:
    """The step of the newest checkpoint; the last known one if the folder cannot be read."""
    with suppress(errors.StorageError):  # a failing disk is one of the reasons to restart
        saved = checkpoint.numbered(run.checkpoints)
        return saved[-1][0] if saved else 0
    return known


def _record(
    run: run_folder.RunFolder, launch: str, code: int, why: str, starts: list[dict[str, Any]], *, wait: float
) -> None:
    """Write status.json with the history of all starts, if there is a run."""
    if not run.exists:
        return
    table = _status(run, launch)
    if table.get("exit_code") != code:  # it had no time to write how it ended
        state = {0: "done", _STOPPED: "stopped"}.get(code, "failed")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        table = {"state": state, "exit_code": code, "message": why, "time": now, "launch": launch}
    try:
        progress.put_status(run, table | {"step": starts[-1]["step"], "starts": starts}, wait=wait)
    except errors.StorageError as error:
        errors.tell(str(error))
