"""The rows of a run: metrics.jsonl and examples.jsonl, one JSON object a line.

When a run resumes from a checkpoint, the rows of later steps are dropped, since they will be computed again. The file
may be anybody's: pipes and devices are refused without waiting, and no line that may predate the checkpoint is dropped
merely because it is unreadable.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from electra_trainer.files import durable, reading
from electra_trainer.runs.run_folder import EXAMPLES, METRICS, RunFolder


def forget_after(folder: RunFolder, step: int, warn: Callable[[str], None]) -> None:
    """Drop the rows of a run after `step`, and warn of lines that cannot be read.

    Raises:
        DataError: a file is not a regular one, or over a gigabyte. StorageError: it cannot be read or written.
    """
    for path in (folder.path / METRICS, folder.path / EXAMPLES):
        if not os.path.lexists(path):
            continue
        kept, unreadable, lost = truncated(path, step)
        durable.replace_durably(path, kept)
        if unreadable or lost:
            warn(
                f"{path}: DAMAGED. Of the lines up to step {step:,}, {unreadable:,} cannot be read and stay as they "
                f"are; after them {lost:,} unreadable lines were dropped. Restore the file from a backup, or delete "
                "such lines."
            )


def readable_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file that can be read, if there is one. Raises DataError or StorageError if it is not a regular
    file or cannot be read.
    """
    if os.path.lexists(path):
        yield from (row for line in _lines(path) if (row := _row(line)) is not None)


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


def truncated(path: Path, step: int) -> tuple[bytes, int, int]:
    """The file without rows after `step`; how many unreadable lines stay in it, since a later line belongs to `step` or
    earlier; and how many at its end are dropped, because they may belong to later steps.

    Raises:
        DataError: it is not a regular file, or over a gigabyte. StorageError: the disk does not give it.
    """
    rows = [(line, _row(line)) for line in _lines(path)]
    end = max((at for at, (_, row) in enumerate(rows, 1) if row is not None and row["step"] <= step), default=0)
    kept = [line for line, row in rows[:end] if row is None or row["step"] <= step]
    unreadable, lost = (sum(row is None for _, row in some) for some in (rows[:end], rows[end:]))
    return b"".join(line + b"\n" for line in kept), unreadable, lost


def _lines(path: Path) -> list[bytes]:
    """The lines of a file; one at its end that was cut short is left out."""
    *lines, last = reading.read_file(path, limit=reading.MOST_TEXT).split(b"\n")
    return [*lines, last] if _row(last) is not None else lines


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = reading.json_value(line)
    except reading.NotJson:
        return None
    placed = isinstance(row, dict) and type(row.get("step")) in (int, float) and row["step"] >= 0  # not NaN
    return row if placed else None
