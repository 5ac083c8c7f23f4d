"""The files next to the rows that say which documents a row is from.

documents.jsonl      the names of the corpus files, one JSON string a line
train.documents      an entry a document, in the order of the rows; valid.documents the same

A document's pieces follow one another, so an entry holds where it begins, as a position in all rows (row times
sequence_length plus column), and the next entry where it ends; then the file's line in documents.jsonl from 0, and
number, first and last line in that file.
Entries are in blocks of up to 256: a header (count, the bytes that the numbers of each column take, each column's first
number),
then for each column the differences from one entry to the next. Nothing is held in memory but a block and where each
begins.
"""

import json
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.text_files import Place
from electra_trainer.errors import DataError, storage_error
from electra_trainer.files import durable, reading

NAMES = "documents.jsonl"
_ENTRIES = 256
_COLUMNS = 5  # position, file, number, first line, lines after it
_HEADER = struct.Struct(f"<H{_COLUMNS}B{_COLUMNS}q")
_KINDS = {0: "", 1: "<i1", 2: "<i2", 4: "<i4", 8: "<i8"}
_LONGEST_NAME = 1 << 16
"""Bytes of a line of documents.jsonl; a path has up to 4,096, each of up to 6 in JSON."""
DAMAGED = "It is damaged; prepare again with --overwrite."
Entries = NDArray[np.int64]
"""[documents, 5]"""


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """Another file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DocumentFiles:
    """The files that say which documents the rows are from: see documents.py."""

    names: FileInfo
    train: FileInfo
    valid: FileInfo


class DocumentsWriter:
    """Writes the files as documents come, in the order of the rows of each split; OSError as the system gives it."""

    def __init__(self, folder: Path) -> None:
        self._splits = {split: durable.HashedFile(folder / f"{split}.documents") for split in ("train", "valid")}
        self._files = {**self._splits, "names": durable.HashedFile(folder / NAMES)}
        self._entries: dict[str, list[tuple[int, ...]]] = {split: [] for split in self._splits}
        self._known: dict[str, int] = {}

    def add(self, split: str, start: int, place: Place) -> None:
        """A document that begins at position `start` of all rows of a split."""
        if place.file not in self._known:
            self._known[place.file] = len(self._known)
            self._files["names"].write(json.dumps(place.file).encode() + b"\n")
        entries = self._entries[split]
        entries.append((start, self._known[place.file], place.number, place.line, place.last - place.line))
        if len(entries) == _ENTRIES:
            self._flush(split)

    def _flush(self, split: str) -> None:
        if self._entries[split]:
            self._splits[split].write(encode(np.array(self._entries[split], dtype=np.int64)))
            self._entries[split] = []

    def close(self) -> DocumentFiles:
        """Force the files onto the disk; returns their entries in the manifest."""
        for split in self._splits:
            self._flush(split)
        closed = {name: file.close() for name, file in self._files.items()}
        return DocumentFiles(**{name: FileInfo(bytes=size, sha256=digest) for name, (size, digest) in closed.items()})

    def abandon(self) -> None:
        """Close without entries."""
        for file in self._files.values():
            file.abandon()


def encode(entries: Entries) -> bytes:
    """A block."""
    steps = np.diff(entries, axis=0).T
    widths = [_width(column) for column in steps]
    header = _HEADER.pack(len(entries), *widths, *entries[0].tolist())
    columns = (column.astype(_KINDS[width]).tobytes() for column, width in zip(steps, widths, strict=True) if width)
    return header + b"".join(columns)


def _width(column: NDArray[np.int64]) -> int:
    """Bytes that hold each of these numbers."""
    if not column.any():
        return 0
    least, most = int(column.min()), int(column.max())
    return next(width for width in (1, 2, 4, 8) if -(1 << 8 * width - 1) <= least and most < 1 << 8 * width - 1)


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
        self._offsets: list[int] = []
        self._first: list[int] = []
        try:
            size = self._path.stat().st_size
            with self._path.open("rb") as file:
                offset = 0
                while offset < size:
                    file.seek(offset)
                    count, widths, first = self._header(file, offset)
                    self._offsets.append(offset)
                    self._first.append(first[0])
                    offset += _HEADER.size + (count - 1) * sum(widths)
        except OSError as error:
            raise storage_error(error, self._path) from None
        if offset != size:
            raise self._damaged(offset)
        if self._first[:1] != [0] or any(one >= other for one, other in pairwise(self._first)):
            raise self._damaged(0)

    def row(self, index: int) -> list[Passage]:
        """The passages of a row, in order; DataError, StorageError as above."""
        begin = index * self._length
        end = begin + self._length
        entries = self._between(begin, end)
        files = self._named({int(entry[1]) for entry in entries[:-1]})
        return [
            Passage(
                place=Place(files[int(file)], int(number), int(line), int(line) + int(more)),
                begin=max(int(start), begin) - begin,
                end=min(int(following), end) - begin,
                start=int(start),
            )
            for (start, file, number, line, more), following in zip(entries[:-1], entries[1:, 0], strict=True)
        ]

    def all(self) -> Iterator[tuple[int, Place]]:
        """Every document of the split: where it begins, as a position in all rows, and its place; DataError,
        StorageError as above.
        """
        names: dict[int, str] = {}
        try:
            with self._path.open("rb") as file:
                for offset in self._offsets:
                    entries = self._decoded(file, offset)
                    if wanted := {int(one) for one in entries[:, 1]} - names.keys():
                        names |= self._named(wanted)
                    for start, name, number, line, more in entries.tolist():
                        yield start, Place(names[name], number, line, line + more)
        except OSError as error:
            raise storage_error(error, self._path) from None

    def _between(self, begin: int, end: int) -> Entries:
        """Entries that overlap [begin, end), plus the next one, which marks where the last ends."""
        found: list[Entries] = []
        last = bisect_right(self._first, begin) - 1
        try:
            with self._path.open("rb") as file:
                while last < len(self._first) and (not found or self._first[last] < end):
                    found.append(self._decoded(file, self._offsets[last]))
                    last += 1
        except OSError as error:
            raise storage_error(error, self._path) from None
        entries = np.concatenate([*found, np.array([[self._size, 0, 0, 0, 0]])])
        starts = entries[:, 0]
        if (np.diff(starts) <= 0).any() or (entries[:, 1:] < 0).any():
            raise self._damaged(self._offsets[last - 1])
        return entries[np.searchsorted(starts, begin, "right") - 1 : np.searchsorted(starts, end, "left") + 1]

    def _header(self, file: IO[bytes], offset: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        data = file.read(_HEADER.size)
        if len(data) < _HEADER.size:
            raise self._damaged(offset)
        count, *rest = _HEADER.unpack(data)
        widths, first = tuple(rest[:_COLUMNS]), tuple(rest[_COLUMNS:])
        if not 1 <= count <= _ENTRIES or not _KINDS.keys() >= set(widths):
            raise self._damaged(offset)
        return count, widths, first

    def _decoded(self, file: IO[bytes], offset: int) -> Entries:
        file.seek(offset)
        count, widths, first = self._header(file, offset)
        entries = np.zeros((count, _COLUMNS), dtype=np.int64)
        for column, width in enumerate(widths):
            data = file.read((count - 1) * width)
            if len(data) != (count - 1) * width:
                raise self._damaged(offset)
            if width:
                entries[1:, column] = np.frombuffer(data, _KINDS[width])
        entries[0] = first
        return entries.cumsum(axis=0)

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
                        found[number] = self._name(line, number + 1)
        except OSError as error:
            raise storage_error(error, self._names) from None
        if found.keys() != wanted:
            raise DataError(f"{self._names}: lacks line {max(wanted) + 1:,}. {DAMAGED}")
        return found

    def _name(self, line: bytes, number: int) -> str:
        try:
            name = reading.json_value(line)
        except reading.NotJson as error:
            raise DataError(f"{self._names}:{number}: is {error}. {DAMAGED}") from None
        if not isinstance(name, str):
            raise DataError(f"{self._names}:{number}: expected the name of a file. {DAMAGED}")
        return name

    def _damaged(self, offset: int) -> DataError:
        return DataError(f"{self._path}: byte {offset:,} does not begin a list of documents. {DAMAGED}")
