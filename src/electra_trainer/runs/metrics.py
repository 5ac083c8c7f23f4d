"""The rows of a run: metrics.jsonl and examples.jsonl, one JSON object a line.

When a run resumes from a checkpoint, the rows of later steps are dropped, since they will be computed again. The file
may be anybody's: pipes and devices are refused without waiting, it is read a line at a time, and no line that may
predate the checkpoint is dropped merely because it is unreadable.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from electra_trainer.files import durable, reading
from electra_trainer.runs.run_folder import EXAMPLES, METRICS, RunFolder

_LONGEST = 1 << 24
"""Bytes beyond which a line is not a row."""
_PIECE = 1 << 20


class Metrics:
    """Records the rows of a run, on disk before the checkpoint that follows (`RunFolder.sync_rows`).

    Args:
        warn: shows a person one line and logs it.
    """

    def __init__(self, folder: RunFolder, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn

    def write(self, row: dict[str, Any]) -> None:
        """Record a row: `step`, metrics by name, and `split` if they are held-out."""
        self._folder.append(METRICS, row)

    def write_examples(self, row: dict[str, Any]) -> None:
        """Record held-out examples: `step` and `rows`."""
        self._folder.append(EXAMPLES, row)

    def forget_after(self, step: int) -> None:
        """Drop the rows after `step`, and warn of lines that cannot be read.

        Raises:
            DataError: a file is not a regular one, or over a gigabyte. StorageError: it cannot be read or written.
        """
        for path in (self._folder.path / METRICS, self._folder.path / EXAMPLES):
            if not os.path.lexists(path):
                continue
            kept = truncated(path, step)
            durable.replace_durably(path, kept.content)
            if kept.unreadable or kept.lost:
                self._warn(
                    f"{path}: DAMAGED. Of the lines up to step {step:,}, {kept.unreadable:,} cannot be read and stay "
                    f"as they are; after them {kept.lost:,} unreadable lines were dropped. Restore the file from a "
                    "backup, or delete such lines."
                )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The part of a metrics file that is kept."""

    content: Iterator[bytes]
    """Its bytes, once."""
    unreadable: int
    """Lines of these that cannot be read."""
    lost: int
    """Unreadable lines after the last valid row. They are dropped, because they may belong to steps after the
    checkpoint.
    """


def readable_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file that can be read, if there is one. Raises DataError or StorageError if it is not a regular
    file or cannot be read.
    """
    if os.path.lexists(path):
        with _opened(path) as file:
            yield from (row for _, row, _ in _lines(file) if row is not None)


def curves(path: Path) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """The numbers of the readable rows of training and of held-out rows, each by step; of a step that was logged twice
    the later row. Fine-tuning also records dev by epoch, which is left out. Errors as of `readable_rows`.
    """
    found: dict[bool, dict[float, dict[str, float]]] = {False: {}, True: {}}
    for value in readable_rows(path):
        row = {n: one for n, one in value.items() if type(one) is float or (type(one) is int and abs(one) < 1e300)}
        if "step" in row and value.get("split") in (None, "valid"):
            found[value.get("split") == "valid"][row["step"]] = row
    train, valid = ([rows[step] for step in sorted(rows)] for rows in found.values())
    return train, valid


def truncated(path: Path, step: int) -> Kept:
    """The file without rows after `step`. An unreadable line is kept only if a later line belongs to `step` or earlier.

    Raises:
        DataError: it is not a regular file, or over a gigabyte. StorageError: the disk does not give it.
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
    return os.fdopen(reading.open_regular(path, limit=reading.MOST_TEXT), "rb")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, dict[str, Any] | None, bool]]:
    """The length of each line, its row (None where it holds none), and whether it ends with a newline, as a line cut
    short does not.
    """
    while line := file.readline(_LONGEST):
        length, row = len(line), _row(line)
        while not line.endswith(b"\n") and (line := file.readline(_LONGEST)):
            length, row = length + len(line), None
        yield length, row, line.endswith(b"\n")


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = reading.json_value(line)
    except reading.NotJson:
        return None
    placed = isinstance(row, dict) and type(row.get("step")) in (int, float) and row["step"] >= 0  # not NaN
    return row if placed else None


def _content(path: Path, last: int, step: int) -> Iterator[bytes]:
    """The lines of the first `last` bytes, without rows after `step`; a newline is added where the last line lacks
    one.
    """
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
