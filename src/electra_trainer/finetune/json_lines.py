"""Objects of .jsonl: see table_files.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError
from electra_trainer.finetune.separated import MAX_COLUMNS
from electra_trainer.reading import parse_json, short


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
