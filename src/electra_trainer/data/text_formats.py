"""Texts of files that hold records: .csv, .tsv, WET, Parquet, Arrow. Readers yield each value with its line or row.

A value is a text, or None where a row has none. Files are read piece by piece.
"""

from collections.abc import Callable, Iterator
from typing import IO, Any

from electra_trainer.data import columnar, remote
from electra_trainer.data.bounds import LINE, Bound
from electra_trainer.data.text_files import TextFile, beginning, unpacked
from electra_trainer.errors import DataError
from electra_trainer.files import kinds, reading, tables

Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
_LONGEST = 1 << 24
"""Characters of a field: it is held whole."""
_LONGEST_PAGE = 1 << 26
"""Bytes of a WET record with its header."""
_NO_READER = {
    ".parquet": "a Parquet file",
    ".arrow": "an Arrow file",
    ".feather": "an Arrow file",
    ".wet": "a WET file",
}


def records(file: TextFile, column: str, tick: Tick) -> Values | None:
    """The values of a file of records; None if it holds lines of text, or JSON lines.

    Args:
        file: recognised by how it begins, and by its name where that does not say it.
        column: of .csv, .tsv, Parquet and Arrow.
        tick: for progress.

    Raises:
        DataError: a kind of file that is not read, with what to do; damaged; there is not such a column.
        ConfigError: the extra [hub] is missing. MissingInputError, StorageError: cannot be read.
    """
    head = beginning(file)
    kind = kinds.kind_of(head, str(file).removesuffix(file.compression))
    if kind in columnar.FORMATS and not file.compression:
        return columnar.arrow_texts(file, column, tick, kind)
    if kind is kinds.WARC:
        return wet_texts(file, tick)
    if kind is None and file.suffix in _NO_READER:
        raise DataError(f"{file}: is not {_NO_READER[file.suffix]}, though it is named so. Fetch or write it again.")
    if kind is None and file.suffix in (".csv", ".tsv"):
        return table_texts(file, column, tick)
    kind = kind or kinds.unlike_text(head, is_whole=len(head) < kinds.HEAD, is_json=file.suffix in JSON_LINES)
    if kind is not None:
        raise DataError(kind.refusal(str(file)))
    return None


def table_texts(file: TextFile, column: str, tick: Tick) -> Values:
    """A column of a .csv or .tsv, with each row's first line; DataError as `tables.stream` says, or there is not such a
    column.
    """
    bound = Bound(str(file), file.size)

    def add(line: bytes) -> None:
        bound.add(len(line), least=LINE)

    with unpacked(file) as (stream, position):
        lines = reading.lines(stream, file, ends=True, hashed=add)
        rows = tables.stream(str(file), lines, suffix=file.suffix, longest=_LONGEST)
        _, columns = next(rows)
        if column not in columns:
            raise remote.no_column(file, column, columns)
        at = columns.index(column)
        for count, (line, fields) in enumerate(rows):
            if count % remote.ROWS == 0:
                tick(position())
            yield fields[at], line


class _Pages:
    """A stream for warcio that ends a record of more than `_LONGEST_PAGE` bytes with a DataError."""

    def __init__(self, stream: IO[bytes], file: TextFile) -> None:
        self._stream, self._file, self.taken = stream, file, 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.taken += len(data)
        if self.taken > _LONGEST_PAGE:
            raise DataError(f"{self._file}: a record of over {_LONGEST_PAGE >> 20} MiB. Fetch the file again.")
        return data

    def tell(self) -> int:
        return 0


def wet_texts(file: TextFile, tick: Tick) -> Values:
    """The texts of a WET file (WARC records of the type conversion), with their numbers in it.

    Bytes that are not UTF-8 become halves of surrogate pairs. DataError: web pages instead of their text; damaged.
    """
    with remote.extra(f"Reading {file}"):
        from warcio.archiveiterator import ArchiveIterator
        from warcio.exceptions import ArchiveLoadFailed
    with unpacked(file) as (stream, position):
        pages = _Pages(stream, file)
        try:
            for number, record in enumerate((archive := ArchiveIterator(pages, no_record_parse=True)), 1):
                if record.rec_type not in ("conversion", "warcinfo", "metadata"):
                    raise DataError(kinds.WARC.refusal(str(file)))
                body = record.raw_stream.read()
                if len(body) != record.length:
                    raise ValueError(f"record {number} is cut short")
                pages.taken = 0
                tick(position())
                if record.rec_type == "conversion":
                    yield body.decode("utf-8", "surrogateescape"), number
            if archive.err_count:
                raise ValueError("the length of a record is wrong")
        except (ArchiveLoadFailed, ValueError) as error:
            raise DataError(f"{file}: is damaged ({' '.join(str(error).split())[:200]}). Fetch it again.") from None
