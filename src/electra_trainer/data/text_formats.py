"""Texts of files that hold records: .csv and .tsv, JSON, WET, Parquet, Arrow. Each reader yields values, and the line
or row of each.

A value is a text, None where a row has none, or for JSON the record that has to hold one. Nothing is held but some of
them.
"""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from electra_trainer.data import columnar, remote
from electra_trainer.data.bounds import LINE, Bound
from electra_trainer.data.text_files import TextFile, beginning, chunks, read_lines, unpacked
from electra_trainer.errors import DataError
from electra_trainer.files import kinds, reading, tables

Values = Iterator[tuple[Any, int]]
Tick = Callable[[int], None]
"""Called with the bytes on disk that were read."""
JSON_LINES = (".jsonl", ".ndjson")
_LONGEST = 1 << 24
"""Bytes of a JSON value, characters of a field: they are held whole."""
_LONGEST_HEADER = 1 << 18
"""Bytes of a WARC record's fields: they are a few hundred."""
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
        return _arrow_texts(file, column, tick, kind)
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
        fault, enough = "", 0
        while True:
            size = len(self._text) - self._at
            if size >= enough or self._is_end:
                value, end, fault = self._parsed()
                if 0 < end < len(self._text) or (end and self._is_end):
                    self._move(end)
                    return value
                enough = min(
                    2 * size, _LONGEST
                )  # a value of many pieces is parsed a few times, and not with each of them
            if size > _LONGEST or not self._read_on():
                break
        fault = "a JSON value over 16 MiB, or of very many values" if size > _LONGEST or not fault else fault
        raise DataError(f"{self.file}:{self.line}: {fault}. {_CUT}")

    def _parsed(self) -> tuple[Any, int, str]:
        """A value at the beginning of what is held, its end (0: none was found), and why there is none."""
        is_long = len(self._text) - self._at > 2 * reading.MOST_VALUES
        if is_long and sum(self._text.count(mark, self._at) for mark in "[{") > reading.MOST_VALUES:
            return None, 0, ""
        try:
            return *self._parse(self._text, self._at), ""
        except json.JSONDecodeError as error:
            return None, 0, f"invalid JSON ({error.msg})"
        except RecursionError:
            return None, 0, "invalid JSON (nested too deeply)"
        except ValueError:
            return None, 0, "invalid JSON (a number of thousands of digits)"


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
        where, fields, taken = f"{file}:{line.number}", dict[bytes, bytes](), 0
        for header in lines:
            if not header.data.strip() or taken > _LONGEST_HEADER:
                break
            taken += header.length
            name, _, value = header.data.partition(b":")
            fields[name.strip().lower()] = value.strip()
        kind, length = fields.get(b"warc-type", b""), fields.get(b"content-length", b"")
        if kind in (b"response", b"request", b"resource", b"revisit"):
            raise DataError(
                f"{where}: the WARC file holds web pages, not their text. Take the WET file of the same crawl (its "
                "name has .wet), or "
                "extract the text into .jsonl files, for example with datatrove (WarcReader, Trafilatura, JsonlWriter)."
            )
        if taken > _LONGEST_HEADER:
            raise DataError(f"{where}: a header of a record over {_LONGEST_HEADER >> 10:,} KiB. {_CUT}")
        if not line.data.startswith(b"WARC/") or not re.fullmatch(rb"\d{1,9}", length) or int(length) > 4 * _LONGEST:
            raise DataError(f"{where}: expected a record of WARC with a length of at most 64 MiB. {_CUT}")
        left, first, body = int(length), 0, bytearray()
        while left > 0 and (part := next(lines, None)) is not None:
            first = first or part.number
            body += part.data[:left] + b"\n" * part.ends
            left -= part.length
        if left > 0:
            raise DataError(f"{where}: the last record is cut short. Fetch the file again.")
        if kind == b"conversion":
            yield body.decode("utf-8", "surrogateescape"), first


def _arrow_texts(file: TextFile, column: str, tick: Tick, kind: kinds.Kind) -> Values:
    """A column of a Parquet or Arrow file; errors as for `columnar.arrow_texts` and `unpacked`."""
    with unpacked(file) as (raw, _):
        yield from columnar.arrow_texts(str(file), raw, column, tick, kind=kind)
