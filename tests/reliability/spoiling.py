"""Ways to spoil an input: things that are no files, and sound folders with one file changed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Make = Callable[[Path, Path], None]
"""(the place to fill, the folder of sound inputs)."""
Content = bytes | Callable[[bytes], bytes] | Make


def put(place: Path, content: Any, good: Path) -> None:
    """Fill a place with bytes, or as a function does it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        content(place, good)


def pipe(place: Path, _: Path) -> None:
    os.mkfifo(place)


def plug(place: Path, _: Path) -> None:
    where = os.getcwd()
    os.chdir(place.parent)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(place.name)
    os.chdir(where)


def circle(place: Path, _: Path) -> None:
    place.symlink_to(place.name)


def folder(place: Path, _: Path) -> None:
    place.mkdir()


def link(target: str) -> Make:
    return lambda place, _: place.symlink_to(target)


def nothing(place: Path, _: Path) -> None:
    pass


def sparse(size: int) -> Make:
    """NULs that take no room on the disk."""

    def make(place: Path, _: Path) -> None:
        with place.open("wb") as file:
            file.truncate(size)

    return make


def line_of(size: int) -> Make:
    """One line of letters without an end."""

    def make(place: Path, _: Path) -> None:
        with place.open("wb") as file:
            for _part in range(size >> 20):
                file.write(b"a" * (1 << 20))

    return make


def bomb(begin: bytes, fill: bytes, size: int) -> Make:
    """A gzip file that unpacks to `size` bytes."""

    def make(place: Path, _: Path) -> None:
        megabyte = gzip.compress(fill * (1 << 20), compresslevel=1)  # a file may be many of them, one after another
        place.write_bytes(gzip.compress(begin) + megabyte * (size >> 20))

    return make


def spoilt(name: str, inner: str, change: Any) -> Make:
    """A sound folder with one file replaced by bytes, changed by a function of its bytes, or made by a `Make`."""

    def make(place: Path, good: Path) -> None:
        shutil.copytree(good / name, place)
        path = place / inner
        before = path.read_bytes() if path.is_file() else b""
        path.unlink(missing_ok=True)
        put(path, change(before) if getattr(change, "of_bytes", False) else change, good)

    return make


def of_bytes(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    change.of_bytes = True  # type: ignore[attr-defined]
    return change


def fields(**changes: Any) -> Callable[[bytes], bytes]:
    """JSON with fields changed, those of inner tables by `outer__inner`; None takes a field away."""

    def change(content: bytes) -> bytes:
        table = json.loads(content)
        for name, value in changes.items():
            *outer, last = name.split("__")
            inner = table
            for step in outer:
                inner = inner[step]
            if value is None:
                del inner[last]
            else:
                inner[last] = value
        return json.dumps(table).encode()

    return of_bytes(change)


def cut(share: float) -> Callable[[bytes], bytes]:
    return of_bytes(lambda content: content[: int(len(content) * share)])


DEEP = b"[" * 100_000 + b"]" * 100_000
LONG_NUMBER = b"9" * 10_000
