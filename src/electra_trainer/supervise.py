"""Start a run again when its process dies or hangs: `electra pretrain … --restarts 5`.

The run itself is what makes this safe: it resumes from its newest verified checkpoint to the same bits. Here is only when to try again.

- Ended well, stopped by a signal, or an error that would come again (bad data, bad settings, diverged): no restart, its code is passed on.
- Killed, crashed, a disk that failed, memory that ran out: again, after 1, 2, 4, ... seconds, at most a minute.
- No step for `patience` seconds in one of its processes: all are killed, and again.
- Three starts in a row without a new checkpoint: a crash loop, which ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from electra_trainer.config_io import read_table
from electra_trainer.errors import ConfigError, ElectraError, Interrupted, StorageError
from electra_trainer.train.checkpoint import numbered
from electra_trainer.train.heartbeat import ENDED, FOLDER, LAUNCH
from electra_trainer.train.record import RunFolder
from electra_trainer.train.signals import FORWARDS, STOP
from electra_trainer.train.status import NAME

FINAL = {0, 65, 66, 75, 76, 78, 130}
"""Exit codes after which a restart would end the same way, or is not wanted."""
_USELESS = 3
"""Starts without a new checkpoint that make a crash loop."""
_GRACE = 25.0
"""Seconds that processes have to save after a signal; torchrun gives 30."""
_LOOK = 0.05


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When to start again."""

    restarts: int
    """At most so many."""
    patience: float = 600.0
    """Seconds without a step after which a process counts as hung; starting up, an evaluation and a save are in it."""
    pause: float = 1.0
    """Seconds before the first restart; doubled each time that no checkpoint was gained, at most a minute."""

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise ConfigError(f"--restarts {self.restarts}: expected 0 or more.")
        if not self.patience > 0:
            raise ConfigError(f"--patience {self.patience:g}: expected seconds above 0.")


@dataclass(kw_only=True)
class _Supervised:
    command: Sequence[str]
    run: RunFolder
    policy: Policy
    told: str | None = None
    """The signal that asked the supervisor to stop."""
    history: list[dict[str, Any]] = field(default_factory=list)


def supervise(command: Sequence[str], out: Path, policy: Policy) -> int:
    """Run a command that trains into `out` until it ends for good.

    Args:
        command: program and arguments; it may be torchrun with any number of processes on this machine.
        out: the run folder, where status.json says how each start ended.

    Returns:
        The exit code of the run itself (errors.py), also where a launcher in between ends with another.
    """
    supervised = _Supervised(command=command, run=RunFolder(out), policy=policy)
    before = {number: signal.signal(number, lambda got, _: _tell(supervised, got)) for number in STOP}
    try:
        return _until_it_ends(supervised)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(supervised: _Supervised, number: int) -> None:
    supervised.told = signal.Signals(number).name


def _until_it_ends(supervised: _Supervised) -> int:
    policy, useless = supervised.policy, 0
    while True:
        step = _step(supervised)
        code, why = _once(supervised)
        supervised.history.append({"exit_code": code, "why": why, "step": _step(supervised)})
        useless = 0 if _step(supervised) > step else useless + 1
        left = policy.restarts - len(supervised.history) + 1
        last = code in FINAL or supervised.told is not None or left < 1 or useless >= _USELESS
        _record(supervised, code, why)
        if last:
            if code not in FINAL:
                loop = (
                    f"{useless} starts in a row without a new checkpoint"
                    if useless >= _USELESS
                    else f"{policy.restarts} restarts"
                )
                _say(f"{why}; giving up after {loop}. The same command goes on from step {_step(supervised):,}.")
            return code
        pause = min(60.0, policy.pause * 2**useless)
        _say(f"{why}; starting again from step {_step(supervised):,} in {pause:.0f} s ({left} restarts left)")
        end = time.monotonic() + pause
        while time.monotonic() < end and supervised.told is None:
            time.sleep(_LOOK)
        if supervised.told is not None:
            return 75


def _once(supervised: _Supervised) -> tuple[int, str]:
    """One start: its exit code, and what happened in words."""
    launch, beats = uuid.uuid4().hex, Path(tempfile.mkdtemp(prefix="electra-beats-"))
    environment = {**FORWARDS, **os.environ, LAUNCH: launch, FOLDER: str(beats)}
    try:
        child = subprocess.Popen(list(supervised.command), env=environment, start_new_session=True)
    except OSError as error:
        raise ConfigError(f"{supervised.command[0]}: cannot be started: {error.strerror}.") from None
    try:
        hung = _watch(supervised, child, beats)
        ends, began = _ends(beats), bool(_beats(beats))
    finally:
        shutil.rmtree(beats, ignore_errors=True)
    returned = child.returncode
    if hung is not None:
        return ElectraError.exit_code, f"process {hung} did no step for {supervised.policy.patience:g} s and was killed"
    code = next((end for end in ends if end not in (0, Interrupted.exit_code)), None)
    if code is None:
        code = _own_code(supervised, launch)
    if code is None and (Interrupted.exit_code in ends or (supervised.told is not None and not began)):
        code = Interrupted.exit_code  # it was stopped before there was a run
    if code is None:
        code = returned if returned >= 0 else ElectraError.exit_code
    if returned < 0 and code not in FINAL:
        return code, f"killed by {signal.Signals(-returned).name}"
    return code, f"ended with code {code}"


def _ends(beats: Path) -> list[int]:
    """The codes that processes ended with, in the order in which they did; those that were killed had no time to say one."""
    files = sorted(beats.glob(f"*{ENDED}"), key=lambda path: path.stat().st_mtime_ns)
    return [int(text) for path in files if (text := path.read_text()).isdigit()]


def _beats(beats: Path) -> list[Path]:
    """The signs of life, one of each process that began."""
    return [path for path in beats.iterdir() if path.suffix != ENDED]


def _watch(supervised: _Supervised, child: subprocess.Popen[bytes], beats: Path) -> str | None:
    """Wait for the end; the rank that hung, if one did. Nothing of it is left running."""
    began, stopping = time.time(), None
    try:
        while child.poll() is None:
            time.sleep(_LOOK)
            if supervised.told is not None and stopping is None:
                stopping = time.time()
                _signal_all(child, beats, signal.SIGTERM)
            if stopping is not None and time.time() - stopping > _GRACE:
                return None
            slowest, beat = _longest_silent(beats, began)
            if stopping is None and time.time() - beat > supervised.policy.patience:
                return slowest
        return None
    finally:
        _signal_all(child, beats, signal.SIGKILL)
        child.wait()


def _longest_silent(beats: Path, began: float) -> tuple[str, float]:
    """The rank whose last step is longest ago, and when that was; before any step the start counts."""
    times = [(f"of rank {path.name}", path.stat().st_mtime) for path in _beats(beats)]
    return min(times, key=lambda pair: pair[1], default=("of rank 0", began))


def _signal_all(child: subprocess.Popen[bytes], beats: Path, number: signal.Signals) -> None:
    """To the process, and to those that a launcher started in sessions of their own."""
    pids = [int(text) for path in _beats(beats) if (text := path.read_text()).isdigit()]
    if child.poll() is None:
        pids.append(child.pid)
    for pid in dict.fromkeys(pids):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _own_code(supervised: _Supervised, launch: str) -> int | None:
    """What the run itself said of this start; None where it had no time to."""
    try:
        table = read_table(supervised.run.path / NAME)
    except ElectraError:
        return None
    code = table.get("exit_code")
    return code if table.get("launch") == launch and isinstance(code, int) else None


def _step(supervised: _Supervised) -> int:
    saved = numbered(supervised.run.checkpoints)
    return saved[-1][0] if saved else 0


def _record(supervised: _Supervised, code: int, why: str) -> None:
    """status.json with the history of all starts, where a run is."""
    if not supervised.run.exists:
        return
    try:
        table = read_table(supervised.run.path / NAME)
    except ElectraError:
        table = {"launch": None}
    if table.get("exit_code") != code:  # it had no time to write how it ended
        state = "stopped" if code == Interrupted.exit_code else "failed"
        table |= {"state": state, "message": why, "time": time.strftime("%Y-%m-%d %H:%M:%S")}
    try:
        supervised.run.write_json(
            NAME, {**table, "exit_code": code, "step": _step(supervised), "starts": supervised.history}
        )
    except StorageError as error:
        _say(str(error))


def _say(line: str) -> None:
    print(f"electra: {line}", file=sys.stderr, flush=True)
