"""Files that are whole after a power cut: written, forced onto the disk, and renamed into place."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import IO

from electra_trainer.errors import ConfigError, storage_error


def write_durably(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it; OSError as the system gives it."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, content: bytes) -> None:
    """Write a file in place of another: at any moment the old or the new one is there, whole; StorageError."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write_durably(temporary, content)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise storage_error(error, path) from None


def write_output(path: Path, content: bytes) -> None:
    """Write what a person asked for where they asked for it, its folder too; StorageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path, writing=True) from None
    replace_durably(path, content)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder; OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_lock(folder: Path, *, marker: str, what: str) -> IO[str]:
    """Make a folder and open its lock file, which is not locked yet.

    Args:
        marker: the file that says that a `what` has begun there.

    Raises:
        ConfigError: the folder holds something else. StorageError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if foreign and marker not in foreign:
            raise ConfigError(
                f"--out {folder}: the folder holds {foreign[0]!r} and no {what}. Choose a new or empty folder."
            )
        return (folder / ".lock").open("w")
    except OSError as error:
        raise storage_error(error, folder, writing=True) from None
