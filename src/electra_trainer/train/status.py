"""RUN/status.json: how the latest start of a run ended, for schedulers and for people.

Launchers such as torchrun end with code 1 whatever their processes ended with; the true code is here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from electra_trainer.errors import ElectraError, Interrupted, StorageError, as_known
from electra_trainer.train.checkpoint import numbered
from electra_trainer.train.distributed import process_leads
from electra_trainer.train.heartbeat import LAUNCH
from electra_trainer.train.record import RunFolder
from electra_trainer.train.signals import end_by_itself

NAME = "status.json"


@contextmanager
def status_kept(out: Path) -> Iterator[None]:
    """Write RUN/status.json when the block ends, however it ends; rank 0 alone, and only where a run has begun."""
    try:
        yield
    except Exception as error:
        end_by_itself()
        write_failed(out, as_known(error) or ElectraError(f"{type(error).__name__}: {error}"))
        raise
    end_by_itself()
    _write(out, state="done", exit_code=0, message="")


def write_failed(out: Path, error: ElectraError) -> None:
    """Say what ended the run."""
    _write(
        out,
        state="stopped" if isinstance(error, Interrupted) else "failed",
        exit_code=error.exit_code,
        message=str(error),
    )


def _write(out: Path, **facts: Any) -> None:
    folder = RunFolder(out)
    if not process_leads() or not folder.exists:
        return
    saved = numbered(folder.checkpoints)
    table = {
        **facts,
        "step": saved[-1][0] if saved else None,
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "launch": os.environ.get(LAUNCH),
    }
    try:
        folder.write_json(NAME, table)
    except StorageError:
        return  # what ended the run says so itself, or it ended well
