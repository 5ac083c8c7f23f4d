r"""GLUE's tables as bytes -> examples: the official files, the same columns in any order, and the Hub's column names.

Fields stand between tabs and are never quoted (a `"` is a character of the text). Lines end at "\n" alone, with or without "\r" before it:
texts may hold U+2028 and the like. No torch here.

GLUE from the Hub (`nyu-mll/glue`), by the package `datasets`: the extra [hub].
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.reading import MOST_TEXT, read_file, short
from electra_trainer.finetuning.examples import TextExample

_IDS = ("index", "idx", "id")
_TORN = 1000


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a task's columns are called: the official name first, the Hub's after it."""

    text: tuple[str, ...]
    pair: tuple[str, ...] = ()
    """Empty: one text a row."""
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    """As the official files write them, in the order of the Hub's numbers. Empty: a number is asked for."""
    bounds: tuple[float, float] = (0.0, 5.0)
    """Least and greatest such number."""
    headless: tuple[str, ...] = ()
    """The columns of official training and dev files that have no header."""
    may_lack_one: bool = False
    """One text of a pair may be empty: some of Quora's questions are."""
    may_be_torn: bool = False
    """The first official training file has rows that a line end tore apart: QQP's, GLUE-baselines#5."""

    def is_pair(self) -> bool:
        return bool(self.pair)


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Where a file has what, counted from 0."""

    names: tuple[str, ...]
    text: int
    pair: int | None
    label: int | None
    id: int | None


def read_bytes(path: Path) -> bytes:
    """A file's content.

    Raises:
        MissingInputError, DataError, StorageError: it cannot be read.
    """
    return read_file(path, limit=MOST_TEXT)


def parse(content: bytes, layout: Layout, *, path: Path | str, labelled: bool) -> tuple[list[TextExample], int]:
    """The examples of a file, and how many torn lines were left out (`Layout.may_be_torn`).

    Args:
        path: what the file is called in messages.
        labelled: each row has its label; without, a column of labels is not read.

    Raises:
        DataError: anything that is no row; says file:line, what was expected and what to do.
    """
    lines = _lines(content, path)
    columns, first = _columns(lines, layout, path=path, labelled=labelled)
    examples: list[TextExample] = []
    torn: list[DataError] = []
    for number, line in enumerate(lines[first:], start=first + 1):
        where = f"{path}:{number}"
        fields = line.split("\t")
        if len(fields) != len(columns.names):
            wrong = _wrong_count(fields, columns, where=where)
            if not (layout.may_be_torn and labelled and len(fields) < len(columns.names)):
                raise wrong
            torn.append(wrong)
            continue
        examples.append(_example(fields, columns, layout, where=where))
    if len(torn) * _TORN > len(lines):
        raise torn[0]
    if not examples:
        raise DataError(f"{path}: holds no rows. It was cut short: fetch it again.")
    return examples, len(torn)


def _lines(content: bytes, path: Path | str) -> list[str]:
    """Lines without their ends; empty ones at the end of the file are no rows."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: is UTF-16. Save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{number}: not UTF-8 at byte {error.start} of the file. Save it as UTF-8.") from None
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{number}: NUL in the line: UTF-16, or no text at all. Save it as UTF-8 text.")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise DataError(f"{path}: is empty. Fetch it again.")
    return lines


def _columns(lines: Sequence[str], layout: Layout, *, path: Path | str, labelled: bool) -> tuple[_Columns, int]:
    """The columns, and how many lines are no rows: 1 for a header, 0 for none."""
    names = tuple(lines[0].split("\t"))
    first = 1
    if layout.headless and labelled and not set(names) & set(layout.text):
        if len(names) != len(layout.headless):
            raise DataError(
                f"{path}:1: expected {len(layout.headless)} fields between tabs ({', '.join(layout.headless)}) and no header, or a header "
                f"with {layout.text[0]} and {layout.label[0]}; found {len(names)}.{_tabs(names)}"
            )
        names, first = layout.headless, 0
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}:1: the header has the column {twice!r} twice. Rename or remove one.")
    columns = _Columns(
        names=names,
        text=_find(names, layout.text, path),
        pair=_find(names, layout.pair, path) if layout.is_pair() else None,
        label=_find(names, layout.label, path) if labelled else None,
        id=next((names.index(name) for name in _IDS if name in names), None),
    )
    return columns, first


def _find(names: Sequence[str], wanted: Sequence[str], path: Path | str) -> int:
    for name in wanted:
        if name in names:
            return names.index(name)
    hint = next((near for name in wanted if (near := did_you_mean(name, names))), "")
    raise DataError(
        f"{path}:1: the header has no column {' or '.join(map(repr, wanted))}.{hint} Found: {', '.join(map(repr, names[:20]))}."
        f"{_tabs(names)} Name the columns in the first line."
    )


def _wrong_count(fields: Sequence[str], columns: _Columns, *, where: str) -> DataError:
    if fields == [""]:
        return DataError(f"{where}: an empty line. Remove it.")
    return DataError(
        f"{where}: expected {len(columns.names)} fields between tabs ({', '.join(columns.names)}), found {len(fields)}."
        f"{_tabs(fields)} Mend or remove the line; a text can hold no tab and no line end."
    )


def _tabs(fields: Sequence[str]) -> str:
    return "" if len(fields) > 1 else " The line has no tab: is it a .csv, or did an editor replace the tabs?"


def _example(fields: Sequence[str], columns: _Columns, layout: Layout, *, where: str) -> TextExample:
    text = fields[columns.text]
    pair = None if columns.pair is None else fields[columns.pair]
    empty = [
        columns.names[index]
        for index in (columns.text, columns.pair)
        if index is not None and not fields[index].strip()
    ]
    if empty and not (layout.may_lack_one and len(empty) < 2):
        raise DataError(f"{where}: {empty[0]} is empty. Expected a text; fill it in or remove the line.")
    label = value = None
    if columns.label is not None:
        if layout.labels:
            label = read_label(fields[columns.label], layout.labels, where=where)
        else:
            value = read_number(fields[columns.label], layout.bounds, where=where)
    name = None if columns.id is None else fields[columns.id]
    return TextExample(text=text, pair=pair, label=label, value=value, place=where, id=name)


def read_label(written: str, labels: Sequence[str], *, where: str) -> str:
    """A label in the official files' words, from these or from the Hub's number.

    Raises:
        DataError: neither.
    """
    if written in labels:
        return written
    numbers = [str(index) for index in range(len(labels))]
    if written in numbers:
        return labels[int(written)]
    known = ", ".join(labels) + ("" if numbers == list(labels) else f" (or {', '.join(numbers)} in this order)")
    if written == "-":
        raise DataError(f"{where}: label '-' marks a pair on which annotators did not agree. Remove such lines.")
    if written == "-1":
        raise DataError(f"{where}: label '-1' stands for a hidden one. Expected one of: {known}. Test sets have none.")
    raise DataError(
        f"{where}: unknown label {short(written)}.{did_you_mean(written, labels)} Expected one of: {known}. Mend or remove the line."
    )


def read_number(written: str, bounds: tuple[float, float], *, where: str) -> float:
    """A score within `bounds`.

    Raises:
        DataError: no number, or out of them.
    """
    low, high = bounds
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise DataError(
            f"{where}: score {short(written)}: expected a number from {low:g} to {high:g}. Mend or remove the line."
        )
    return value


REPOSITORY = "nyu-mll/glue"


def read_hub(config: str, split: str, layout: Layout, *, labelled: bool) -> list[TextExample]:
    """A split, with labels in the official files' words.

    Args:
        config: the task's name there: `cola`, `sst2` ...
        split: `train`, `validation`, `validation_matched`, `test` ...

    Raises:
        ConfigError: `datasets` is not installed, or the Hub cannot be asked. DataError: a row that is none.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            "--data hub: needs the package datasets. Type: pip install 'electra-trainer[hub]', or give GLUE's folder."
        ) from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(REPOSITORY, config, split=split)
    except Exception as error:  # the package lets through whatever its network library raises
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"--data hub: {REPOSITORY} ({config}, {split}) could not be read ({said}). Check the network, or give GLUE's folder."
        ) from None
    examples = [
        _hub_example(row, layout, labelled=labelled, where=f"{REPOSITORY} {config} {split}:{number}")
        for number, row in enumerate(rows)
    ]
    if not examples:
        raise DataError(f"{REPOSITORY} {config} {split}: holds no rows.")
    return examples


def _hub_example(row: Mapping[str, Any], layout: Layout, *, labelled: bool, where: str) -> TextExample:
    text = _field(row, layout.text, where=where)
    pair = _field(row, layout.pair, where=where) if layout.is_pair() else None
    label = value = None
    if labelled:
        written = str(_field(row, layout.label, where=where))
        if layout.labels:
            label = read_label(written, layout.labels, where=where)
        else:
            value = read_number(written, layout.bounds, where=where)
    return TextExample(
        text=str(text),
        pair=None if pair is None else str(pair),
        label=label,
        value=value,
        place=where,
        id=str(row["idx"]) if "idx" in row else None,
    )


def _field(row: Mapping[str, Any], names: tuple[str, ...], *, where: str) -> Any:
    for name in names:
        if row.get(name) is not None:
            return row[name]
    raise DataError(f"{where}: has no {' or '.join(names)}. The repository has changed: give GLUE's folder.")


def as_bytes(examples: Iterable[TextExample]) -> bytes:
    """What a hash of them is taken of."""
    rows = ([one.id, one.text, one.pair, one.label, one.value] for one in examples)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
