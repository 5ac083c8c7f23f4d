"""Read a table of one's own, .csv, .tsv or .jsonl: its columns and rows, and what is wrong with it, with the line.

.csv    RFC 4180: commas; a field between double quotes may hold commas, line ends and doubled quotes.
.tsv    One line a row, tabs between fields, quotes are ordinary characters, as in GLUE's files. But a field that is
        quoted whole, every quote within doubled, as pandas writes it, is taken out of its quotes.
.jsonl  One object a line; columns are the keys in the order in which they first come.

UTF-8, with or without a byte order mark. Column names lose the spaces around them; blank lines are left out; a first
column without a name (pandas' index) is never taken for text or label. Columns are read as texts, labels or numbers;
an error names the first row that is something else.
"""

import csv
import hashlib
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from electra_trainer.errors import DataError, storage_error
from electra_trainer.files import reading
from electra_trainer.files.kinds import HEAD, kind_of
from electra_trainer.files.reading import half_character, short

SUFFIXES = (".csv", ".tsv", ".jsonl")
MAX_FIELD = 1_000_000
"""Characters; what is longer is nearly always a quote left open."""
MAX_COLUMNS = 1000
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
"""A number as it is written in a file."""
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_QUOTING = (
    "the row is not CSV on line {last} ({error}). Put a field that holds a comma, a quote or a line end between double "
    'quotes, and write a quote in it twice ("").'
)
_RAGGED = {
    ".csv": "Put a field that holds a comma in double quotes.",
    ".tsv": "A field of a .tsv can hold neither a tab nor a line end: remove it, or save the file as .csv.",
}
_EXAMPLE = 'Expected an object such as {"text": "...", "label": "..."}, one a line.'
_Rows = tuple[tuple[str, ...], list[tuple[Any, ...]], list[int]]
"""Columns, rows, and the line on which each row begins."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file's columns and rows."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    """Text in .csv and .tsv, JSON's values in .jsonl; a row may be shorter than the columns where keys came later."""
    lines: Sequence[int]
    """Line on which each row begins, counted from 1."""
    sha256: str = ""
    """Hash of the file's bytes."""

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
        DataError: not such a file; says file:line and what to do.
    """
    suffix, digest = path.suffix.lower(), hashlib.sha256()
    with os.fdopen(reading.open_regular(path, limit=sys.maxsize), "rb") as file:
        if suffix not in SUFFIXES:
            kind = kind_of(file.read(HEAD), str(path))
            raise DataError(
                f"{path}: the name ends in {suffix or 'nothing'!r}, expected {', '.join(SUFFIXES)}. Convert or rename "
                "it: .csv has commas between its columns, .tsv tabs, .jsonl one JSON object a "
                f"line.{f' {kind.advice(path)}' if kind else ''}"
            )
        lines = reading.lines(file, path, ends=True, hashed=digest.update)
        try:
            if suffix == ".jsonl":
                columns, rows, numbers = _objects(path, lines)
            else:
                (_, columns), *found = stream(path, lines, suffix=suffix)
                if not found:
                    raise DataError(f"{path}: holds column names ({', '.join(columns)}) and no rows.")
                rows, numbers = [fields for _, fields in found], [number for number, _ in found]
        except OSError as error:
            raise storage_error(error, path) from None
    return Table(path=path, columns=columns, rows=rows, lines=numbers, sha256=digest.hexdigest())


def _csv(path: Path | str, lines: Iterator[tuple[int, str]], longest: int) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record and the line on which it begins."""
    at = 0

    def feed() -> Iterator[str]:
        nonlocal at
        for at, line in lines:  # noqa: B007 - read below
            yield line

    reader = csv.reader(feed(), strict=True)
    before = csv.field_size_limit(longest)
    try:
        while True:
            first = at + 1
            try:
                yield first, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"{path}:{first}: {_QUOTING.format(error=error, last=at)}") from None
    finally:
        csv.field_size_limit(before)


def _tsv(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line."""
    for number, line in lines:
        yield number, [_unquoted(field) for field in line.removesuffix("\n").removesuffix("\r").split("\t")]


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def stream(
    path: Path | str, lines: Iterator[tuple[int, str]], *, suffix: str, longest: int = MAX_FIELD
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The column names of a .csv or .tsv, then its rows, each with the line on which it begins; nothing is held but a
    row.

    Args:
        path: name of the file in messages.
        lines: numbered, with their ends (`reading.lines`).
        suffix: .csv or .tsv.
        longest: characters of a field.

    Raises:
        DataError: as `read_table_file` says.
    """
    columns: tuple[str, ...] = ()
    for number, fields in _csv(path, lines, longest) if suffix == ".csv" else _tsv(lines):
        where = f"{path}:{number}"
        if len(fields) < 2 and not "".join(fields).strip():
            continue
        if not columns:
            columns = _header(where, suffix, [name.strip() for name in fields])
            yield number, columns
            continue
        if len(fields) != len(columns):
            expected = f"expected {len(columns)} fields ({', '.join(columns)}), found {len(fields)}"
            raise DataError(f"{where}: {expected}. {_RAGGED[suffix]}")
        if len(largest := max(fields, key=len)) > longest:
            raise DataError(f"{where}: a field of {len(largest):,} characters, more than {longest:,}. Cut it.")
        if fields[0].strip() == columns[0] and tuple(field.strip() for field in fields) == columns:
            raise DataError(f"{where}: repeats the column names. Delete the line.")
        yield number, tuple(fields)
    if not columns:
        raise DataError(f"{path}: is empty. Expected column names on the first line, then a row a line.")


def _header(where: str, suffix: str, names: list[str]) -> tuple[str, ...]:
    separator = "," if suffix == ".csv" else "\t"
    others = [one for one in _SEPARATORS if one != separator]
    if len(names) == 1 and (found := max(others, key=names[0].count)) in names[0]:
        wrong = f"{_SEPARATORS[found]} between the columns, expected {_SEPARATORS[separator]} in a {suffix}"
        raise DataError(f"{where}: {wrong}. Rename the file, or save it with the right separator.")
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{where}: {len(names):,} columns, more than {MAX_COLUMNS:,}. Is this a table of texts?")
    for name in names:
        if NUMBER.fullmatch(name):
            raise DataError(f"{where}: {name!r} is not a column name. Put a line of column names on top of the file.")
        if names.count(name) > 1:
            raise DataError(f"{where}: column {name!r} occurs {names.count(name)} times. Rename or remove one.")
    if "" in names[1:]:
        raise DataError(f"{where}: column {names.index('', 1) + 1} has no name. Give it one, or remove the column.")
    return tuple(names)


def _objects(path: Path, lines: Iterator[tuple[int, str]]) -> _Rows:
    """Objects of .jsonl; columns are the keys in the order in which they first come."""
    places: dict[str, int] = {}
    rows: list[tuple[Any, ...]] = []
    numbers: list[int] = []
    for number, line in lines:
        if not line.strip():
            continue
        where = f"{path}:{number}"
        found = _object(where, line)
        for key in found:
            places.setdefault(reading.encodable(key, f"{where}: key {reading.short(key)}"), len(places))
        if len(places) > MAX_COLUMNS:
            raise DataError(f"{where}: more than {MAX_COLUMNS:,} different keys. Is this a table of texts?")
        row: list[Any] = [None] * len(places)
        for key, value in found.items():
            row[places[key]] = value
        rows.append(tuple(row))
        numbers.append(number)
    if not rows:
        raise DataError(f"{path}: is empty. {_EXAMPLE}")
    if not any(places):
        raise DataError(f"{path}:{numbers[0]}: an object without names. {_EXAMPLE}")
    return tuple(places), rows, numbers


def _object(where: str, line: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) < len(items):
            twice = next(name for name, count in Counter(name for name, _ in items).items() if count > 1)
            raise DataError(f"{where}: key {reading.short(twice)} occurs twice. Remove one.")
        return table

    value = reading.parse_json(line, where=where, remedy="Expected one object a line.", pairs=pairs)
    if not isinstance(value, dict):
        raise DataError(f"{where}: is {reading.short(value)}. {_EXAMPLE}")
    return value


T = TypeVar("T")
_MAX_LABEL = 200


def texts(table: Table, column: str) -> list[str]:
    """The texts of a column; DataError: a row has none."""
    return _each(table, column, _text)


def labels(table: Table, column: str) -> list[str]:
    """The labels of a column without the spaces around them; JSON's integers and truth values as they are written
    there.
    """
    return _each(table, column, _label)


def numbers(table: Table, column: str) -> list[float]:
    """The numbers of a column; DataError: one is not a finite number."""
    return _each(table, column, _number)


def _each(table: Table, column: str, read: Callable[[Any], T]) -> list[T]:
    """`read` of every cell; the first row that it refuses is named, the others counted."""
    found: list[T] = []
    refused: list[tuple[int, str]] = []
    for row, cell in enumerate(table.column(column)):
        try:
            if cell is None or (isinstance(cell, str) and not cell.strip()):
                raise ValueError(f"is {'missing' if cell is None else 'empty'}. Fill it in, or delete the row.")
            found.append(read(cell))
        except ValueError as error:
            refused.append((row, str(error)))
    if refused:
        row, message = refused[0]
        others = ", ".join(str(table.lines[other]) for other, _ in refused[1:4])
        more = f" {len(refused) - 1:,} more rows are like it (line {others})." if others else ""
        raise DataError(f"{table.where(row)}: column {column!r} {message}{more}")
    return found


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"holds {short(cell)}, expected a text (in JSON between double quotes).")
    if len(cell) > MAX_FIELD:
        raise ValueError(f"holds {len(cell):,} characters, more than {MAX_FIELD:,}. Cut it.")
    if (at := half_character(cell)) is not None:
        raise ValueError(f"holds half of a surrogate pair at character {at + 1}. Repair the JSON.")
    return cell


def _label(cell: Any) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if not isinstance(cell, str):
        hint = " For numbers: --task regression" if isinstance(cell, float) else ""
        hint = " One label per text is learned: keep one in each row." if isinstance(cell, list) else hint
        raise ValueError(f"holds {short(cell)}, expected one label: a text, a whole number or a truth value.{hint}")
    label = cell.strip()
    if len(label) > _MAX_LABEL:
        raise ValueError(
            f"holds {len(label):,} characters, too many for a label. Is this the text? Name the columns: --text, "
            "--label"
        )
    return _text(label)


def _number(cell: Any) -> float:
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise ValueError(f"holds {short(cell)}, expected a number.")
    written = cell.strip() if isinstance(cell, str) else repr(cell)
    if written.casefold().strip("+-") in ("nan", "inf", "infinity"):
        raise ValueError(f"holds {short(cell)}, expected a finite number. Delete the row.")
    if not NUMBER.fullmatch(written):
        comma = NUMBER.fullmatch(written.replace(",", ".", 1))
        hint = "Write a point for the decimal comma." if comma else "For classes: --task classification"
        raise ValueError(f"holds {short(cell)}, expected a number such as 3, 0.5 or 1e-3. {hint}")
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(f"holds {short(cell)}, which is too large. Delete the row.")
    return value
