"""Start a run again when its process dies or hangs: `electra pretrain … --restarts 5`.

The run itself makes this safe: it resumes from its newest verified checkpoint with the same bits. This file only decides when to restart.

- Finished, stopped by a signal, or an error that would recur (bad data, bad settings, diverged): no restart, its exit code is returned.
- Killed, crashed, a disk that failed, out of memory: restart after 1, 2, 4, ... seconds, at most a minute.
- No step for `patience` seconds in one of its processes: kill all, and restart.
- Three starts in a row without a new checkpoint: a crash loop, which ends.
"""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from electra_trainer import errors
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.signals import FOLDER, FORWARDS, LAUNCH, STARTED_BY, STOP, WAITS
from electra_trainer.runs.status import NAME, put_status
from electra_trainer.settings.records import read_table
from electra_trainer.supervise.heartbeats import Signs, signs_folder

_USELESS_AGAIN = (
    errors.DataError,
    errors.CheckpointError,
    errors.MissingInputError,
    errors.Interrupted,
    errors.Diverged,
    errors.ConfigError,
)
FINAL = {0, *(error.exit_code for error in _USELESS_AGAIN), 130}
"""Exit codes after which a restart would end the same way, or is not wanted."""
_KNOWN = {*FINAL, errors.ElectraError.exit_code, errors.StorageError.exit_code}
"""Exit codes of a run. Any other code comes from a launcher, Python or the system, and is mapped to 70."""
_USELESS = 3
"""Starts in a row without a new checkpoint that make a crash loop."""
_UNLOCKED_WITHIN = 2.0
"""Seconds in which killed processes release the run's lock."""
_LOOK = 0.05


@dataclass(frozen=True, kw_only=True)
class Policy:
    """When to restart."""

    restarts: int
    """The most restarts."""
    patience: float = 600.0
    """Seconds without a step after which a process counts as hung; they include start-up, an evaluation and a save."""
    grace: float = 600.0
    """The most seconds that a run has to save and end after a signal."""
    pause: float = 1.0
    """Seconds before the first restart; doubled after each start without a new checkpoint, at most a minute."""

    def __post_init__(self) -> None:
        if self.restarts < 0:
            raise errors.ConfigError(f"--restarts {self.restarts}: expected 0 or more.")
        if not self.patience > 0:
            raise errors.ConfigError(f"--patience {self.patience:g}: expected seconds above 0.")
        if not 0 < self.grace < 1e6:
            raise errors.ConfigError(f"--grace {self.grace:g}: expected seconds above 0, at most 11 days.")


@dataclass(kw_only=True)
class _Supervised:
    command: Sequence[str]
    run: RunFolder
    policy: Policy
    told: str | None = None
    """The signal that asked the supervisor to stop."""
    history: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    """Of the newest known checkpoint."""


def supervise(command: Sequence[str], out: Path, policy: Policy) -> int:
    """Run a command that trains into `out`, and restart it until it ends for good.

    Args:
        command: program and arguments; it may be torchrun with any number of processes on this machine.
        out: the run folder, where status.json records how each start ended.

    Returns:
        The exit code of the run itself (errors.py), also where a launcher in between ends with another.
    """
    supervised = _Supervised(command=command, run=RunFolder(out), policy=policy)
    with _listening(supervised):
        return _until_it_ends(supervised)


@contextmanager
def _listening(supervised: _Supervised) -> Iterator[None]:
    """Note signals that ask to stop: SIGHUP too, unless it is ignored (nohup)."""

    def note(number: int, _: object) -> None:
        supervised.told = signal.Signals(number).name

    hears = [*STOP, *([signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else [])]
    before = {number: signal.signal(number, note) for number in hears}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_it_ends(supervised: _Supervised) -> int:
    policy, useless = supervised.policy, 0
    while True:
        before, launch = _step(supervised), uuid.uuid4().hex
        code, why = _once(supervised, launch)
        step = _step(supervised)
        supervised.history.append({"exit_code": code, "why": why, "step": step})
        useless = 0 if step > before else useless + 1
        left = policy.restarts - len(supervised.history) + 1
        last = code in FINAL or supervised.told is not None or left < 1 or useless >= _USELESS
        _record(supervised, launch, code, why)
        if last:
            if code not in FINAL:
                given_up = "" if supervised.told is not None else f"; giving up after {policy.restarts} restarts"
                if useless >= _USELESS:
                    given_up = f"; giving up after {useless} starts in a row without a new checkpoint"
                errors.tell(f"{why}{given_up}. The same command resumes at step {step:,}.")
            return code
        pause = min(60.0, policy.pause * 2**useless)
        errors.tell(f"{why}; starting again from step {step:,} in {pause:.0f} s ({left} restarts left)")
        end = time.monotonic() + pause
        while time.monotonic() < end and supervised.told is None:
            time.sleep(_LOOK)
        if supervised.told is not None:
            why = f"{supervised.told}: stopped before the next start. The same command resumes."
            _record(supervised, launch, errors.Interrupted.exit_code, why)
            errors.tell(why)
            return errors.Interrupted.exit_code


def _once(supervised: _Supervised, launch: str) -> tuple[int, str]:
    """One start: its exit code, and what happened in words."""
    policy = supervised.policy
    with signs_folder() as folder:
        ours = {LAUNCH: launch, FOLDER: str(folder), STARTED_BY: str(os.getpid())}
        waits = dict.fromkeys(WAITS, str(60 + int(policy.grace)))  # the supervisor ends what is stuck
        try:
            child = subprocess.Popen(
                list(supervised.command), env={**FORWARDS, **waits, **os.environ, **ours}, start_new_session=True
            )
        except OSError as error:
            raise errors.ConfigError(f"{supervised.command[0]}: cannot be started: {error.strerror}.") from None
        signs = Signs(child, folder, supervised.run.checkpoints)
        killed = signs.wait(patience=policy.patience, grace=policy.grace, told=lambda: supervised.told)
        ends, began = signs.ends(), signs.began
    returned = child.returncode
    if killed is not None and supervised.told is None:
        return errors.ElectraError.exit_code, killed
    code = next((end for end in ends if end not in (0, errors.Interrupted.exit_code)), None)
    if code is None:
        code = _own_code(supervised, launch)
    if code is None and (errors.Interrupted.exit_code in ends or (supervised.told is not None and not began)):
        code = errors.Interrupted.exit_code  # it was stopped before there was a run
    if code is None:
        code = returned if returned in _KNOWN else errors.ElectraError.exit_code
    if code in FINAL:
        return code, f"ended with code {code}"
    if killed is not None:
        return code, killed
    how = f"killed by {signal.Signals(-returned).name}" if returned < 0 else f"ended with code {returned}"
    return code, how if code not in ends else f"ended with code {code}"


def _own_code(supervised: _Supervised, launch: str) -> int | None:
    """The exit code that the run itself recorded for this start; None where it had no time to."""
    try:
        table = read_table(supervised.run.path / NAME)
    except errors.ElectraError:
        return None
    code = table.get("exit_code")
    return code if table.get("launch") == launch and isinstance(code, int) else None


def _step(supervised: _Supervised) -> int:
    """The step of the newest checkpoint; the last known one if the folder cannot be read."""
    with suppress(errors.StorageError):  # a failing disk is one of the reasons to restart
        saved = numbered(supervised.run.checkpoints)
        supervised.step = saved[-1][0] if saved else 0
    return supervised.step


def _record(supervised: _Supervised, launch: str, code: int, why: str) -> None:
    """Write status.json with the history of all starts, if there is a run."""
    if not supervised.run.exists:
        return
    try:
        table = read_table(supervised.run.path / NAME)
    except errors.ElectraError:
        table = {}
    if table.get("launch") != launch or table.get("exit_code") != code:  # it had no time to write how it ended
        state = {0: "done", errors.Interrupted.exit_code: "stopped"}.get(code, "failed")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        table = {"state": state, "exit_code": code, "message": why, "step": None, "time": now, "launch": launch}
    table |= {"step": supervised.step, "starts": supervised.history}
    try:
        put_status(supervised.run, table, wait=_UNLOCKED_WITHIN)
    except errors.StorageError as error:
        errors.tell(str(error))
