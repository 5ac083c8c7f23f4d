r"""Fields of .csv (RFC 4180) and of .tsv (quotes are ordinary characters), and the names on the first line: see table_files.py."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError

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
