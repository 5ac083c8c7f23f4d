"""Write files that are whole after a power cut: written, forced onto the disk, and renamed into place.

Every change is one call of a function of `os`, so that a test can end the process, fail the disk or cut the power at each.
"""

import fcntl
import hashlib
import os
import re
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from electra_trainer.errors import ConfigError, storage_error
from electra_trainer.files.reading import here

Content = bytes | Iterable[bytes | memoryview]
"""Of a file: all of it, or one piece after another."""
_PIECE = 1 << 24
"""Bytes that are handed to the system at once."""


def pieces(content: Content) -> Iterable[bytes | memoryview]:
    """One after another."""
    return (content,) if isinstance(content, bytes) else content


def sync(descriptor: int) -> None:
    """Wait until the disk has a file; OSError. On macOS `os.fsync` is content with the disk's own memory, which a power cut empties."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):  # some file systems have only the other one
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def write_durably(path: Path, content: Content) -> None:
    """Write a new file and wait until the disk has it; OSError as the system gives it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, content)
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: Content) -> None:
    """Write all bytes, in as many pieces as the system takes; OSError."""
    for piece in pieces(content):
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view[:_PIECE]) :]


class HashedFile:
    """A new file, in place of any of that name, that knows its hash from memory; OSError as the system gives it."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # a link would be written through
        self._stream: IO[bytes] = path.open("xb")
        self._digest = hashlib.sha256()
        self._bytes = 0

    def write(self, data: bytes) -> None:
        """Append."""
        self._stream.write(data)
        self._digest.update(data)
        self._bytes += len(data)

    def close(self) -> tuple[int, str]:
        """Wait until the disk has it; returns its bytes and its SHA-256 as hexadecimal digits."""
        self._stream.flush()
        sync(self._stream.fileno())
        self._stream.close()
        return self._bytes, self._digest.hexdigest()

    def abandon(self) -> None:
        """Close without a hash."""
        self._stream.close()


def replace_durably(path: Path, content: Content) -> None:
    """Write a file in place of another: at any moment the old or the new one is there, whole; StorageError."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        write_durably(temporary, content)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise storage_error(error, path) from None


def remove_unfinished(folder: Path) -> None:
    """Remove what `replace_durably` left in a folder when the process was killed in it; nobody else may write there meanwhile."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{8}", path.name) and path.is_file():
            path.unlink(missing_ok=True)


def write_folder_durably(folder: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder if needed and write files into it, in place of those of the same name. StorageError."""
    try:
        make_folder(folder)
        remove_unfinished(folder)
    except OSError as error:
        raise storage_error(error, folder, writing=True) from None
    for name, content in files.items():
        replace_durably(folder / name, content)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user named, and the folder that it is in; StorageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, path, writing=True) from None
    replace_durably(path, content)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and wait until the disk has the names of those that are new; OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder; OSError."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Wait until the disk has what was written to a file; OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def open_lock(folder: Path, *, markers: set[str], what: str, before: Collection[str] = ()) -> IO[str]:
    """Create the folder and open its lock file. The caller takes the lock.

    Args:
        markers: the files that together show that a `what` has begun there.
        before: what it writes before those; a folder with a lock file and no more than that was left by a killed process.

    Raises:
        ConfigError: the folder holds something else. StorageError: it cannot be written.
    """
    lock = folder / ".lock"
    try:
        make_folder(folder)
        there = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        foreign = there - set(before) if lock.exists() else there
        if foreign and not markers <= there:
            raise ConfigError(
                f"--out {folder}: the folder holds {min(foreign)!r} and no {what}. Choose a new or empty folder."
            )
        return open(lock, "w", opener=here)
    except OSError as error:
        raise storage_error(error, folder, writing=True) from None
