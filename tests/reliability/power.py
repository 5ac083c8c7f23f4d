"""States that a power cut may leave of a series of file operations: names and bytes in memory, and those that the disk surely has.

A file's bytes are sure after its fsync; a name (made, renamed or removed) after the fsync of the folder that it is in. What is not sure
may be there, be gone, be half there, or be there as garbage.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.reliability.operations import Operation

KINDS = ("all", "lost", "half", "garbage", "undone", "least")
"""all: everything has arrived. lost, half, garbage: names have, bytes that are not sure have not, by half, or are noise.
undone: bytes have, names that are not sure have not. least: only what is sure."""


@dataclass
class File:
    now: bytes = b""
    sure: bytes = b""


@dataclass
class Folder:
    now: dict[str, File | Folder] = field(default_factory=dict)
    sure: dict[str, File | Folder] = field(default_factory=dict)


class Disk:
    """A folder as a file system has it; what is in it at first is sure."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._top = _read(self._root)

    def apply(self, operation: Operation) -> None:
        """Make one change."""
        folder, name = self._find(operation.path)
        if operation.name == "fsync":
            node = folder.now[name] if name else folder
            node.sure = dict(node.now) if isinstance(node, Folder) else node.now  # type: ignore[assignment]
        elif operation.name == "mkdir":
            folder.now[name] = Folder()
        elif operation.name == "rename":
            target, new = self._find(operation.target)
            target.now[new] = folder.now.pop(name)
        elif operation.name in ("unlink", "rmdir"):
            del folder.now[name]
        else:
            node = folder.now.setdefault(name, File())
            assert isinstance(node, File)
            if operation.name == "write":
                node.now += operation.content
            elif operation.name == "ftruncate":
                node.now = node.now[: operation.size]
            elif operation.flags & os.O_TRUNC:
                node.now = b""

    def write(self, place: Path, kind: str, *, seed: int) -> None:
        """Make the folder that is found after a power cut now."""
        _write(self._top, place, kind, random.Random(seed))

    def _find(self, path: str) -> tuple[Folder, str]:
        """The folder that a path is in, and its name there; the root has none."""
        parts = Path(path).relative_to(self._root).parts
        folder = self._top
        for part in parts[:-1]:
            inner = folder.now[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, parts[-1] if parts else ""


def disks(root: Disk, operations: Iterable[Operation]) -> Iterable[Disk]:
    """States of the disk before the first operation and after each."""
    yield root
    for operation in operations:
        root.apply(operation)
        yield root


def _read(path: Path) -> Folder:
    nodes: dict[str, File | Folder] = {}
    for entry in path.iterdir():
        nodes[entry.name] = _read(entry) if entry.is_dir() else File(entry.read_bytes(), entry.read_bytes())
    return Folder(nodes, dict(nodes))


def _write(folder: Folder, place: Path, kind: str, noise: random.Random) -> None:
    place.mkdir()
    names = folder.sure if kind in ("undone", "least") else folder.now
    for name, node in names.items():
        if isinstance(node, Folder):
            _write(node, place / name, kind, noise)
        else:
            (place / name).write_bytes(_bytes(node, kind, noise))


def _bytes(file: File, kind: str, noise: random.Random) -> bytes:
    if kind in ("all", "undone"):
        return file.now
    if kind in ("lost", "least"):
        return file.sure
    known = file.sure if file.now.startswith(file.sure) else b""
    unsure = file.now[len(known) :]
    kept = unsure[: len(unsure) // 2]
    return known + kept + (noise.randbytes(len(unsure) - len(kept)) if kind == "garbage" else b"")
