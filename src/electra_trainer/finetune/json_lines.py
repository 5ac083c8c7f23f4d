"""Objects of .jsonl: see table_files.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError
from electra_trainer.finetune.separated import MAX_COLUMNS


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


def _object(where: str, line: str) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) < len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{where}: key {twice!r} stands there twice. Remove one.")
        return table

    try:
        value = json.loads(line, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        column = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise DataError(f"{where}: not JSON{column}: {said}. Expected one object a line.") from None
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a text", int: "a number", float: "a number"}.get(type(value), repr(value))
        raise DataError(
            f'{where}: is {kind}, expected an object such as {{"text": "...", "label": "..."}}, one a line.'
        )
    return value
