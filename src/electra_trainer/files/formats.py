"""Formats of files with rows: an entry in `FORMATS` each, which serves `prepare`, fine-tuning, vectors and predictions.

.txt      A text a line.
.jsonl    An object a line; so have .ndjson and .json.
.csv      RFC 4180: commas; a field between double quotes may hold commas, line ends and doubled quotes. Semicolons if
          the line of column names has them and no comma, as spreadsheets write them where the comma is the decimal
          sign. Excel's first line sep=; or the like decides.
.tsv      A row a line, tabs between fields, quotes are ordinary characters, as in GLUE's files. But a field that is
          quoted whole, every quote within doubled, as pandas writes it, is taken out of its quotes.
.parquet, .arrow, .feather: columnar.py.   .wet: texts of web pages, of Common Crawl.

A reader yields each row, a mapping, with its line or number from 1. Of a row that cannot be read it yields a `Fault`:
whoever asks for rows decides whether to stop. A file that is not of its format, or damaged, is a DataError.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import IO, Any

from electra_trainer import errors
from electra_trainer.errors import DataError
from electra_trainer.files import columnar, opening, reading
from electra_trainer.files.opening import ROWS, Fault, Rows, TextFile, Tick, decoded, read_lines, reason, unpacked
from electra_trainer.files.reading import short
from electra_trainer.files.tables import NUMBER, shown

_RAGGED = "Put a field that holds a comma in double quotes; a field of a .tsv can hold neither a tab nor a line end."
_QUOTING = 'Put a field that holds a comma, a quote or a line end in double quotes, with a quote in it twice ("").'
_NAMED = re.compile(r'[\ufeff\s"]*sep=([,;|\t])"?\s*$', re.MULTILINE)
"""A first line that names the separator, as Excel reads it."""
_LONGEST = 1 << 26
"""Bytes of a WET record."""
Reader = Callable[[TextFile, str | None, Tick], Rows]
"""Reads a file. The second argument is the one column that is asked for, None: all; a reader may pass over others. The
third is called with the bytes on disk that were read.
"""


def text_rows(file: TextFile, column: str | None, tick: Tick) -> Rows:
    """Lines, in a column `text`; blank ones are left out."""
    blank = 0
    for text, number in whole_lines(file, tick):
        if isinstance(text, Fault):
            yield text, number
        elif text.strip():
            yield {"text": text.strip()}, number
        else:
            blank += 1
    if blank:
        errors.tell(f"{file}: blank lines left out: {blank:,}.")


def whole_lines(file: TextFile, tick: Tick) -> Iterator[tuple[str | Fault, int]]:
    """The lines of a file with their numbers, a `Fault` in place of one that is too long or not text."""
    too_long = Fault(f"a line of more than {reading.MOST_LINE >> 20} MiB")
    for line in read_lines(file, limit=reading.MOST_LINE, on_progress=tick):
        if not line.continued:
            yield decoded(line.data) if line.ends else too_long, line.number


def json_rows(file: TextFile, column: str | None, tick: Tick) -> Rows:
    """An object a line; blank lines are left out."""
    for text, number in whole_lines(file, tick):
        if isinstance(text, Fault) or text.strip():
            yield text if isinstance(text, Fault) else _object(text), number


def _object(text: str) -> dict[str, Any] | Fault:
    try:
        value = reading.json_value(text)
    except reading.NotJson as error:
        return Fault("invalid JSON", f": it is {error}")
    return value if isinstance(value, dict) else Fault("invalid JSON", f": it is {short(value)}, not an object")


def table_rows(file: TextFile, column: str | None, tick: Tick) -> Rows:
    """Rows of a .csv or .tsv under a line of column names; blank lines are left out, but not "" in a single column."""
    columns: tuple[str, ...] = ()
    with unpacked(file) as (stream, position):
        fields_of = _csv if file.suffix == ".csv" else _tsv
        for count, (number, fields) in enumerate(fields_of(file, _lines(file, stream))):
            if count % ROWS == 0:
                tick(position())
            if len(fields) < 2 and not "".join(fields).strip() and (fields != [""] or len(columns) != 1):
                continue
            if not columns:
                columns = _header(f"{file}:{number}", file.suffix, [name.strip() for name in fields])
            elif len(fields) == len(columns):
                yield dict(zip(columns, fields, strict=True)), number
            else:
                expected = f"expected {len(columns)} fields ({shown(columns)}), found {len(fields)}"
                raise DataError(f"{file}:{number}: {expected}. {_RAGGED}")
    if not columns:
        raise DataError(f"{file}: is empty. Expected column names on the first line, then a row a line.")


def _lines(file: TextFile, stream: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Numbered lines with their ends, which may be CR alone, as in files of old Macs."""
    for number, line in reading.lines(stream, file, ends=True):
        for part in re.split(r"(?<=\r)(?![\r\n]|\Z)", line) if "\r" in line else [line]:
            yield number, part


def _csv(file: TextFile, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record and the line on which it begins."""
    head: list[str] = []
    for _, line in lines:
        head.append(line)
        if line.strip() and not _NAMED.match(line):
            break
    separator = separator_of("".join(head))
    head = ["\n" if _NAMED.match(line) else line for line in head]
    spaced = f"{separator} " in "".join(head)
    csv.field_size_limit(reading.MOST_LINE)
    rest = (line for _, line in lines)
    reader = csv.reader(chain(head, rest), delimiter=separator, strict=True, skipinitialspace=spaced)
    first = 1
    try:
        for fields in reader:
            yield first, fields
            first = reader.line_num + 1
    except csv.Error as error:
        found = f"the row is not CSV on line {reader.line_num} ({error})"
        raise DataError(f"{file}:{first}: {found}. {_QUOTING}") from None


def separator_of(head: str) -> str:
    """The sign between the columns of a .csv, from its line of column names, or one before it, sep=."""
    named = _NAMED.match(head)
    return named[1] if named else ";" if ";" in head and "," not in head else ","


def _tsv(file: TextFile, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line."""
    for number, line in lines:
        yield number, [_unquoted(field) for field in line.rstrip("\r\n").split("\t")] if line.strip("\r\n") else []


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def _header(where: str, suffix: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the columns. Raises DataError if they are not."""
    counts = Counter(filter(None, names))
    other = next((sign for sign in ",;\t|" if len(names) == 1 and sign in names[0]), None)
    wanted = "commas or semicolons" if suffix == ".csv" else "tabs"
    faults = [
        f"{other!r} between the columns, expected {wanted} in a {suffix}. Rename the file (.csv: commas or semicolons, "
        ".tsv: tabs), or save it with the right separator"
    ] * (other is not None)
    for name in names:
        if NUMBER.fullmatch(name):
            faults.append(f"{short(name)} is not a column name. Put a line of column names on top of the file")
        if counts[name] > 1:
            faults.append(f"column {short(name)} occurs {counts[name]} times. Rename or remove one")
    if faults:
        raise DataError(f"{where}: {faults[0]}.")
    return tuple(names)


def wet_rows(file: TextFile, column: str | None, tick: Tick) -> Rows:
    """The texts of a WET file (WARC records of the type conversion), in a column `text`.

    Bytes that are not UTF-8 become halves of surrogate pairs. DataError: web pages instead of their text; damaged.
    """
    errors.need(f"Reading {file}", ["warcio"], extra="hub")
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    with unpacked(file) as (stream, position):
        try:
            for number, record in enumerate((archive := ArchiveIterator(stream, no_record_parse=True)), 1):
                if record.rec_type not in ("conversion", "warcinfo", "metadata"):
                    raise DataError(
                        f"{file}: holds web pages. Take the WET file of the same crawl, which has their text."
                    )
                body = record.raw_stream.read(_LONGEST)
                if len(body) != record.length:
                    raise ValueError(f"record {number} is cut short, or over {_LONGEST >> 20} MiB")
                tick(position())
                if record.rec_type == "conversion":
                    yield {column or "text": body.decode("utf-8", "surrogateescape")}, number
            if archive.err_count:
                raise ValueError("the length of a record is wrong")
        except (ArchiveLoadFailed, ValueError, OverflowError) as error:
            raise DataError(f"{file}: is damaged ({reason(error)}). Fetch it again.") from None


FORMATS: dict[str, Reader] = {
    ".txt": text_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".json": json_rows,
    ".csv": table_rows,
    ".tsv": table_rows,
    ".parquet": columnar.rows,
    ".arrow": columnar.rows,
    ".feather": columnar.rows,
    ".wet": wet_rows,
}
"""Ending of a name, without that of a compression -> what reads such a file."""


def reader_of(file: TextFile) -> Reader:
    """The reader for the ending of a file's name; `text_rows` if it is not in `FORMATS`.

    Raises:
        DataError: it is of another kind than its name says, with what to do; damaged. ConfigError: the extra [hub] is
            missing. MissingInputError, StorageError: cannot be read.
    """
    reader = FORMATS.get(file.suffix, text_rows)
    head = opening.beginning(file)
    kind = reading.kind_of(head, str(file).removesuffix(file.compression))
    if kind is None and reader in (text_rows, json_rows, table_rows):
        kind = reading.unlike_text(head, is_whole=len(head) < reading.HEAD)
    if kind is not None and file.suffix not in kind.endings:
        raise DataError(kind.refusal(str(file)))
    return reader
