"""Places of the documents in the rows: which files, lines and positions a row is from.

documents.jsonl      the names of the corpus files, one JSON string a line
train.documents      an entry a document, in the order of the rows; valid.documents the same

An entry is five little-endian int64: where the document begins, as a position in all rows (row times sequence_length
plus column), the file's line in documents.jsonl from 0, its number there, its first line, the lines after it. A
document ends where the next entry begins.
"""

import json
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from electra_trainer.data.text_files import Place
from electra_trainer.errors import DataError, storage_error
from electra_trainer.files import durable, reading

NAMES = "documents.jsonl"
_ENTRY = struct.Struct("<5q")
_LONGEST_NAME = 1 << 16
"""Bytes of a line of documents.jsonl; a path has up to 4,096, each of up to 6 in JSON."""
DAMAGED = "It is damaged; prepare again with --overwrite."


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Size and hash of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DocumentFiles:
    """Entries in the manifest of the files that say which documents the rows are from."""

    names: FileInfo
    train: FileInfo
    valid: FileInfo


class DocumentsWriter:
    """Writes the files as documents come, in the order of the rows of each split; OSError as the system gives it."""

    def __init__(self, folder: Path) -> None:
        self._files = {split: durable.HashedFile(folder / f"{split}.documents") for split in ("train", "valid")}
        self._files["names"] = durable.HashedFile(folder / NAMES)
        self._known: dict[str, int] = {}

    def add(self, split: str, start: int, place: Place) -> None:
        """Add a document that begins at position `start` of all rows of a split."""
        if place.file not in self._known:
            self._known[place.file] = len(self._known)
            self._files["names"].write(json.dumps(place.file).encode() + b"\n")
        number = self._known[place.file]
        self._files[split].write(_ENTRY.pack(start, number, place.number, place.line, place.last - place.line))

    def close(self) -> DocumentFiles:
        """Force the files onto the disk; returns their entries in the manifest."""
        closed = {name: file.close() for name, file in self._files.items()}
        return DocumentFiles(**{name: FileInfo(bytes=size, sha256=digest) for name, (size, digest) in closed.items()})

    def abandon(self) -> None:
        """Close without entries."""
        for file in self._files.values():
            file.abandon()


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A document's part of a row."""

    place: Place
    begin: int
    """Its first column."""
    end: int
    """The column after its last; padding at the end of the row is within."""
    start: int
    """Where the document begins, as a position in all rows of the split."""


class RowDocuments:
    """The documents of one split's rows.

    Args:
        folder: of the store.
        split: train or valid.
        sequence_length: tokens a row.
        rows: in the split.

    Raises:
        DataError: the file is damaged. StorageError: it cannot be read.
    """

    def __init__(self, folder: Path, split: str, *, sequence_length: int, rows: int) -> None:
        self._names, self._path = folder / NAMES, folder / f"{split}.documents"
        self._length, self._size = sequence_length, sequence_length * rows
        try:
            size = self._path.stat().st_size
            if not size or size % _ENTRY.size:
                raise DataError(f"{self._path}: has {size:,} bytes, not a list of documents. {DAMAGED}")
            self._entries: Any = np.memmap(self._path, "<i8", mode="r").reshape(-1, 5)
        except OSError as error:
            raise storage_error(error, self._path) from None

    def row(self, index: int) -> list[Passage]:
        """The passages of a row, in order; DataError, StorageError as above."""
        begin, end = index * self._length, (index + 1) * self._length
        first = bisect_right(self._entries, begin, key=_start) - 1
        last = bisect_left(self._entries, end, lo=max(first, 0), key=_start)
        entries = self._entries[max(first, 0) : last + 1].tolist()
        if last == len(self._entries):
            entries.append([self._size, 0, 0, 0, 0])
        if first < 0 or min(map(min, entries)) < 0 or any(one[0] >= other[0] for one, other in pairwise(entries)):
            raise DataError(f"{self._path}: the documents of row {index:,} are not in order. {DAMAGED}")
        files = self._named({entry[1] for entry in entries[:-1]})
        return [
            Passage(
                place=Place(files[file], number, line, line + more),
                begin=max(start, begin) - begin,
                end=min(following, end) - begin,
                start=start,
            )
            for (start, file, number, line, more), (following, *_) in pairwise(entries)
        ]

    def all(self) -> Iterator[tuple[int, Place]]:
        """Every document of the split: its first position in all rows, and its place; errors as above."""
        names: dict[int, str] = {}
        for first in range(0, len(self._entries), 1000):
            entries = self._entries[first : first + 1000].tolist()
            if wanted := {entry[1] for entry in entries} - names.keys():
                names |= self._named(wanted)
            for start, name, number, line, more in entries:
                yield start, Place(names[name], number, line, line + more)

    def _named(self, wanted: set[int]) -> dict[int, str]:
        """Names of files, read line by line up to the last that is wanted."""
        found: dict[int, str] = {}
        try:
            with self._names.open("rb") as file:
                for number in range(max(wanted) + 1):
                    line = file.readline(_LONGEST_NAME)
                    if not line.endswith(b"\n"):
                        break
                    if number in wanted:
                        where = f"{self._names}:{number + 1}"
                        name = reading.parse_json(line, where=where, remedy=DAMAGED)
                        if not isinstance(name, str):
                            raise DataError(f"{where}: expected the name of a file. {DAMAGED}")
                        found[number] = name
        except OSError as error:
            raise storage_error(error, self._names) from None
        if found.keys() != wanted:
            raise DataError(f"{self._names}: lacks line {max(wanted) + 1:,}. {DAMAGED}")
        return found


def _start(entry: Any) -> int:
    return int(entry[0])
