"""Texts of files that hold records: .csv and .tsv, JSON, WET, Parquet, Arrow. Each reader yields values, and the line or row of each.

A value is a text, None where a row has none, or for JSON the record that has to hold one. Nothing is held but some of them.
"""

import codecs
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from electra_trainer.data import remote
from electra_trainer.data.text_files import TextFile, beginning, chunks, read_lines, unpacked
from electra_trainer.errors import DataError
from electra_trainer.files import kinds, reading, tables

Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson")
_LONGEST = 1 << 24
"""Bytes of a JSON value, characters of a field: they are held whole."""
_NO_READER = {
    ".parquet": "a Parquet file",
    ".arrow": "an Arrow file",
    ".feather": "an Arrow file",
    ".wet": "a WET file",
}
_CUT = "Is the file cut short? Fetch or write it again."


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
    name = str(file).removesuffix(file.compression)
    kind = kinds.kind_of(head, name)
    is_json = file.suffix in (".json", *JSON_LINES)
    if kind in (kinds.PARQUET, kinds.ARROW, kinds.ARROW_STREAM) and not file.compression:
        return arrow_texts(file, column, tick, kind=kind)
    if kind is kinds.WARC:
        return wet_texts(file, tick)
    if kind is not None and not (kind is kinds.ARRAY and is_json):
        raise DataError(kind.refusal(str(file)))
    if file.suffix in _NO_READER:
        raise DataError(f"{file}: is not {_NO_READER[file.suffix]}, though it is named so. Fetch or write it again.")
    if file.suffix in (".csv", ".tsv"):
        return table_texts(file, column, tick)
    unlike = kinds.unlike_text(head) or (None if is_json else kinds.lines_kind(head, is_whole=len(head) < kinds.HEAD))
    if unlike is not None:
        raise DataError(unlike.refusal(str(file)))
    return json_records(file, tick) if file.suffix == ".json" or kind is kinds.ARRAY else None


def table_texts(file: TextFile, column: str, tick: Tick) -> Values:
    """A column of a .csv or .tsv, with each row's first line; DataError as `tables.stream` says, or there is not such a column."""
    with unpacked(file) as (stream, position):
        rows = tables.stream(str(file), reading.lines(stream, file, ends=True), suffix=file.suffix, longest=_LONGEST)
        _, columns = next(rows)
        if column not in columns:
            raise remote.no_column(file, column, columns)
        at = columns.index(column)
        for count, (line, fields) in enumerate(rows):
            if count % remote.ROWS == 0:
                tick(position())
            yield fields[at], line


class _JsonText:
    """A long JSON text, read on as it is needed."""

    def __init__(self, file: TextFile, tick: Tick) -> None:
        self.file, self.line = file, 1
        self._chunks = chunks(file, tick)
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._at, self._is_end = "", 0, False

    def _move(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to

    def _read_on(self) -> bool:
        """Whether there was more."""
        if self._is_end:
            return False
        chunk = next(self._chunks, None)
        self._is_end = chunk is None
        self._text, self._at = self._text[self._at :] + self._decode(chunk or b"", self._is_end), 0
        return True

    def ahead(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            while self._text[self._at : self._at + 1] in tuple(" \t\r\n"):
                rest = self._text[self._at : self._at + 4096]
                self._move(self._at + len(rest) - len(rest.lstrip(" \t\r\n")))
            if self._at < len(self._text) or not self._read_on():
                return self._text[self._at : self._at + 1]

    def take(self, character: str) -> bool:
        """Whether this comes next; it is passed then."""
        found = self.ahead() == character
        self._at += found
        return found

    def value(self) -> Any:
        """The value that comes next; DataError if it is not JSON, longer than 16 MiB, or of very many values."""
        while True:
            value, end, fault = None, 0, ""
            size = len(self._text) - self._at
            if size <= 2 * reading.MOST_VALUES or self._text.count("[", self._at) <= reading.MOST_VALUES:
                try:
                    value, end = self._parse(self._text, self._at)
                except json.JSONDecodeError as error:
                    fault = f"invalid JSON ({error.msg})"
                except RecursionError:
                    fault = "invalid JSON (nested too deeply)"
                except ValueError:
                    fault = "invalid JSON (a number of thousands of digits)"
            if 0 < end < len(self._text) or (end and self._is_end):
                self._move(end)
                return value
            if size > _LONGEST or not self._read_on():
                break
        fault = "a JSON value over 16 MiB, or of very many values" if size > _LONGEST or not fault else fault
        raise DataError(f"{self.file}:{self.line}: {fault}. {_CUT}")


def json_records(file: TextFile, tick: Tick) -> Values:
    """The elements of a JSON array, or JSON values one after another, with the line on which each begins.

    Bytes that are not UTF-8 become halves of surrogate pairs. DataError: not JSON, or too large a value.
    """
    text = _JsonText(file, tick)
    in_array = text.take("[")
    while text.ahead():
        if in_array and text.take("]"):
            if text.ahead():
                raise DataError(f"{file}:{text.line}: text after the array. {_CUT}")
            return
        line = text.line
        yield text.value(), line
        if in_array:
            text.take(",")
    if in_array:
        raise DataError(f"{file}:{text.line}: the array is not closed. {_CUT}")


def wet_texts(file: TextFile, tick: Tick) -> Values:
    """The texts of a WET file (WARC records of the type conversion), with the line on which each begins.

    Bytes that are not UTF-8 become halves of surrogate pairs. DataError: web pages instead of their text; cut short.
    """
    lines = read_lines(file, limit=_LONGEST, on_progress=tick)
    for line in lines:
        if not line.data.strip():
            continue
        where, fields = f"{file}:{line.number}", dict[bytes, bytes]()
        for header in lines:
            if not header.data.strip():
                break
            name, _, value = header.data.partition(b":")
            fields[name.strip().lower()] = value.strip()
        kind, length = fields.get(b"warc-type", b""), fields.get(b"content-length", b"")
        if kind in (b"response", b"request", b"resource", b"revisit"):
            raise DataError(
                f"{where}: the WARC file holds web pages, not their text. Take the WET file of the same crawl (its name has .wet), or "
                "extract the text into .jsonl files, for example with datatrove (WarcReader, Trafilatura, JsonlWriter)."
            )
        if not line.data.startswith(b"WARC/") or not length.isdigit() or int(length) > 4 * _LONGEST:
            raise DataError(f"{where}: expected a record of WARC with a length of at most 64 MiB. {_CUT}")
        left, first, body = int(length), 0, list[bytes]()
        while left > 0 and (part := next(lines, None)) is not None:
            first = first or part.number
            body.append(part.data[:left] + b"\n" * part.ends)
            left -= part.length
        if left > 0:
            raise DataError(f"{where}: the last record is cut short. Fetch the file again.")
        if kind == b"conversion":
            yield b"".join(body).decode("utf-8", "surrogateescape"), first


@contextmanager
def _arrow(file: TextFile) -> Iterator[tuple[Any, IO[bytes]]]:
    """The package pyarrow, and the file for it; DataError: damaged."""
    with remote.extra(f"Reading {file}"):
        import pyarrow
        import pyarrow.parquet
    try:
        with unpacked(file) as (raw, _):
            yield pyarrow, raw
    except (pyarrow.ArrowException, ValueError) as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{file}: is damaged ({said}). Fetch or write it again.") from None


def arrow_texts(file: TextFile, column: str, tick: Tick, *, kind: kinds.Kind) -> Values:
    """A column of a Parquet or Arrow file, with the rows' numbers from 1. Of Parquet no other column is read.

    Raises:
        ConfigError: the extra [hub] is missing. DataError: damaged; there is not such a column of texts.
    """
    row = 0
    with _arrow(file) as (arrow, raw):
        for batch, read in _batches(file, arrow, raw, column, kind):
            tick(read)
            for value in batch.column(column).to_pylist():
                row += 1
                yield value, row


def _batches(file: TextFile, arrow: Any, raw: IO[bytes], column: str, kind: kinds.Kind) -> Iterator[tuple[Any, int]]:
    """Batches of rows, and the bytes that were read so far."""
    if kind is kinds.PARQUET:
        with arrow.parquet.ParquetFile(raw) as table:
            _check_column(file, arrow, table.schema_arrow, column)
            rows, total = 0, max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(remote.ROWS, columns=[column], use_threads=False):
                rows += len(batch)
                yield batch, file.size * rows // total
        return
    source = arrow.ipc.open_file(raw) if kind is kinds.ARROW else arrow.ipc.open_stream(raw)
    _check_column(file, arrow, source.schema, column)
    for batch in map(source.get_batch, range(source.num_record_batches)) if kind is kinds.ARROW else source:
        yield batch, raw.tell()


def _check_column(file: TextFile, arrow: Any, schema: Any, column: str) -> None:
    if column not in schema.names:
        raise remote.no_column(file, column, schema.names)
    found = schema.field(column).type
    found = found.value_type if arrow.types.is_dictionary(found) else found
    if not (arrow.types.is_string(found) or arrow.types.is_large_string(found) or arrow.types.is_string_view(found)):
        raise DataError(
            f"{file}: column {column!r} holds {found}, expected texts. Choose another one with --text-field."
        )
