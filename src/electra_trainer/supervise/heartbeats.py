"""Watch the heartbeats of the processes of one start: each process writes a file when it begins and at each step.

Silence is measured by the supervisor's own monotonic clock from when it saw a file change, so a changed clock or a sleeping laptop
makes no process silent.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from electra_trainer.runs import checkpoint, signals

_PREFIX = "electra-beats-"
_FORGOTTEN = 60.0
"""Seconds after which an unlocked folder counts as left by a killed supervisor."""
_LOOK = 0.05
_QUIET = 120.0
"""Seconds without a step or a save, at least, after which a process that was told to stop counts as stuck."""


@contextmanager
def signs_folder() -> Iterator[Path]:
    """A folder for the heartbeats of one start; folders that killed supervisors left are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            _remove_forgotten(left)
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_forgotten(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        facts = os.fstat(lock)
        if facts.st_uid == os.getuid() and time.time() - facts.st_mtime > _FORGOTTEN:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


class Signs:
    """The processes of one start.

    Args:
        child: the started process: of the run, or a launcher.
        folder: of the heartbeats.
        checkpoints: of the run, where saves in progress are visible.
    """

    def __init__(self, child: subprocess.Popen[bytes], folder: Path, checkpoints: Path) -> None:
        self._child, self._folder, self._checkpoints = child, folder, checkpoints
        self._began = self._now = time.monotonic()
        self._seen: dict[str, tuple[int, float]] = {}
        """By rank: the time of its file, and when that changed by this process's clock."""
        self._longest = 0.0
        """The longest time between two heartbeats of a rank, in seconds."""
        self._told: set[int] = set()

    @property
    def began(self) -> bool:
        """Whether any process began to train."""
        return bool(self._files())

    def wait(self, *, patience: float, grace: float, told: Callable[[], str | None]) -> str | None:
        """Wait for the end, forwarding a signal; no process of the start is left running.

        Args:
            patience: seconds without a step after which a process hangs.
            grace: seconds that processes have at most after a signal.
            told: names the signal that asked to stop, once there was one.

        Returns:
            What had to be killed and why; None where the start ended by itself.
        """
        stopping: float | None = None
        try:
            while self._child.poll() is None:
                time.sleep(_LOOK)
                self._look()
                name = told()
                if name is None:
                    rank, silence = self._most_silent()
                    if silence > patience:
                        return f"process of rank {rank} did no step for {patience:g} s and was killed"
                    continue
                stopping = self._now if stopping is None else stopping
                self._tell()
                if (why := self._stuck(stopping, grace)) is not None:
                    return f"{name}: {why}, and was killed"
            return None
        finally:
            self._kill()

    def ends(self) -> list[int]:
        """Exit codes of the processes, in the order of their ends; killed ones could not write theirs."""
        files = sorted(self._folder.glob(f"*{signals.ENDED}"), key=lambda path: path.stat().st_mtime_ns)
        return [int(text) for path in files if (text := path.read_text()).isdigit()]

    def _stuck(self, stopping: float, grace: float) -> str | None:
        """Why not to wait any longer after the signal, or None; a save in progress is waited for up to `grace`."""
        waited = self._now - stopping
        if waited > grace:
            return f"the run did not end within {grace:g} s"
        quiet = max(_QUIET, 2 * self._longest)
        rank, silence = self._most_silent()
        if min(waited, silence) > quiet and not checkpoint.is_saving(self._checkpoints):
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
        """Whether the id still belongs to the process that wrote the heartbeat: ids are reused. True where there is no /proc to ask."""
        try:
            return os.fsencode(self._folder) in Path(f"/proc/{pid}/environ").read_bytes()
        except FileNotFoundError:
            return not Path("/proc/self/environ").exists()
        except OSError:
            return False

    def _tell(self) -> None:
        """Signal each process once; the launcher only while it has no listening process, since torchrun would kill them after its own time limit."""
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
