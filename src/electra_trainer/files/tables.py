"""A table in memory: rows of any input (rows.py), whose columns are read as texts, labels or numbers.

Column names lose the spaces around them; a first column without a name (pandas' index) is never taken for text or
label. An error names the first row that is something else.
"""

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from electra_trainer.errors import DataError
from electra_trainer.files import reading
from electra_trainer.files.opening import Fault, Rows
from electra_trainer.files.reading import half_character, short

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
_MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
_LISTS = "Write labels with the separator alone, or lists in a .jsonl file; marks of 0 and 1 as columns: --labels A,B"
SEVERAL = 'For several labels of a text give --label-separator ";" and write good;short, or a list in a .jsonl file'
MISSING = ("na", "n/a", "nan", "none", "null")
"""Words of a cell without a value, in small letters."""
UNITS = " \u00a0%\u2030\u00b0$\u20ac\u00a3\u00a5\u20b9"
_EXAMPLE = 'Expected rows such as {"text": "...", "label": "..."}, in JSON an object a line.'


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
    marked: bool = False
    """Whether it begins with a byte order mark, as spreadsheets write UTF-8."""

    def where(self, row: int) -> str:
        """`file:line` of a row."""
        return f"{self.path}:{self.lines[row]}"

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""
        at = self.columns.index(name)
        return [row[at] for row in self.rows]


def shown(names: Sequence[str], width: int = 62) -> str:
    """The first twelve of these names, each at most that wide, for a message."""
    more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
    return ", ".join(name[:width] for name in names[:12]) + more


def of_rows(path: Path, rows: Rows, *, digest: str = "") -> Table:
    """A table of rows; its columns are their keys in the order in which they first come.

    Args:
        path: name of their source in messages.
        rows: each with its line or number.
        digest: hash of the source; "": the hash of the rows as JSON.

    Raises:
        DataError: a row that cannot be read, no rows, no names, or far more columns than values.
    """
    found: list[tuple[int, Mapping[str, Any]]] = []
    columns: dict[str, None] = {}
    for row, number in rows:
        if isinstance(row, Fault):
            raise row.error(str(path), number, _EXAMPLE)
        found.append((number, row))
        for key in row:
            columns.setdefault(reading.encodable(str(key), f"{path}:{number}: key {short(key)}"))
    if not any(columns):
        raise DataError(f"{path}: is empty, or holds no rows with names of columns. {_EXAMPLE}")
    if len(found) * len(columns) > _CELLS + _SPARSE * sum(len(row) for _, row in found):
        sparse = f"{len(columns):,} different keys in {len(found):,} lines, over {_SPARSE} columns for each value"
        raise DataError(f"{path}: {sparse}. Write the same keys in every line. {_EXAMPLE}")
    digest = digest or hashlib.sha256(json.dumps([dict(row) for _, row in found], default=str).encode()).hexdigest()
    values, numbers = [tuple(map(row.get, columns)) for _, row in found], [number for number, _ in found]
    return Table(path=path, columns=tuple(columns), rows=values, lines=numbers, sha256=digest)


def with_content(table: Table, *columns: str | None) -> tuple[Table, Sequence[int]]:
    """The rows with something in each of these columns, and their places; all rows if there is none."""
    places = [table.columns.index(name) for name in columns if name is not None]
    kept = [at for at, row in enumerate(table.rows) if not any(_is_empty(row[place]) for place in places)]
    kept = kept or list(range(len(table.rows)))
    return replace(table, rows=[table.rows[at] for at in kept], lines=[table.lines[at] for at in kept]), kept


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
        if placed or looks_listed(cell):
            kind = "a mark for each label" if placed else "a printed list"
            raise ValueError(f"holds {short(cell)}, {kind}. {_LISTS}")
        return tuple(dict.fromkeys(_label(part) for part in parted(cell) if str(part).strip()))

    cells = [parted(cell) for cell in table.column(column) if not _is_empty(cell)]
    lengths = {all(str(part).strip().lower() in _MARKS for part in parts) * len(parts) for parts in cells}
    placed = len(lengths) == 1 and max(lengths) > 1
    return _each(table, column, read, empty=())


def looks_listed(cell: Any) -> bool:
    """Whether a text looks like a list that a program printed: in brackets, with quotes, commas or numbers in it. An
    interval such as [18, 25] and words such as (unknown) do not.
    """
    text = cell.strip() if isinstance(cell, str) else ""
    inside = text[1:-1].strip()
    if re.fullmatch(r"[A-Za-z_][\w.]{0,40}\([\[({].*\)", text, re.DOTALL):  # array([1, 0])
        return True
    if f"{text[:1]}{text[-1:]}" not in ("[]", "()", "{}"):
        return False
    items = re.split(r"[\s,]+", inside.strip(", "))
    values = [float(item) for item in items if NUMBER.fullmatch(item)]
    if len(values) == len(items) == 2 and "," in inside and values[0] < values[1]:
        return False
    quoted = inside[:1] in ("'", '"') and inside.count(inside[0]) > 1
    plain = len(values) + sum(map(("True", "False", "None", "nan").count, items)) == len(items)
    is_square, has_comma = text[0] == "[", "," in inside
    return len(text) == 2 or quoted or (plain and (is_square or has_comma)) or (is_square and has_comma)


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
            f"{SEVERAL if isinstance(cell, list) or looks_listed(cell) else remedy}"
        )
    return unicodedata.normalize("NFC", _text(cell.strip()))


def _mark(cell: Any) -> bool:
    if (mark := _MARKS.get(str(cell).strip().lower())) is None:
        raise ValueError(f"holds {short(cell)}, expected 0 or 1. Labels between a separator: --label-separator")
    return mark
