"""Parse a table of one's own, .csv, .tsv or .jsonl (records.py opens it), and say what is wrong, with
the line.

.csv    RFC 4180: commas; a field between double quotes may hold commas, line ends and doubled quotes. Semicolons where
        the line of column names has them and no comma, as spreadsheets write them where the comma is the decimal sign;
        numbers there may have a decimal comma.
.tsv    One line a row, tabs between fields, quotes are ordinary characters, as in GLUE's files. But a field that is
        quoted whole, every quote within doubled, as pandas writes it, is taken out of its quotes.
.jsonl  One object a line; columns are the keys in the order in which they first come.

UTF-8, with or without a byte order mark. Column names lose the spaces around them; blank lines are left out; a first
column without a name (pandas' index) is never taken for text or label. Columns are read as texts, labels or numbers;
an error names the first row that is something else.
"""

import csv
import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from electra_trainer.errors import DataError
from electra_trainer.files import reading
from electra_trainer.files.reading import half_character, short

SUFFIXES = (".csv", ".tsv", ".jsonl")
MAX_FIELD = 1_000_000
"""Characters of a text; what is longer is nearly always a quote left open."""
_MAX_LABEL = 200
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
"""A number as it is written in a file."""
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}([,' ])\d{3}(\1\d{3})*(\.\d*)?", re.ASCII)
"""A number with signs between thousands; `_SPACES` are the other signs that are written for these."""
_SPACES = str.maketrans("\u00a0\u2009\u202f\u2019\u2212", "   '-")
_SWAPPED = str.maketrans(".,", ",.")
_CELLS, _SPARSE = 1_000_000, 50
"""Most cells of a .jsonl table: that many, and that many for each value, so that memory grows with the file."""
_NAMED = {",": ".csv", "\t": ".tsv", ";": ".csv"}
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_QUOTING = (
    "the row is not CSV on line {last} ({error}). Put a field that holds a comma, a quote or a line end between double "
    'quotes, and write a quote in it twice ("").'
)
_CARRIAGE_RETURNS = (
    r"lines end in CR alone, as in files of old Macs. Expected LF or CR LF. Write them so: tr '\r' '\n' < OLD > NEW"
)
_RAGGED = {
    ".csv": "Put a field that holds a comma in double quotes.",
    ".tsv": "A field of a .tsv can hold neither a tab nor a line end: remove it, or save the file as .csv.",
}
_KINDS = {'[""': "a JSON list", "[''": "a list as Python prints it", "": "a printed list"}
_MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
_LISTS = "Write labels with the separator alone, or lists in a .jsonl file; marks of 0 and 1 as columns: --labels A,B"
SEVERAL = 'For several labels of a text give --label-separator ";" and write good;short, or a list in a .jsonl file'
MISSING = ("na", "n/a", "nan", "none", "null")
"""Words of a cell without a value, in small letters."""
UNITS = " \u00a0%\u2030\u00b0$\u20ac\u00a3\u00a5\u20b9"
_EXAMPLE = 'Expected an object such as {"text": "...", "label": "..."}, one a line.'


@dataclass(frozen=True, kw_only=True)
class Table:
    """A file's columns and rows."""

    path: Path
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    """Text in .csv and .tsv, JSON's values in .jsonl."""
    lines: Sequence[int]
    """Line on which each row begins, counted from 1."""
    sha256: str = ""
    """Hash of the file's bytes."""
    semicolons: bool = False
    """Whether it has semicolons between its columns, so that numbers may have a decimal comma."""

    def where(self, row: int) -> str:
        """`file:line` of a row."""
        return f"{self.path}:{self.lines[row]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


def parse(content: bytes, path: Path, *, suffix: str) -> Table:
    """The rows of a file's bytes.

    Args:
        content: decompressed.
        path: name of the file in messages.
        suffix: .csv, .tsv or .jsonl.

    Raises:
        DataError: not such a file; says file:line and what to do.
    """
    lines, digest = reading.lines(content, path, ends=True), hashlib.sha256(content).hexdigest()
    if suffix == ".jsonl":
        objects = (
            (number, reading.json_object(line, where=f"{path}:{number}", remedy=_EXAMPLE))
            for number, line in lines
            if line.strip()
        )
        return of_objects(path, objects, digest=digest)
    (_, columns), *numbered = stream(path, lines, suffix=suffix)
    if not numbered:
        raise DataError(f"{path}: holds column names ({shown(columns)}) and no rows.")
    rows, numbers = [row for _, row in numbered], [number for number, _ in numbered]
    head = next((line for _, line in reading.lines(content, path) if line.strip()), "")
    semicolons = suffix == ".csv" and _separator(head) == ";"
    return Table(path=path, columns=columns, rows=rows, lines=numbers, sha256=digest, semicolons=semicolons)


def _csv(path: Path | str, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each record and the line on which it begins."""
    head: list[str] = []
    for _, line in lines:
        head.append(line)
        if line.strip():
            break
    rest = (line for _, line in lines)
    separator = _separator("".join(head))
    spaced = f"{separator} " in "".join(head)
    reader = csv.reader(chain(head, rest), delimiter=separator, strict=True, skipinitialspace=spaced)
    before = csv.field_size_limit(reading.MOST_LINE)
    try:
        while True:
            first = reader.line_num + 1
            try:
                yield first, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "new-line character" in str(error):
                    raise DataError(f"{path}:{first}: {_CARRIAGE_RETURNS}") from None
                raise DataError(f"{path}:{first}: {_QUOTING.format(error=error, last=reader.line_num)}") from None
    finally:
        csv.field_size_limit(before)


def _separator(head: str) -> str:
    """The sign between the columns of a .csv, from its line of column names."""
    return ";" if ";" in head and "," not in head else ","


def _tsv(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """Fields of each line."""
    for number, line in lines:
        yield number, [_unquoted(field) for field in line.removesuffix("\n").removesuffix("\r").split("\t")]


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def stream(path: Path | str, lines: Iterator[tuple[int, str]], *, suffix: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The column names of a .csv or .tsv, then its rows, each with the line on which it begins; nothing is held but a
    row.

    Args:
        path: name of the file in messages.
        lines: numbered, with their ends (`reading.lines`).
        suffix: .csv or .tsv.

    Raises:
        DataError: as `parse` says.
    """
    columns: tuple[str, ...] = ()
    for number, fields in _csv(path, lines) if suffix == ".csv" else _tsv(lines):
        where = f"{path}:{number}"
        if len(fields) < 2 and not "".join(fields).strip():
            continue
        if not columns:
            columns = _header(where, suffix, [name.strip() for name in fields])
            yield number, columns
            continue
        if len(fields) != len(columns):
            expected = f"expected {len(columns)} fields ({shown(columns)}), found {len(fields)}"
            raise DataError(f"{where}: {expected}. {_RAGGED[suffix]}")
        yield number, tuple(fields)
    if not columns:
        raise DataError(f"{path}: is empty. Expected column names on the first line, then a row a line.")


def shown(names: Sequence[str], width: int = 62) -> str:
    """The first twelve of these names, each at most that wide, for a message."""
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(name[:width] for name in names[:12]) + more


def _header(where: str, suffix: str, names: list[str]) -> tuple[str, ...]:
    wanted = "," if suffix == ".csv" else "\t"
    faults = [
        f"{word} between the columns, expected {_SEPARATORS[wanted]} in a {suffix}. "
        f"{f'Rename it to {_NAMED[separator]}, or save' if separator in _NAMED else 'Save'} it with the right separator"
        for separator, word in _SEPARATORS.items()
        if len(names) == 1 and separator != wanted and separator in names[0]
    ]
    counts = Counter(names)
    for at, name in enumerate(names, 1):
        if NUMBER.fullmatch(name):
            faults.append(f"{short(name)} is not a column name. Put a line of column names on top of the file")
        if name and counts[name] > 1:
            faults.append(f"column {short(name)} occurs {counts[name]} times. Rename or remove one")
        if not name and at > 1:
            faults.append(f"column {at} has no name. Give it one, or remove the column")
        if faults:
            raise DataError(f"{where}: {faults[0]}.")
    return tuple(names)


def of_objects(path: Path, objects: Iterable[tuple[int, Mapping[str, Any]]], *, digest: str = "") -> Table:
    """A table of numbered mappings; its columns are their keys in the order in which they first come.

    Args:
        path: name of their source in messages.
        objects: each with its line or row.
        digest: hash of the source; "": the hash of the rows as JSON.

    Raises:
        DataError: no rows, no names, or far more columns than values.
    """
    found: list[tuple[int, Mapping[str, Any]]] = []
    columns: dict[str, None] = {}
    for number, row in objects:
        found.append((number, row))
        for key in row:
            columns.setdefault(reading.encodable(str(key), f"{path}:{number}: key {short(key)}"))
    if not any(columns):
        raise DataError(f"{path}: is empty, or holds objects without names only. {_EXAMPLE}")
    if len(found) * len(columns) > _CELLS + _SPARSE * sum(len(row) for _, row in found):
        sparse = f"{len(columns):,} different keys in {len(found):,} lines, over {_SPARSE} columns for each value"
        raise DataError(f"{path}: {sparse}. Write the same keys in every line. {_EXAMPLE}")
    digest = digest or hashlib.sha256(json.dumps([dict(row) for _, row in found], default=str).encode()).hexdigest()
    rows, numbers = [tuple(map(row.get, columns)) for _, row in found], [number for number, _ in found]
    return Table(path=path, columns=tuple(columns), rows=rows, lines=numbers, sha256=digest)


T = TypeVar("T")


def texts(table: Table, column: str) -> list[str]:
    """The texts of a column. Raises DataError if a row has none."""
    return _each(table, column, _text)


def labels(table: Table, column: str) -> list[str]:
    """The labels of a column without the spaces around them; JSON's integers and truth values as they are written
    there.
    """
    return _each(table, column, _label)


def label_lists(table: Table, column: str, separator: str) -> list[tuple[str, ...]]:
    """The labels of each cell, between separators or as JSON's list, each once; of an empty cell none."""

    def parted(cell: Any) -> list[Any]:
        return cell.split(separator) if isinstance(cell, str) else cell if isinstance(cell, list) else [cell]

    def read(cell: Any) -> tuple[str, ...]:
        if kind := (isinstance(cell, str) and listed.get(cell)) or (placed and "a mark for each label"):
            raise ValueError(f"holds {short(cell)}, {kind}. {_LISTS}")
        return tuple(dict.fromkeys(_label(part) for part in parted(cell) if str(part).strip()))

    cells = [cell for cell in table.column(column) if not _is_empty(cell)]
    listed = printed_lists([cell for cell in cells if isinstance(cell, str)], separator)
    lengths = {all(str(part).strip().lower() in _MARKS for part in parts) * len(parts) for parts in map(parted, cells)}
    placed = len(lengths) == 1 and max(lengths) > 1
    return _each(table, column, read, empty=())


def printed_lists(cells: Iterable[str], separator: str | None = None) -> dict[str, str]:
    """Cells that look like printed lists, with the kind of each. Where all are in brackets and one is surely a list,
    all are; labels such as [Music] or (unknown) are not. A separator within the brackets makes one too.
    """
    found = {cell: _printed(cell) for cell in dict.fromkeys(cells)}
    least = 0 if all(kind for kind, _ in found.values()) and any(sure for _, sure in found.values()) else 2
    listed = {cell: kind for cell, (kind, sure) in found.items() if kind and sure >= least}
    parts = {cell: cell.split(separator) for cell, (kind, _) in found.items() if kind and separator}
    return listed | {cell: found[cell][0] for cell, (first, *more) in parts.items() if more and not _printed(first)[0]}


def _printed(cell: str) -> tuple[str, int]:
    """The kind of list that a text in brackets looks like ("": it has none), and how surely: 2, or 1 if others are in
    brackets too, or 0 next to lists only, as for a word and for an interval such as [18, 25].
    """
    text = cell.strip()
    if re.match(r"[A-Za-z_][\w.]{0,40}\([\[({]", text) and text[-1] == ")":  # array([1, 0])
        return _KINDS[""], 2
    if f"{text[:1]}{text[-1:]}" not in ("[]", "()", "{}"):
        return "", 0
    inside = text[1:-1].strip()
    kind = _KINDS.get(text[0] + inside[:1] + inside[-1:], _KINDS[""])
    comma, items = "," in inside, re.split(r"[\s,]+", inside.strip(", "))
    values = [float(item) for item in items if NUMBER.fullmatch(item)]
    if comma and len(values) == len(items) == 2 and values[0] < values[1]:
        return kind, 0
    plain = len(values) + sum(map(("True", "False", "None", "nan").count, items)) == len(items)
    quoted = inside[:1] in ("'", '"') and inside.count(inside[0]) > 1
    sure = len(text) == 2 or quoted or (plain and (comma or (text[0] != "(" and (values or len(items) > 1))))
    return kind, 2 if sure else int(comma)


def marks(table: Table, column: str) -> list[bool]:
    """The marks of a column of 0 and 1. Raises DataError if a cell is something else."""
    return _each(table, column, _mark)


def decimal_sign(table: Table, column: str) -> tuple[str, list[str]]:
    """The decimal sign of a column of numbers (a comma only next to semicolons), and the cells with a sign if all of
    them could have it between thousands as well, as 1.036 could.
    """
    signed = [cell.strip() for cell in table.column(column) if isinstance(cell, str) and ("." in cell or "," in cell)]
    points, commas = (sum(plain_number(cell, sign) != "" for cell in signed) for sign in ".,")
    either = points == commas == len(signed)
    comma = table.semicolons and commas >= points and not (either and "." in "".join(signed))
    return "," if comma else ".", signed if either else []


def plain_number(written: str, sign: str) -> str:
    """A number with this decimal sign as Python reads it, without signs between thousands; "" for another text."""
    text = written.strip().translate(_SPACES)
    text = text if sign == "." else text.translate(_SWAPPED)
    text = re.sub("[,' ]", "", text) if _GROUPED.fullmatch(text) else text
    return text if NUMBER.fullmatch(text) else ""


def numbers(table: Table, column: str) -> list[float]:
    """The numbers of a column, read with one decimal sign. Raises DataError if one is not a finite number."""
    sign = decimal_sign(table, column)[0]

    def read(cell: Any) -> float:
        written = cell if isinstance(cell, str) else repr(cell)
        plain, other = (plain_number(written, one) for one in (sign, sign.translate(_SWAPPED)))
        if plain and math.isfinite(float(plain)):
            return float(plain)
        if table.semicolons and other and not plain:
            others = "comma" if sign == "," else "point"
            raise ValueError(f"holds {short(cell)}, and others a decimal {others}. Write one of 0,5 and 0.5 everywhere")
        unit = plain_number(written.strip(UNITS), sign) != plain
        remedy = "Remove the unit" if unit else "For classes: --task classification"
        if isinstance(cell, str) and other and not plain:
            remedy = f"Write a decimal point: {other}"
        elif written.strip().lower() in MISSING:
            remedy = "Delete the row if it has no number"
        raise ValueError(f"holds {short(cell)}, expected a finite number such as 3, 0.5 or 1e-3. {remedy}")

    return _each(table, column, read)


def _each(table: Table, column: str, read: Callable[[Any], T], *, empty: T | None = None) -> list[T]:
    """`read` of every cell, `empty` for one without content. Raises DataError naming the first row that it refuses."""
    found: list[T] = []
    cells = table.column(column)
    for row, cell in enumerate(cells):
        try:
            if _is_empty(cell):
                if empty is not None:
                    found.append(empty)
                    continue
                others = sum(map(_is_empty, cells)) - 1
                more = f" (as in {others:,} more row{'s' * (others > 1)})" if others else ""
                raise ValueError(f"is {'missing' if cell is None else 'empty'}{more}. Fill it in, or delete the row")
            found.append(read(cell))
        except ValueError as error:
            raise DataError(f"{table.where(row)}: column {column!r} {error}.") from None
    return found


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(f"holds {short(cell)}, expected a text (in JSON between double quotes)")
    if len(cell) > MAX_FIELD:
        raise ValueError(f"holds {len(cell):,} characters, more than {MAX_FIELD:,}. Cut it")
    if (at := half_character(cell)) is not None:
        raise ValueError(f"holds half of a surrogate pair at character {at + 1}. Repair the JSON")
    return cell


def _label(cell: Any) -> str:
    if isinstance(cell, bool | int):
        return str(cell).lower()
    if not isinstance(cell, str) or len(cell) > _MAX_LABEL:
        remedy = "Name the columns with --text and --label; for numbers, --task regression"
        raise ValueError(
            f"holds {short(cell)}, expected one label: a short text, a whole number or a truth value. "
            f"{SEVERAL if isinstance(cell, list) or (isinstance(cell, str) and printed_lists([cell])) else remedy}"
        )
    return unicodedata.normalize("NFC", _text(cell.strip()))


def _mark(cell: Any) -> bool:
    if (mark := _MARKS.get(str(cell).strip().lower())) is None:
        raise ValueError(f"holds {short(cell)}, expected 0 or 1. Labels between a separator: --label-separator")
    return mark
