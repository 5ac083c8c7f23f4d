"""RUN/status.json: the state of the latest start of a run, or how it ended, for schedulers and for people.

Launchers such as torchrun end with code 1 whatever the exit codes of their processes; the true code is here. Only the holder of the run's lock
writes it, so a start that finds another process at work does not. A file that says `running` with the id of a dead process means it was killed.
"""

import os
import platform
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, StorageError, as_known
from electra_trainer.runs import checkpoint, run_folder, signals

NAME = "status.json"
_SOON = 0.05


class Status:
    """Reports how one start of a run goes: a context manager around it. Rank 0 alone writes, and only where a run has begun.

    Args:
        out: the run folder.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._locked: run_folder.RunFolder | None = None
        """The run's folder once this process has locked it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            signals.end_by_itself()
            self._end("done", 0, "")
        elif isinstance(error, Exception):
            signals.end_by_itself()
            self.failed(as_known(error) or ElectraError(f"{type(error).__name__}: {error}"))

    def running(self, folder: run_folder.RunFolder) -> None:
        """Report that this process, which has locked the run, trains there."""
        self._locked = folder
        self._write(state="running", pid=os.getpid(), host=platform.node())

    def failed(self, error: ElectraError) -> None:
        """Report what ended the run."""
        state = "stopped" if isinstance(error, Interrupted) else "failed"
        self._end(state, error.exit_code, str(error))

    def _end(self, state: str, exit_code: int, message: str) -> None:
        self._write(state=state, exit_code=exit_code, message=message)

    def _write(self, **facts: Any) -> None:
        folder = run_folder.RunFolder(self._out)
        if not (signals.process_leads() and folder.exists):
            return
        saved = checkpoint.numbered(folder.checkpoints)
        step, now = saved[-1][0] if saved else None, time.strftime("%Y-%m-%d %H:%M:%S")
        table = {**facts, "step": step, "time": now, "launch": os.environ.get(signals.LAUNCH)}
        try:
            if self._locked is not None and self._locked.locked:
                self._locked.write_json(NAME, table)
            else:
                put_status(folder, table)
        except StorageError:
            return  # the error that ended the run is reported anyway


def put_status(folder: run_folder.RunFolder, table: dict[str, Any], *, wait: float = 0.0) -> bool:
    """Replace the file, unless another process holds the run.

    Args:
        wait: seconds in which that process may release it.

    Returns:
        Whether it was written.

    Raises:
        StorageError: the disk does not take it.
    """
    end = time.monotonic() + wait
    while True:
        with closing(run_folder.RunFolder(folder.path)) as own:
            try:
                own.open_for_writing()
            except ConfigError:
                if time.monotonic() > end:
                    return False
            else:
                own.write_json(NAME, table)
                return True
        time.sleep(_SOON)
