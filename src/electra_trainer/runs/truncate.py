"""Rows of a .jsonl file that stand beyond a checkpoint are taken back, since their steps will be done again.

The file may be anybody's: pipes and devices are refused without waiting, it is read a line at a time, and no line that could be of
before the checkpoint goes only because it cannot be read.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from electra_trainer.files.reading import MOST_TEXT, NotJson, json_value, open_regular

_LONGEST = 1 << 24
"""Bytes of a line beyond which it is no row."""
_PIECE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What of a file stays."""

    content: Iterator[bytes]
    """Its bytes, once."""
    unreadable: int
    """Lines of these that cannot be read."""
    lost: int
    """Whole lines behind them that cannot be read and do not stay: nothing says that they are of before the checkpoint."""


def readable_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file that can be read, if there is one; DataError, StorageError: it is no regular file or cannot be had."""
    if os.path.lexists(path):
        with _opened(path) as file:
            yield from (row for _, row, _ in _lines(file) if row is not None)


def take_back(path: Path, step: int) -> Kept:
    """What stays of a file when all rows beyond `step` go. A line that cannot be read stays where a row of such a step comes after it.

    Raises:
        DataError: no regular file, or over a gigabyte. StorageError: the disk does not give it.
    """
    at = last = unreadable = waiting = 0
    with _opened(path) as file:
        for length, row, ended in _lines(file):
            at += length
            if row is None:
                waiting += ended
            elif row["step"] <= step:
                last, unreadable, waiting = at, unreadable + waiting, 0
    return Kept(content=_content(path, last, step), unreadable=unreadable, lost=waiting)


def _opened(path: Path) -> IO[bytes]:
    return os.fdopen(open_regular(path, limit=MOST_TEXT), "rb")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any] | None, bool]]:
    """Of each line its length, the row that it holds or None, and whether it has an end, as one that was cut short has not."""
    while line := file.readline(_LONGEST):
        length, row = len(line), _row(line)
        while not line.endswith(b"\n") and (line := file.readline(_LONGEST)):
            length, row = length + len(line), None
        yield length, row, line.endswith(b"\n")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json_value(line)
    except NotJson:
        return None
    placed = isinstance(row, dict) and type(row.get("step")) in (int, float) and row["step"] >= 0  # not NaN
    return row if placed else None


def _content(path: Path, last: int, step: int) -> Iterator[bytes]:
    """The lines of the first `last` bytes, but for rows beyond the step; the last of them ends as lines do."""
    with _opened(path) as file, _opened(path) as again:
        for length, row, ended in _lines(file):
            if last <= 0:
                return
            last -= length
            if row is not None and row["step"] > step:
                again.seek(length, os.SEEK_CUR)
                continue
            while piece := again.read(min(length, _PIECE)):
                length -= len(piece)
                yield piece
            if not ended:
                yield b"\n"
