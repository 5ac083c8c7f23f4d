r"""Read GLUE's tables: the official files, the same columns in any order, and the Hub's rows (`nyu-mll/glue`).

Fields are separated by tabs and never quoted (a `"` is a character of the text). Lines end at "\n" alone, with or
without "\r" before it: texts may hold U+2028 and the like. The Hub is read by the package `datasets`: the extra [hub].
No torch here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from electra_trainer.errors import ConfigError, DataError, did_you_mean, install
from electra_trainer.files import reading, tables
from electra_trainer.finetuning.examples import TextExample

_IDS = ("index", "idx", "id")
_TORN = 1000
"""One line in 1,000 may be torn."""
REPOSITORY = "nyu-mll/glue"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Names of a task's columns: the official one first, the Hub's after it."""

    text: tuple[str, ...]
    pair: tuple[str, ...] = ()
    """Empty: one text a row."""
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ()
    """Labels as the official files write them, in the order of the Hub's numbers. Empty: the label is a number."""
    bounds: tuple[float, float] = (0.0, 5.0)
    """Least and greatest number."""
    headless: tuple[str, ...] = ()
    """The columns of official training and dev files that have no header."""
    may_lack_one: bool = False
    """One text of a pair may be empty: some of Quora's questions are."""
    may_be_torn: bool = False
    """A line end tore rows of the first official training file apart: QQP's, GLUE-baselines#5."""


def parse(content: bytes, layout: Layout, *, path: Path | str, labelled: bool) -> tuple[list[TextExample], int]:
    """The examples of a file, and the number of torn lines that were left out (`Layout.may_be_torn`).

    Args:
        path: name of the file in messages.
        labelled: each row has its label; otherwise a column of labels is not read.

    Raises:
        DataError: a malformed line; says file:line, what was expected and what to do.
    """
    lines = [(number, line.split("\t")) for number, line in reading.lines(content, path)]
    while lines and lines[-1][1] == [""]:
        lines.pop()
    if not lines:
        raise DataError(f"{path}: is empty. Fetch it again.")
    columns = _header(lines[0][1], layout, path=path, labelled=labelled)
    headless = columns is layout.headless
    remedy = " Name the columns in the first line, with tabs between them."
    places = _places(columns, layout, labelled=labelled, header=f"{path}:1: the header", remedy=remedy)
    torn: list[DataError] = []
    rows: dict[int, tuple[str, ...]] = {}
    for number, fields in lines if headless else lines[1:]:
        if len(fields) == len(columns):
            rows[number] = tuple(fields)
            continue
        torn.append(_wrong_count(fields, columns, where=f"{path}:{number}"))
        if not (layout.may_be_torn and labelled and len(fields) < len(columns)):
            raise torn[-1]
    if len(torn) * _TORN > len(lines):
        raise torn[0]
    if not rows:
        raise DataError(f"{path}: holds no rows. It was cut short: fetch it again.")
    table = tables.Table(path=Path(path), columns=columns, rows=[*rows.values()], lines=[*rows])
    return _examples(table, places, layout), len(torn)


def _header(names: Sequence[str], layout: Layout, *, path: Path | str, labelled: bool) -> tuple[str, ...]:
    """The columns; `layout.headless` where the first line is a row already."""
    if layout.headless and labelled and not set(names) & set(layout.text):
        if len(names) != len(layout.headless):
            raise _wrong_count(names, layout.headless, where=f"{path}:1")
        return layout.headless
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path}:1: the header has the column {twice!r} twice. Rename or remove one.")
    return tuple(names)


def _wrong_count(fields: Sequence[str], columns: Sequence[str], *, where: str) -> DataError:
    return DataError(
        f"{where}: expected {len(columns)} fields between tabs ({', '.join(columns)}), found {len(fields)}. Mend or "
        "remove the line; a text can hold neither a tab nor a line end."
    )


class _Places(NamedTuple):
    """Where a row has what, counted from 0."""

    texts: tuple[int, ...]
    label: int | None
    id: int | None


def _places(names: Sequence[str], layout: Layout, *, labelled: bool, header: str, remedy: str) -> _Places:
    """The columns of a layout; `header` and `remedy` begin and end the error on one that is not there."""

    def find(wanted: Sequence[str]) -> int:
        at = next((names.index(name) for name in wanted if name in names), None)
        if at is None:
            hint = next((near for name in wanted if (near := did_you_mean(name, names))), "")
            raise DataError(
                f"{header} has no column {' or '.join(map(repr, wanted))}.{hint} Found: "
                f"{', '.join(map(repr, names[:20]))}.{remedy}"
            )
        return at

    return _Places(
        tuple(find(wanted) for wanted in (layout.text, layout.pair) if wanted),
        find(layout.label) if labelled else None,
        next((names.index(name) for name in _IDS if name in names), None),
    )


def _examples(table: tables.Table, places: _Places, layout: Layout) -> list[TextExample]:
    examples = []
    for number, row in enumerate(table.rows):
        where = table.where(number)
        texts = ["" if row[at] is None else str(row[at]) for at in places.texts]
        empty = [table.columns[at] for at, text in zip(places.texts, texts, strict=True) if not text.strip()]
        if empty and not (layout.may_lack_one and len(empty) < 2):
            raise DataError(f"{where}: {empty[0]} is empty. Expected a text; fill it in or remove the line.")
        label = value = None
        if places.label is not None and layout.labels:
            label = read_label(str(row[places.label]), layout.labels, where=where)
        elif places.label is not None:
            value = read_number(str(row[places.label]), layout.bounds, where=where)
        name, pair = None if places.id is None else str(row[places.id]), texts[1] if layout.pair else None
        examples.append(TextExample(text=texts[0], pair=pair, label=label, value=value, place=where, id=name))
    return examples


def read_label(written: str, labels: Sequence[str], *, where: str) -> str:
    """A label in the official files' words, from those words or from the Hub's number; DataError if it is neither."""
    if written in labels:
        return written
    numbers = [str(index) for index in range(len(labels))]
    if written in numbers:
        return labels[int(written)]
    known = ", ".join(labels) + ("" if numbers == list(labels) else f" (or {', '.join(numbers)} in this order)")
    near = "" if written.lstrip("-").isdecimal() else did_you_mean(written, labels)
    raise DataError(
        f"{where}: unknown label {reading.short(written)}.{near} Expected one of: {known}. Mend or remove the line."
    )


def read_number(written: str, bounds: tuple[float, float], *, where: str) -> float:
    """A score within `bounds`.

    Raises:
        DataError: not a number, or outside of them.
    """
    low, high = bounds
    with suppress(ValueError):
        if low <= (value := float(written)) <= high:
            return value
    raise DataError(
        f"{where}: score {reading.short(written)}: expected a number from {low:g} to {high:g}. Mend or remove the line."
    )


def read_hub(config: str, split: str, layout: Layout, *, labelled: bool) -> list[TextExample]:
    """A split, with labels in the official files' words.

    Args:
        config: the task's name there: `cola`, `sst2` ...
        split: `train`, `validation`, `validation_matched`, `test` ...

    Raises:
        ConfigError: `datasets` is not installed, or the Hub cannot be asked. DataError: a malformed row.
    """
    try:
        import datasets
    except ImportError:
        raise ConfigError(
            f"--data hub: needs the package datasets. Give GLUE's folder, or type, {install('hub')}"
        ) from None
    try:
        rows: Iterable[Mapping[str, Any]] = datasets.load_dataset(REPOSITORY, config, split=split)
    except Exception as error:  # the package lets through whatever its network library raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"--data hub: {REPOSITORY} ({config}, {split}) could not be read ({reason}). Check the network, or give "
            "GLUE's folder."
        ) from None
    split_name, found = f"{REPOSITORY} {config} {split}", [dict(row) for row in rows]
    if not found:
        raise DataError(f"{split_name}: holds no rows.")
    names = tuple(found[0])
    table = tables.Table(
        path=Path(split_name),
        columns=names,
        rows=[tuple(map(row.get, names)) for row in found],
        lines=range(len(found)),
    )
    remedy = " The repository has changed: give GLUE's folder."
    places = _places(names, layout, labelled=labelled, header=f"{split_name}:0: the row", remedy=remedy)
    return _examples(table, places, layout)


def as_bytes(examples: Iterable[TextExample]) -> bytes:
    """Examples as bytes to hash."""
    rows = ([one.id, one.text, one.pair, one.label, one.value] for one in examples)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
