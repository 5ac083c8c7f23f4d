"""Read the cells of a table's column as texts, labels or numbers; an error names the first row that is something else."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from electra_trainer.errors import DataError
from electra_trainer.files.reading import half_character, short
from electra_trainer.files.tables import MAX_FIELD, NUMBER, Table

T = TypeVar("T")
_MAX_LABEL = 200


def texts(table: Table, column: str) -> list[str]:
    """The texts of a column; DataError: a row has none."""
    return _each(table, column, _text)


def labels(table: Table, column: str) -> list[str]:
    """The labels of a column without the spaces around them; JSON's integers and truth values as they are written there."""
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
        raise ValueError(f"holds {short(cell)}, expected one label: a text, a whole number or a truth value.{hint}")
    label = cell.strip()
    if len(label) > _MAX_LABEL:
        raise ValueError(
            f"holds {len(label):,} characters, too many for a label. Is this the text? Name the columns: --text, --label"
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
