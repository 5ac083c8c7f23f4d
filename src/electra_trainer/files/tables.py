"""Tables of one's own, read strictly: .csv, .tsv and .jsonl. Each row knows its line, and what is wrong says where.

.csv    RFC 4180: commas; a field between double quotes may hold commas, line ends and doubled quotes. A quote within a field
        that does not begin with one is an ordinary character.
.tsv    One line a row, tabs between fields, quotes are ordinary characters, as in GLUE's files. But a field that is quoted
        whole, every quote within doubled, as pandas and spreadsheets write it, is taken out of its quotes. A tab or a line
        end within a field cannot be told from the end of one: that needs a .csv.
.jsonl  One object a line; columns are the keys in the order in which they first come.

UTF-8, with or without a byte order mark. Column names lose the spaces around them; blank lines are left out; a first column
without a name (pandas' index) is never taken for text or label.

Fields of .csv (RFC 4180) and of .tsv (quotes are ordinary characters), and the names on the first line: see table_files.py.

Objects of .jsonl: see table_files.py.
"""

import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError, storage_error
from electra_trainer.files.reading import parse_json, short

SUFFIXES = (".csv", ".tsv", ".jsonl")
MAX_LINE = 1 << 24
"""Bytes."""
_BOM = b"\xef\xbb\xbf"
_FOREIGN = {
    b"\xff\xfe": "is UTF-16. Save it as UTF-8",
    b"\xfe\xff": "is UTF-16. Save it as UTF-8",
    b"PK\x03\x04": "is a zip or an Excel file. Save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "is an Excel file. Save the sheet as CSV in UTF-8",
    b"\x1f\x8b": "is compressed with gzip. Unpack it (gunzip)",
    b"PAR1": "is a Parquet file. Save it as CSV or JSON lines",
}
_ELSE = {
    ".json": "Write one object a line and call it .jsonl: "
    "python -c \"import json,sys; [print(json.dumps(row)) for row in json.load(open(sys.argv[1]))]\" FILE.json > FILE.jsonl",
    ".xlsx": "Save the sheet as CSV in UTF-8.",
    ".xls": "Save the sheet as CSV in UTF-8.",
    ".parquet": 'Convert it: python -c "import pandas; pandas.read_parquet(\'FILE\').to_csv(\'FILE.csv\', index=False)"',
    ".gz": "Unpack it (gunzip).",
    ".txt": "Name it .tsv if tabs stand between its columns, .csv if commas do.",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file's columns and rows."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    """Text in .csv and .tsv, JSON's values in .jsonl; a row may be shorter than the columns where keys came later."""
    lines: Sequence[int]
    """Line on which each row begins, counted from 1."""
    sha256: str

    def where(self, row: int) -> str:
        """`file:line` of a row."""
        return f"{self.path}:{self.lines[row]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""
        at = self.columns.index(name)
        return [row[at] if at < len(row) else None for row in self.rows]


def read_table_file(path: Path) -> Table:
    """Read a .csv, .tsv or .jsonl file whole.

    Raises:
        MissingInputError, StorageError: cannot be read.
        DataError: is not such a file, with file:line and what to do.
    """
    _check_name(path)
    digest = hashlib.sha256()
    lines = _lines(path, digest.update)
    try:
        if path.suffix.lower() == ".jsonl":
            columns, rows, numbers = read_objects(path, lines)
        else:
            records = csv_records(path, lines) if path.suffix.lower() == ".csv" else tsv_records(lines)
            columns, rows, numbers = read_records(path, records)
    except OSError as error:
        raise storage_error(error, path) from None
    return Table(path=path, columns=columns, rows=rows, lines=numbers, sha256=digest.hexdigest())


def _check_name(path: Path) -> None:
    try:
        path.stat()
        if path.is_dir():
            raise IsADirectoryError(21, "is a directory")
        if not path.is_file():
            raise DataError(f"{path}: is not a regular file (a pipe or device). Write its content to a file first.")
    except OSError as error:
        raise storage_error(error, path) from None
    except ValueError:  # a NUL in the name
        raise DataError(f"{str(path)!r}: is no file name.") from None
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(
            f"{path}: the name ends in {suffix or 'nothing'!r}, expected {', '.join(SUFFIXES)}. {_ELSE.get(suffix, 'Rename or convert it.')}"
        )


def _lines(path: Path, update: Callable[[bytes], None]) -> Iterator[tuple[int, str]]:
    r"""Numbered lines with their ends; split at "\n" only."""
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE + 1):
            number += 1
            update(raw)
            if number == 1:
                _check_kind(path, raw)
                raw = raw.removeprefix(_BOM)
            where = f"{path}:{number}"
            if len(raw) > MAX_LINE:
                raise DataError(f"{where}: a line of more than {MAX_LINE >> 20} MiB. Expected text, a row a line.")
            if b"\0" in raw:
                raise DataError(
                    f"{where}: NUL at byte {raw.index(0) + 1} of the line: UTF-16, or no text at all. Save it as UTF-8 text."
                )
            try:
                yield number, raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: byte {error.start + 1} of the line is 0x{raw[error.start]:02x}, which is not UTF-8 there. "
                    f"Save it as UTF-8, for example: iconv -f LATIN1 -t UTF-8 {path.name} > new{path.suffix}"
                ) from None


def _check_kind(path: Path, begin: bytes) -> None:
    for magic, what in _FOREIGN.items():
        if begin.startswith(magic):
            raise DataError(f"{path}: {what}.")


MAX_FIELD = 1_000_000
"""Characters; what is longer is nearly always a quote left open."""
MAX_COLUMNS = 1000
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
"""A number as it is written in a file."""


def csv_records(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record and the line on which it begins."""
    at = 0

    def feed() -> Iterator[str]:
        nonlocal at
        for number, line in lines:
            at = number
            yield line

    reader = csv.reader(feed(), strict=True)
    before = csv.field_size_limit(MAX_FIELD)
    try:
        while True:
            first = at + 1
            try:
                yield first, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(_csv_fault(path, str(error), first=first, last=at)) from None
    finally:
        csv.field_size_limit(before)


def _csv_fault(path: Path, said: str, *, first: int, last: int) -> str:
    """The module csv's error in words that help."""
    if "unexpected end" in said:
        return f'{path}:{first}: a quote that opens in this row is never closed. Close it; a quote within a quoted field is written twice ("").'
    if "expected after" in said:
        return (
            f"{path}:{first}: a quoted field of this row closes on line {last} and text follows it. Expected a comma there; a quote within "
            'a quoted field is written twice ("").'
        )
    if "field larger" in said:
        return (
            f"{path}:{first}: a field of more than {MAX_FIELD:,} characters begins in this row. Is a quote left open?"
        )
    return (
        f"{path}:{first}: a carriage return stands within a line. Save the file with the line ends of Unix or Windows, or put the field "
        "that holds it in double quotes."
    )


def tsv_records(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line."""
    for number, line in lines:
        yield number, [_unquoted(field) for field in line.removesuffix("\n").removesuffix("\r").split("\t")]


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        within = field[1:-1]
        if '"' not in within.replace('""', ""):
            return within.replace('""', '"')
    return field


def read_records(
    path: Path, records: Iterator[tuple[int, list[str]]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], list[int]]:
    """Columns, rows, and the line on which each row begins, of records as wide as the first, which names the columns."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    for number, fields in records:
        if len(fields) < 2 and not "".join(fields).strip():
            continue
        where = f"{path}:{number}"
        if not columns:
            columns = _header(path, where, [name.strip() for name in fields])
            continue
        if len(fields) != len(columns):
            raise DataError(f"{where}: {_ragged(path, len(fields), columns)}")
        if len(longest := max(fields, key=len)) > MAX_FIELD:
            raise DataError(f"{where}: a field of {len(longest):,} characters, more than {MAX_FIELD:,}. Cut it.")
        if tuple(field.strip() for field in fields) == columns:
            raise DataError(f"{where}: repeats the column names. Were files put together? Delete the line.")
        rows.append(tuple(fields))
        numbers.append(number)
    if not columns:
        raise DataError(f"{path}: is empty. Expected column names on the first line, then a row a line.")
    if not rows:
        raise DataError(f"{path}: holds column names ({', '.join(columns)}) and no rows.")
    return columns, rows, numbers


def _header(path: Path, where: str, names: list[str]) -> tuple[str, ...]:
    separator, other = (",", "\t") if path.suffix.lower() == ".csv" else ("\t", ",")
    if len(names) == 1 and (found := max((other, ";", "|"), key=names[0].count)) in names[0]:
        named = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
        raise DataError(
            f"{where}: {named[found]} stand between the columns, expected {named[separator]} in a {path.suffix}. "
            + _reseparate(path, found)
        )
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{where}: {len(names):,} columns, more than {MAX_COLUMNS:,}. Is this a table of texts?")
    for name in names:
        if "\n" in name or "\r" in name:
            raise DataError(
                f"{where}: a line end stands within the name of a column ({name[:40]!r}). Save the file with the line ends of Unix."
            )
        if NUMBER.fullmatch(name):
            raise DataError(
                f"{where}: {name!r} is no name of a column: the file seems to lack its first line. Put column names on top, for example "
                f"text{separator if separator == ',' else '<TAB>'}label."
            )
        if names.count(name) > 1:
            raise DataError(f"{where}: column {name!r} stands there {names.count(name)} times. Rename or remove one.")
    if "" in names[1:]:
        raise DataError(f"{where}: column {names.index('', 1) + 1} has no name. Give it one, or remove the column.")
    return tuple(names)


def _reseparate(path: Path, found: str) -> str:
    if found in "\t,":
        return f"Rename it to {path.stem}{'.tsv' if found == chr(9) else '.csv'}."
    return (
        f"Save it with commas: python -c \"import csv,sys; csv.writer(sys.stdout).writerows(csv.reader(open('{path.name}', "
        f"encoding='utf-8-sig', newline=''), delimiter='{found}'))\" > new.csv"
    )


def _ragged(path: Path, found: int, columns: Sequence[str]) -> str:
    expected = f"expected {len(columns)} field{'s' if len(columns) > 1 else ''} ({', '.join(columns)}), found {found}."
    if path.suffix.lower() == ".csv":
        return expected + (
            " Put a field that holds a comma in double quotes." if found > len(columns) else " Is a comma missing?"
        )
    return expected + (
        " A tab stands within a field: remove it, or save the file as .csv."
        if found > len(columns)
        else " A tab is missing, or a line end stands within a field: remove it, or save the file as .csv."
    )


def read_objects(
    path: Path, lines: Iterator[tuple[int, str]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]], list[int]]:
    """Keys in the order in which they come, rows in that order, and the line of each."""
    places: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    for number, line in lines:
        if not line.strip():
            continue
        found = _object(f"{path}:{number}", line)
        for key in found:
            _check_key(key, f"{path}:{number}")
            places.setdefault(key, len(places))
        if len(places) > MAX_COLUMNS:
            raise DataError(f"{path}:{number}: more than {MAX_COLUMNS:,} different keys. Is this a table of texts?")
        row: list[Any] = [None] * len(places)
        for key, value in found.items():
            row[places[key]] = value
        rows.append(tuple(row))
        numbers.append(number)
    if not rows:
        raise DataError(
            f'{path}: is empty. Expected a JSON object a line, for example {{"text": "...", "label": "..."}}.'
        )
    if not any(places):
        raise DataError(
            f'{path}:{numbers[0]}: an object without names. Expected {{"text": "...", "label": "..."}}, one a line.'
        )
    return tuple(places), rows, numbers


def _check_key(key: str, where: str) -> None:
    if not key.isascii() and any("\ud800" <= character <= "\udfff" for character in key):
        raise DataError(f"{where}: key {short(key)} holds half of a surrogate pair. Repair the JSON.")


def _object(where: str, line: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) < len(items):
            seen: set[str] = set()
            twice = next(name for name, _ in items if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise DataError(f"{where}: key {short(twice)} stands there twice. Remove one.")
        return table

    value = parse_json(line, where=where, remedy="Expected one object a line.", pairs=pairs)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a text", int: "a number", float: "a number"}.get(type(value), short(value))
        raise DataError(
            f'{where}: is {kind}, expected an object such as {{"text": "...", "label": "..."}}, one a line.'
        )
    return value
