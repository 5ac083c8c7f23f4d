"""Start a run again when its process dies or hangs: `electra pretrain … --restarts 5`.

The run itself makes this safe: it resumes from its newest verified checkpoint with the same bits. This file only
decides when to restart.

- Finished, stopped by a signal, or an error that would recur (bad data, bad settings, diverged): no restart, its exit
code is returned.
- Killed, crashed, a disk that failed, out of memory: restart after 1, 2, 4, ... seconds, at most a minute.
- No step for `patience` seconds in one of its processes: kill all, and restart.
- Three starts in a row without a new checkpoint: a crash loop, which ends.

Each process of a start writes a heartbeat, a file, when it begins and at each step. Silence is measured by the
supervisor's own monotonic clock from when it saw a file change, so a changed clock or a sleeping laptop makes no
process silent.
"""

import math
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from electra_trainer import errors
from electra_trainer.files.durable import scratch
from electra_trainer.runs import checkpoint, progress, run_folder, signals
from electra_trainer.settings.records import read_table

_LOOK = 0.05
_QUIET = 120.0
"""Seconds without a step or a save, at least, after which a process that was told to stop counts as stuck."""


class Signs:
    """The processes of one start.

    Args:
        child: the started process: of the run, or a launcher.
        folder: of the heartbeats.
        supervised: the run, its policy, and the signal that asked to stop.
    """

    def __init__(self, child: subprocess.Popen[bytes], folder: Path, supervised: "_Supervised") -> None:
        self._child, self._folder, self._supervised = child, folder, supervised
        self._began = self._now = time.monotonic()
        self._seen: dict[str, tuple[int, float]] = {}
        """Heartbeats by rank: the time of its file, and when that changed by this process's clock."""
        self._longest = 0.0
        """The longest time between two heartbeats of a rank, in seconds."""
        self._told: set[int] = set()

    @property
    def began(self) -> bool:
        """Whether any process began to train."""
        return bool(self._files())

    def wait(self) -> str | None:
        """Wait for the end, forwarding a signal; no process of the start is left running.

        Returns:
            What had to be killed and why; None where the start ended by itself.
        """
        stopping, patience = math.inf, self._supervised.policy.patience
        try:
            while self._child.poll() is None:
                time.sleep(_LOOK)
                self._look()
                if (name := self._supervised.reported) is not None:
                    stopping = min(stopping, self._now)
                    self._tell()
                    if (why := self._stuck(stopping)) is not None:
                        return f"{name}: {why}, and was killed"
                elif self._most_silent()[1] > patience:
                    return f"process of rank {self._most_silent()[0]} did no step for {patience:g} s and was killed"
            return None
        finally:
            self._kill()

    def ends(self) -> list[int]:
        """Exit codes of the processes, in the order of their ends; killed ones could not write theirs."""
        files = sorted(self._folder.glob(f"*{signals.ENDED}"), key=lambda path: path.stat().st_mtime_ns)
        return [int(text) for path in files if (text := path.read_text()).isdigit()]

    def _stuck(self, stopping: float) -> str | None:
        """Why not to wait any longer after the signal, or None; a save in progress is waited for up to `grace`."""
        waited, grace = self._now - stopping, self._supervised.policy.grace
        if waited > grace:
            return f"the run did not end within {grace:g} s"
        quiet = max(_QUIET, 2 * self._longest)
        rank, silence = self._most_silent()
        if min(waited, silence) > quiet and not checkpoint.is_saving(self._supervised.run.checkpoints):
            return f"process of rank {rank} showed no sign of life for {quiet:.0f} s"
        return None

    def _look(self) -> None:
        self._now = time.monotonic()
        for path in self._files():
            with suppress(OSError):
                time_of_file = path.stat().st_mtime_ns
                before, when = self._seen.get(path.name, (None, self._began))
                if before != time_of_file:
                    self._seen[path.name] = (time_of_file, self._now)
                    self._longest = max(self._longest, self._now - when)

    def _most_silent(self) -> tuple[str, float]:
        """The rank that has been silent longest, and the seconds since its last heartbeat, or since the start."""
        rank, (_, when) = min(self._seen.items(), key=lambda item: item[1][1], default=("0", (0, self._began)))
        return rank, self._now - when

    def _files(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if path.suffix != signals.ENDED]

    def _pids(self) -> list[int]:
        pids = [int(text) for path in self._files() if (text := path.read_text()).isdigit()]
        return [pid for pid in pids if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        """Whether the id still belongs to the process that wrote the heartbeat: ids are reused. True where there is no
        /proc to ask.
        """
        try:
            return os.fsencode(self._folder) in Path(f"/proc/{pid}/environ").read_bytes()
        except FileNotFoundError:
            return not Path("/proc/self/environ").exists()
        except OSError:
            return False

    def _tell(self) -> None:
        """Signal each process once; the launcher only while it has no listening process, since torchrun would kill them
        after its own time limit.
        """
        pids = self._pids()
        if not pids and not self._told:
            pids = [self._child.pid]
        for pid in set(pids) - self._told:
            self._told.add(pid)
            _send(pid, signal.SIGTERM)

    def _kill(self) -> None:
        """Kill everything: the started process, and what a launcher started in separate sessions."""
        for pid in self._pids():
            _send(pid, signal.SIGKILL)
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


_STOPPED = errors.Interrupted.exit_code
_RECUR = (errors.DataError, errors.CheckpointError, errors.MissingInputError, errors.Diverged, errors.ConfigError)
FINAL = {0, *(error.exit_code for error in _RECUR), _STOPPED, 130}
"""Exit codes after which a restart would end the same way, or is not wanted."""
_KNOWN = {*FINAL, errors.ElectraError.exit_code, errors.StorageError.exit_code}
"""Exit codes of a run. Any other code comes from a launcher, Python or the system, and is mapped to 70."""
_USELESS = 3
"""Starts in a row without a new checkpoint that make a crash loop."""
_UNLOCKED_WITHIN = 2.0
"""Seconds in which killed processes release the run's lock."""


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
    run: run_folder.RunFolder
    policy: Policy
    stop: signals.StopRequest
    history: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    """Step of the newest known checkpoint."""

    @property
    def reported(self) -> str | None:
        """The signal that asked the supervisor to stop."""
        return self.stop.name


def supervise(command: Sequence[str], out: Path, policy: Policy) -> int:
    """Run a command that trains into `out`, and restart it until it ends for good.

    Args:
        command: program and arguments; it may be torchrun with any number of processes on this machine.
        out: the run folder, where status.json records how each start ended.

    Returns:
        The exit code of the run itself (errors.py), also where a launcher in between ends with another.
    """
    with signals.StopRequest(quiet=True) as stop:
        return _until_it_ends(_Supervised(command=command, run=run_folder.RunFolder(out), policy=policy, stop=stop))


def _until_it_ends(supervised: _Supervised) -> int:
    policy, useless = supervised.policy, 0
    while True:
        before, launch = _step(supervised), uuid.uuid4().hex
        code, why = _once(supervised, launch)
        step = _step(supervised)
        supervised.history.append({"exit_code": code, "why": why, "step": step})
        useless = 0 if step > before else useless + 1
        left = policy.restarts - len(supervised.history) + 1
        last = code in FINAL or supervised.reported is not None or left < 1 or useless >= _USELESS
        _record(supervised, launch, code, why)
        if last:
            ending = f"; giving up after {policy.restarts} restarts" if supervised.reported is None else ""
            if useless >= _USELESS:
                ending = f"; giving up after {useless} starts in a row without a new checkpoint"
            if code not in FINAL:
                errors.tell(f"{why}{ending}. The same command resumes at step {step:,}.")
            return code
        pause = min(60.0, policy.pause * 2**useless)
        errors.tell(f"{why}; starting again from step {step:,} in {pause:.0f} s ({left} restarts left)")
        end = time.monotonic() + pause
        while time.monotonic() < end and supervised.reported is None:
            time.sleep(_LOOK)
        if supervised.reported is not None:
            why = f"{supervised.reported}: stopped before the next start. The same command resumes."
            _record(supervised, launch, _STOPPED, why)
            errors.tell(why)
            return _STOPPED


def _once(supervised: _Supervised, launch: str) -> tuple[int, str]:
    """One start: its exit code, and what happened in words."""
    with scratch() as folder:
        ours = {signals.LAUNCH: launch, signals.FOLDER: str(folder), signals.STARTED_BY: str(os.getpid())}
        # longer than the grace: the supervisor ends what is stuck
        waits = dict.fromkeys(signals.WAITS, str(60 + int(supervised.policy.grace)))
        try:
            variables = {**signals.FORWARDS, **waits, **os.environ, **ours}
            child = subprocess.Popen(list(supervised.command), env=variables, start_new_session=True)
        except OSError as error:
            raise errors.ConfigError(f"{supervised.command[0]}: cannot be started: {error.strerror}.") from None
        signs = Signs(child, folder, supervised)
        killed, ends, began = signs.wait(), signs.ends(), signs.began
    returned = child.returncode
    if killed is not None and supervised.reported is None:
        return errors.ElectraError.exit_code, killed
    own = _status(supervised)
    code = next((end for end in ends if end not in (0, _STOPPED)), None)
    if code is None and own.get("launch") == launch and isinstance(own.get("exit_code"), int):
        code = own["exit_code"]
    if code is None and (_STOPPED in ends or (supervised.reported is not None and not began)):
        code = _STOPPED  # it was stopped before there was a run
    if code is None:
        code = returned if returned in _KNOWN else errors.ElectraError.exit_code
    if code in FINAL:
        return code, f"ended with code {code}"
    if killed is not None:
        return code, killed
    how = f"killed by {signal.Signals(-returned).name}" if returned < 0 else f"ended with code {returned}"
    return code, how if code not in ends else f"ended with code {code}"


def _status(supervised: _Supervised) -> dict[str, Any]:
    """Record of the run's latest start; empty where it had no time to."""
    try:
        return read_table(supervised.run.path / progress.STATUS)
    except errors.ElectraError:
        return {}


def _step(supervised: _Supervised) -> int:
    """The step of the newest checkpoint; the last known one if the folder cannot be read."""
    with suppress(errors.StorageError):  # a failing disk is one of the reasons to restart
        saved = checkpoint.numbered(supervised.run.checkpoints)
        supervised.step = saved[-1][0] if saved else 0
    return supervised.step


def _record(supervised: _Supervised, launch: str, code: int, why: str) -> None:
    """Write status.json with the history of all starts, if there is a run."""
    if not supervised.run.exists:
        return
    table = _status(supervised)
    if table.get("launch") != launch or table.get("exit_code") != code:  # it had no time to write how it ended
        state = {0: "done", _STOPPED: "stopped"}.get(code, "failed")
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        table = {"state": state, "exit_code": code, "message": why, "step": None, "time": now, "launch": launch}
    table |= {"step": supervised.step, "starts": supervised.history}
    try:
        progress.put_status(supervised.run, table, wait=_UNLOCKED_WITHIN)
    except errors.StorageError as error:
        errors.tell(str(error))
