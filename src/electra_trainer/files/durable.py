"""Write files that are whole after a power cut: written, forced onto the disk, and renamed into place.

Every change is one call of a function of `os`, so that a test can end the process, fail the disk or cut the power at
each.

Temporary names have one pattern, `.electra-tmp-XXXXXXXX`: a file that its process holds locked, alone or with the
folders next to it that begin with its name. `sweep` removes those that nobody holds, and everything that writes sweeps
first, so a killed process leaves nothing for long, and a process at work loses nothing.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from electra_trainer.errors import ConfigError, storage_error
from electra_trainer.files.reading import here

Content = bytes | Iterable[bytes | memoryview]
"""Content of a file: all of it, or one piece after another."""
_PIECE = 1 << 24
"""Bytes that are handed to the system at once."""


def pieces(content: Content) -> Iterable[bytes | memoryview]:
    """One after another."""
    return (content,) if isinstance(content, bytes) else content


def sync(descriptor: int) -> None:
    """Wait until the disk has a file. Raises OSError. On macOS `os.fsync` is content with the disk's own memory, which
    a power cut empties.
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        with suppress(OSError):  # some file systems have only the other one
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def write_durably(path: Path, content: Content) -> None:
    """Write a file, not through a link, and wait until the disk has it. Raises OSError as the system gives it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, content)
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: Content) -> None:
    """Write all bytes, in as many pieces as the system takes. Raises OSError."""
    for piece in pieces(content):
        view = memoryview(piece)
        while view:
            view = view[os.write(descriptor, view[:_PIECE]) :]


class HashedFile:
    """A new file, in place of any of that name, that knows its hash from memory. Raises OSError."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)  # a link would be written through
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._stream: IO[bytes] = os.fdopen(descriptor, "wb")
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Append."""
        self._stream.write(data)
        self._digest.update(data)

    def close(self) -> tuple[int, str]:
        """Wait until the disk has it; returns its bytes and its SHA-256 as hexadecimal digits."""
        self._stream.flush()
        sync(self._stream.fileno())
        size = self._stream.tell()
        self._stream.close()
        return size, self._digest.hexdigest()

    def abandon(self) -> None:
        """Close without a hash."""
        self._stream.close()


_TEMPORARY = re.compile(r"(\.electra-tmp-[0-9a-f]{8})(?:\.new|\.old\.(.+))?", re.DOTALL)
"""A file, which is also the lock of `.new`, a folder to be renamed, and `.old.NAME`, the folder NAME that it
replaces.
"""


def replace_durably(path: Path, content: Content) -> None:
    """Write a file in place of another: at any moment the old or the new one is there, whole. Raises StorageError."""
    try:
        sweep(path.parent)
        with _held(path.parent) as temporary:
            write_durably(temporary, content)
            temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from None


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Path of a folder to be made next to `out`, which it becomes at the end of the block; one that is there is removed
    then. OSError.

    After an error nothing is left, and an earlier `out` is untouched.
    """
    with _held(out.parent) as lock:
        new, old = lock.with_name(f"{lock.name}.new"), lock.with_name(f"{lock.name}.old.{out.name}")
        try:
            yield new
            if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
                out.rmdir()
            elif out.exists():
                out.rename(old)
            new.rename(out)
            sync_folder(out.parent)
        finally:
            _clear(lock)


@contextmanager
def scratch(place: Path | None = None) -> Iterator[Path]:
    """A folder for the length of a block.

    Args:
        place: where it is made; None: in the system's folder for temporary files.
    """
    place = place or Path(tempfile.gettempdir())
    sweep(place)
    with _held(place) as lock:
        folder = lock.with_name(f"{lock.name}.new")
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            _clear(lock)


@contextmanager
def _held(folder: Path) -> Iterator[Path]:
    """A new file with a temporary name, locked until the block ends, removed after an error. Raises OSError."""
    while True:
        path = folder / f".electra-tmp-{uuid.uuid4().hex[:8]}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a file system without locks: `sweep` removes nothing there
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            break
        os.close(descriptor)  # swept before it was locked
    try:
        yield path
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def is_temporary(name: str) -> bool:
    """Whether a name is one of this program's temporary files and folders."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(folder: Path, *, deep: bool = False) -> None:
    """Remove what killed processes left in a folder, `deep`: also below it. Files that a living process holds stay.

    A folder that was about to be replaced gets its name back. What cannot be read or removed stays, without an error.
    """
    for place, folders, files in os.walk(folder):
        for name in {found[1] for name in (*folders, *files) if (found := _TEMPORARY.fullmatch(name))}:
            with suppress(OSError):
                _sweep(Path(place, name))
        folders[:] = [name for name in folders if deep and not is_temporary(name)]


def _sweep(lock: Path) -> None:
    """Remove a temporary file and its folders if nobody holds it. Raises OSError."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # whoever makes the folders makes it before and removes it after them
        _clear(lock)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _clear(lock)
    finally:
        os.close(descriptor)


def _clear(lock: Path) -> None:
    """Remove a temporary file after its folders. Raises OSError. A folder that was replaced by nothing gets its name
    back.
    """
    for place in lock.parent.iterdir():
        found = _TEMPORARY.fullmatch(place.name)
        if found is None or found[1] != lock.name or place == lock:
            continue
        if found[2] and not os.path.lexists(lock.with_name(found[2])):
            place.rename(lock.with_name(found[2]))
        elif place.is_symlink():
            place.unlink()
        else:
            shutil.rmtree(place, ignore_errors=True)
    lock.unlink(missing_ok=True)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that a user named, and the folder that it is in. Raises StorageError."""
    try:
        make_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path, writing=True) from None
    replace_durably(path, content)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, and wait until the disk has the names of those that are new. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder. Raises OSError."""
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Wait until the disk has what was written to a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def lock(path: Path, *, patience: float = 0.0) -> int | None:
    """Open a file, new or old, and hold it locked until the descriptor is closed or the process ends. None: another
    one held it for `patience` seconds. StorageError: among others that the file system has no locks.
    """
    deadline = time.monotonic() + patience
    try:
        while True:
            descriptor = here(str(path), os.O_WRONLY | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except (BlockingIOError, FileNotFoundError):  # held, or removed by whoever held it
                pass
            except OSError:
                os.close(descriptor)
                path.unlink()
                raise
            os.close(descriptor)
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)
    except OSError as error:
        raise storage_error(error, path.parent, writing=True) from None


BRIEF = 1.0
"""Seconds in which `sweep` lets go of a lock, and the worker of a killed command ends."""
_mine: ContextVar[frozenset[Path]] = ContextVar("_mine", default=frozenset())
"""Outputs that blocks of `alone` hold here."""


@contextmanager
def alone(out: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold an output, a file or a folder, for the length of a block, within which it may be held again.

    The lock is a temporary file next to `out`; in it, if it is a mounted volume, which may have other names
    elsewhere, or only that can be written. Where neither can there is none, and whoever writes reports it.

    Args:
        patience: seconds to wait for another command, but at least `BRIEF`.

    Raises:
        ConfigError: another command is at work there. StorageError: the file system has no locks.
    """
    real = Path(os.path.realpath(out))
    with suppress(OSError):
        make_folder(real.parent)
    places = (real, real.parent) if os.path.ismount(real) else (real.parent, real)
    place = next((one for one in places if one.is_dir() and os.access(one, os.W_OK | os.X_OK)), None)
    if real in _mine.get() or place is None:
        yield
        return
    path = place / f".electra-tmp-{hashlib.sha256(os.fsencode(real.name)).hexdigest()[:8]}"
    if (held := lock(path, patience=max(patience, BRIEF))) is None:
        raise ConfigError(f"--out {out}: another command is at work there. Wait for it or stop it.")
    token = _mine.set(_mine.get() | {real})
    try:
        yield
    finally:
        _mine.reset(token)
        with suppress(OSError):
            path.unlink()
        os.close(held)


def open_lock(
    folder: Path, *, markers: set[str], what: str, before: Collection[str] = (), patience: float = 0.0
) -> IO[str]:
    """Create the folder and hold it until the returned file is closed.

    Args:
        markers: the files that together show that a `what` has begun there.
        before: what it writes before those; a folder with a lock file and no more than that was left by a killed
            process.
        patience: seconds to wait for whoever holds it.

    Raises:
        ConfigError: it is held, or holds something else. StorageError: it cannot be written or locked.
    """
    path = folder / ".lock"
    with alone(folder, patience=patience):
        try:
            make_folder(folder)
            begun = path.exists()
            if (held := lock(path, patience=patience)) is None:
                who = "process is training" if what == "run" else "command is at work"
                raise ConfigError(f"--out {folder}: another {who} there. Wait for it or stop it.")
            there = {one.name for one in folder.iterdir() if not one.name.startswith(".")}
            if not markers <= there and (foreign := there - set(before if begun else ())):
                os.close(held)
                if not begun:
                    path.unlink()
                raise ConfigError(
                    f"--out {folder}: the folder holds {min(foreign)!r} and no {what}. Choose a new or empty folder."
                )
            return os.fdopen(held, "w")
        except OSError as error:
            raise storage_error(error, folder, writing=True) from None
