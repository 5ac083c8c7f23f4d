"""Every change of files, one at a time, before it is done: a test may end the process, fail the disk or note it there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATCHED = ("open", "close", "write", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "ftruncate")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One change that is about to be made."""

    name: str
    """open (for writing), read (open for reading), write, fsync, rename, unlink, mkdir, rmdir or ftruncate."""
    path: str
    target: str = ""
    """Target of a rename."""
    content: bytes = b""
    """Bytes of a write."""
    size: int = 0
    """Length of an ftruncate."""
    flags: int = 0
    """Flags of an open."""
    saving: bool = False
    """Done by the thread that writes checkpoints."""


class Operations:
    """Context manager: while it is active, `meet` hears of each change under `root` before it is made.

    Args:
        meet: may raise what the system would raise, or end the process; for a write it may return how many bytes the system takes.
        reads: hear of files opened for reading as well.
        sync: False: fsync is met and left out, where only the process dies.
    """

    def __init__(
        self, root: Path, meet: Callable[[Operation], int | None], *, reads: bool = False, sync: bool = True
    ) -> None:
        self._root, self._meet, self._reads, self._sync = str(root.resolve()), meet, reads, sync
        self._real: dict[str, Callable[..., Any]] = {}
        self._paths: dict[int, str] = {}

    def __enter__(self) -> Operations:
        self._real = {name: getattr(os, name) for name in PATCHED}
        for name in PATCHED:
            setattr(os, name, getattr(self, f"_{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _place(self, path: Any, dir_fd: int | None = None) -> str:
        if isinstance(path, int):
            return self._paths.get(path, "")
        folder = self._paths.get(dir_fd, "") if dir_fd is not None else str(Path.cwd())
        return os.path.join(folder, os.fspath(path))

    def _tell(self, name: str, path: str, **more: Any) -> int | None:
        if path != self._root and not path.startswith(self._root + os.sep):
            return None
        saving = threading.current_thread().name == "electra-save"
        return self._meet(Operation(name=name, path=path, saving=saving, **more))

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        place = self._place(path, dir_fd)
        if flags & _WRITES:
            self._tell("open", place, flags=flags)
        elif self._reads:
            self._tell("read", place)
        descriptor: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        self._paths[descriptor] = place
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        self._real["close"](descriptor)

    def _write(self, descriptor: int, content: Any) -> int:
        if descriptor not in self._paths:
            return int(self._real["write"](descriptor, content))
        taken = self._tell("write", self._paths[descriptor], content=bytes(content))
        return int(self._real["write"](descriptor, content if taken is None else content[:taken]))

    def _fsync(self, descriptor: int) -> None:
        self._tell("fsync", self._paths.get(descriptor, ""))
        if self._sync:
            self._real["fsync"](descriptor)

    def _ftruncate(self, descriptor: int, size: int) -> None:
        self._tell("ftruncate", self._paths.get(descriptor, ""), size=size)
        self._real["ftruncate"](descriptor, size)

    def _rename(self, path: Any, target: Any) -> None:
        self._tell("rename", self._place(path), target=self._place(target))
        self._real["rename"](path, target)

    def _replace(self, path: Any, target: Any) -> None:
        self._tell("rename", self._place(path), target=self._place(target))
        self._real["replace"](path, target)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._tell("unlink", self._place(path, dir_fd))
        self._real["unlink"](path, dir_fd=dir_fd)

    def _mkdir(self, path: Any, mode: int = 0o777) -> None:
        self._tell("mkdir", self._place(path))
        self._real["mkdir"](path, mode)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._tell("rmdir", self._place(path, dir_fd))
        self._real["rmdir"](path, dir_fd=dir_fd)


def die() -> None:
    """End as by SIGKILL: no thread does anything more."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing(at: int, *, torn: bool = False) -> Callable[[Operation], int | None]:
    """Die before the `at`-th operation, from 1; `torn`: in the `at`-th write, half of its bytes written."""
    count, half = iter(range(1, 1 << 30)), []

    def meet(operation: Operation) -> int | None:
        if half:
            die()
        if (torn and operation.name != "write") or next(count) != at:
            return None
        if not torn:
            die()
        half.append(True)
        return len(operation.content) // 2

    return meet
