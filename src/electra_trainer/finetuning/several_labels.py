"""Several labels for one text, recognised in one column (`business;usa`) or in columns of 0 and 1. One label per text
is learned. No torch here.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

_PLAIN = ";|"
"""Separators that a label hardly has for another reason."""
_COMMON = ",/+&"
"""Separators that also occur within one label, such as "Paris, France"."""
_MARKS = "[](){}"
_QUOTES = "'\" "
_DECIMAL = re.compile(r"\d+(,\d+)?")
"""A number with a decimal comma."""
_YES_OR_NO = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}


def in_one_column(labels: Collection[str]) -> str:
    """A sentence on labels that are several in one, and what to do; empty where none is recognised.

    A part has to occur in another label too; of separators that single labels have as well, most parts; between spaces
    all, as labels alone.
    """
    for separator in _PLAIN + _COMMON + " ":
        parts = {label: _parts(label, separator) for label in labels}
        joined = [label for label, found in parts.items() if len(found) > 1]
        if not joined or (separator == "," and all(_DECIMAL.fullmatch(label) for label in labels)):
            continue
        if separator == " " and not {part for label in joined for part in parts[label]} <= set(labels):
            continue
        counts = Counter(part for found in parts.values() for part in set(found))
        shared, written_as_lists = (
            sum(count > 1 for count in counts.values()),
            all(re.match(r"[\[({]", one) for one in labels),
        )
        if shared and (separator in _PLAIN or written_as_lists or 2 * shared > len(counts)):
            return (
                f"{len(joined)} of the {len(labels)} labels are several in one, such as {joined[0]!r} "
                f"({' and '.join(parts[joined[0]])}). One "
                "label per text is learned, so each combination is a separate class. Keep one label in each row; or "
                "write a column of yes and "
                "no for each label, and train a model for each with --label COLUMN."
            )
    return ""


def _parts(label: str, separator: str) -> list[str]:
    found = (part.strip(_QUOTES) for part in label.strip().strip(_MARKS).split(separator))
    return [part for part in found if part]


def in_columns(columns: Mapping[str, Sequence[Any]]) -> str:
    """A sentence on columns of 0 and 1, a label each, and what to do; empty for fewer than two of them."""
    found = {name: read for name, cells in columns.items() if (read := _yes_or_no(cells)) is not None}
    if len(found) < 2:
        return ""
    several = sum(sum(row) > 1 for row in zip(*found.values(), strict=True))
    names = ", ".join(map(repr, list(found)[:6])) + (f" and {len(found) - 6} more" if len(found) > 6 else "")
    many = f"{several:,} rows have several" if several else "no row has two"
    first = next(iter(found))
    return (
        f"the columns {names} hold 0 and 1, as one label each ({many}), and one label per text is learned. Write the "
        "name of each row's label "
        f"into one column; or learn a single one as yes or no: --label {first if first.isidentifier() else repr(first)}"
    )


def _yes_or_no(cells: Sequence[Any]) -> list[bool] | None:
    """The cells of a column of 0 and 1; None for another column."""
    read = [_YES_OR_NO.get(str(cell).strip().lower()) for cell in cells]
    known = [one for one in read if one is not None]
    return known if len(known) == len(read) and len(set(known)) == 2 else None
