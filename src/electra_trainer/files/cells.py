"""A cell of a table as a text, a label or a number; what it cannot be is an error that says the line."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from electra_trainer.errors import DataError
from electra_trainer.files.tables import MAX_FIELD, NUMBER, Table

T = TypeVar("T")
_MAX_LABEL = 200


def texts(table: Table, column: str) -> list[str]:
    """The texts of a column; DataError: a row has none."""
    return _each(table, column, _text)


def labels(table: Table, column: str) -> list[str]:
    """The labels of a column, spaces around them removed; JSON's integers and truth values as they are written there."""
    return _each(table, column, _label)


def numbers(table: Table, column: str) -> list[float]:
    """The numbers of a column; DataError: one is no finite number."""
    return _each(table, column, _number)


def _each(table: Table, column: str, read: Callable[[Any], T]) -> list[T]:
    """`read` of every cell; the first row that it refuses is named, the others counted."""
    found: list[T] = []
    refused: list[tuple[int, str]] = []
    for row, cell in enumerate(table.column(column)):
        try:
            found.append(read(cell))
        except ValueError as error:
            refused.append((row, str(error)))
    if refused:
        row, message = refused[0]
        others = ", ".join(str(table.lines[row]) for row, _ in refused[1:4])
        more = (
            f" So it is, or is like it, in {len(refused) - 1:,} more rows (line {others})." if len(refused) > 1 else ""
        )
        raise DataError(f"{table.where(row)}: column {column!r} {message}{more}")
    return found


def _text(cell: Any) -> str:
    if cell is None:
        raise ValueError("is missing. Give the row a text, or delete it.")
    if not isinstance(cell, str):
        raise ValueError(f"holds {_shown(cell)}, expected a text (in JSON between double quotes).")
    if not cell.strip():
        raise ValueError("is empty. Fill it in, or delete the row.")
    if len(cell) > MAX_FIELD:
        raise ValueError(f"holds {len(cell):,} characters, more than {MAX_FIELD:,}. Cut it.")
    return _encodable(cell)


def _label(cell: Any) -> str:
    if cell is None:
        raise ValueError("is missing. Give the row a label, or delete it.")
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float):
        raise ValueError(
            f"holds {cell}, expected a label: a text, a whole number or a truth value. For numbers: --task regression"
        )
    if not isinstance(cell, str):
        raise ValueError(f"holds {_shown(cell)}, expected one label: a text, a whole number or a truth value.")
    label = cell.strip()
    if not label:
        raise ValueError("is empty. Fill it in, or delete the row.")
    if len(label) > _MAX_LABEL:
        raise ValueError(
            f"holds {len(label):,} characters, which is no label. Is this the text? Name the columns: --text, --label"
        )
    return _encodable(label)


def _number(cell: Any) -> float:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        raise ValueError("is empty. Give the row a number, or delete it.")
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise ValueError(f"holds {_shown(cell)}, expected a number.")
    written = cell.strip() if isinstance(cell, str) else repr(cell)
    if written.casefold().strip("+-") in ("nan", "inf", "infinity"):
        raise ValueError(f"holds {_shown(cell)}, expected a finite number. Delete the row.")
    if not NUMBER.fullmatch(written):
        comma = NUMBER.fullmatch(written.replace(",", ".", 1))
        hint = "Write a point for the decimal comma." if comma else "For classes: --task classification"
        raise ValueError(f"holds {_shown(cell)}, expected a number such as 3, 0.5 or 1e-3. {hint}")
    value = float(written)
    if not math.isfinite(value):
        raise ValueError(f"holds {_shown(cell)}, which is too large. Delete the row.")
    return value


def _encodable(text: str) -> str:
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"holds half of a surrogate pair at character {error.start + 1}. Repair the JSON."
            ) from None
    return text


def _shown(cell: Any) -> str:
    words = repr(cell)
    return words if len(words) <= 60 else words[:57] + "..."
