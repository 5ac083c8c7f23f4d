"""RUN/status.json: how the latest start of a run goes, or how it ended, for schedulers and for people.

Launchers such as torchrun end with code 1 whatever their processes ended with; the true code is here. Whoever holds the run's lock
writes it, so a start that finds another at work does not. What says `running` with the id of a process that is gone was killed.
"""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, StorageError, as_known
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.signals import LAUNCH, end_by_itself, process_leads

NAME = "status.json"
_SOON = 0.05


class _Kept:
    """The run of this process."""

    wanted = False
    """Whether how it ends will be written, and so how it goes."""
    folder: RunFolder | None = None
    """Where it is, once it began."""


@contextmanager
def status_kept(out: Path) -> Iterator[None]:
    """Write RUN/status.json when the run begins, and when the block ends, however it ends; rank 0 alone, and only where a run has begun."""
    _Kept.wanted = True
    try:
        yield
    except Exception as error:
        end_by_itself()
        write_failed(out, as_known(error) or ElectraError(f"{type(error).__name__}: {error}"))
        raise
    else:
        end_by_itself()
        _write(out, state="done", exit_code=0, message="")
    finally:
        _Kept.wanted, _Kept.folder = False, None


def write_running(folder: RunFolder) -> None:
    """Say that this process, which has locked the run, trains there; nothing outside `status_kept`."""
    if _Kept.wanted:
        _Kept.folder = folder
        _put_facts(folder, {"state": "running", "pid": os.getpid(), "host": platform.node()})


def write_failed(out: Path, error: ElectraError) -> None:
    """Say what ended the run."""
    _write(
        out,
        state="stopped" if isinstance(error, Interrupted) else "failed",
        exit_code=error.exit_code,
        message=str(error),
    )


def put_status(folder: RunFolder, table: dict[str, Any], *, wait: float = 0.0) -> bool:
    """Replace the file, unless another process holds the run.

    Args:
        wait: seconds in which that one may give it back.

    Returns:
        Whether it was written.

    Raises:
        StorageError: the disk does not take it.
    """
    if _Kept.folder is not None and _Kept.folder.locked:
        _Kept.folder.write_json(NAME, table)
        return True
    end = time.monotonic() + wait
    while True:
        with closing(RunFolder(folder.path)) as own:
            try:
                own.open_for_writing()
            except ConfigError:
                if time.monotonic() > end:
                    return False
            else:
                own.write_json(NAME, table)
                return True
        time.sleep(_SOON)


def _write(out: Path, **facts: Any) -> None:
    folder = RunFolder(out)
    if process_leads() and folder.exists:
        _put_facts(folder, facts)


def _put_facts(folder: RunFolder, facts: dict[str, Any]) -> None:
    saved = numbered(folder.checkpoints)
    table = {
        **facts,
        "step": saved[-1][0] if saved else None,
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "launch": os.environ.get(LAUNCH),
    }
    try:
        put_status(folder, table)
    except StorageError:
        return  # what ended the run says so itself, or it ended well
