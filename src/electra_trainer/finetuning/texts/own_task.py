"""A task of your own: classification or regression of texts or pairs, from .csv, .tsv or .jsonl."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np

from electra_trainer.errors import DataError
from electra_trainer.files.tables import NUMBER, Table, labels, numbers, read_table_file
from electra_trainer.finetuning.examples import (
    Columns,
    TextExample,
    as_trained,
    choose_columns,
    choose_texts,
    predicted_csv,
    text_examples,
)
from electra_trainer.finetuning.task import Task, TaskData, hash_files
from electra_trainer.finetuning.texts import splits, tasks

SMALL = 10_000
"""A training file with fewer lines is passed over 10 times (Table 6: 10 for the small RTE and STS-B, 3 for others)."""
EPOCHS = 3.0
"""For larger files."""


@dataclass(frozen=True, kw_only=True)
class OwnTask:
    """Files of texts, and whether their answers are labels or numbers."""

    train: str | Path
    dev: str | Path | None = None
    """None: a tenth of the training rows is held out."""
    predict: str | Path | None = None
    """Texts without labels."""
    kind: Literal["classification", "regression"] = "classification"
    text: str | None = None
    """Columns; None: see examples.py."""
    text_pair: str | None = None
    label: str | None = None

    @property
    def name(self) -> str:
        return self.kind

    @cached_property
    def epochs(self) -> float:
        return 10.0 if _lines_in(Path(self.train)) < SMALL else EPOCHS

    def load(self) -> TaskData:
        """Read and check all files.

        Raises:
            MissingInputError, StorageError: a file cannot be read. ConfigError: a column is missing, or must be named.
            DataError: a row, or the labels as a whole, cannot be used; with file:line.
        """
        table = read_table_file(Path(self.train))
        columns = choose_columns(table, text=self.text, text_pair=self.text_pair, label=self.label)
        train = _examples(table, columns, self.kind)
        make = _classes if self.kind == "classification" else _range
        make(train, table.path)  # unusable labels are found before some are held out
        hashes, notes = {"train": table.sha256}, [columns.described()]
        if self.dev is None:
            train, dev = splits.hold_out(train, where=str(table.path))
            notes.append(
                f"no development file: {len(dev):,} of {len(table.rows):,} rows were held out, chosen by a hash of the "
                "text; no text is on both sides."
            )
        else:
            other = read_table_file(Path(self.dev))
            dev = _examples(other, as_trained(other, columns), self.kind)
            hashes["dev"] = other.sha256
            notes += splits.overlap(train, dev)
        task, note = make(train, table.path)
        if isinstance(task, tasks.Classification):
            _known_labels(dev, task.labels, columns)
        test, written = {}, None
        if self.predict is not None:
            asked = read_table_file(Path(self.predict))
            test = {"predict": text_examples(asked, choose_texts(asked, columns))}
            hashes["predict"] = asked.sha256
            written = "predictions.csv", partial(predicted_csv, asked)
        short = f"fewer than {SMALL:,} lines: without --epochs {self.epochs:g} epochs, for larger files {EPOCHS:g}."
        hashes["columns"] = json.dumps(asdict(columns))
        return TaskData(
            task=task,
            train=train,
            dev={"dev": dev},
            test=test,
            notes=(*notes, note),
            columns=columns,
            written=written,
            defaults={} if self.epochs == EPOCHS else {"epochs": short},
            sha256=hash_files({name: content.encode() for name, content in hashes.items()}),
        )


def _examples(table: Table, columns: Columns, kind: str) -> list[TextExample]:
    assert columns.label is not None
    bare = text_examples(table, columns)
    if kind == "regression":
        return [replace(one, value=value) for one, value in zip(bare, numbers(table, columns.label), strict=True)]
    return [replace(one, label=name) for one, name in zip(bare, labels(table, columns.label), strict=True)]


def _classes(train: Sequence[TextExample], path: Path) -> tuple[Task, str]:
    """The task, its labels in order: numbers by size, others by letters."""
    counts = Counter(str(example.label) for example in train)
    names = sorted(counts)
    if len(names) == 1:
        raise DataError(f"{path}: all rows have the label {names[0]!r}. Expected two classes or more.")
    if len(names) == len(train) > 2 or len(names) > max(50, len(train) // 2):
        raise DataError(
            f"{path}: {len(names):,} different labels in {len(train):,} rows, for example {names[0]!r} and "
            f"{names[1]!r}. Name the columns with --text and --label; numbers are learned with --task regression."
        )
    if all(NUMBER.fullmatch(name) for name in names):
        names.sort(key=lambda name: (float(name), name))
    shown = ", ".join(f"{name} {counts[name]:,}" for name in names[:10]) + (" and others" if len(names) > 10 else "")
    note = f"{len(names)} classes in {len(train):,} training rows: {shown}."
    return tasks.Classification(labels=tuple(names), metrics=("accuracy", "macro_f1", "matthews")), note


def _range(train: Sequence[TextExample], path: Path) -> tuple[Task, str]:
    """The task, its numbers scaled to mean 0 and standard deviation 1."""
    values = np.array([example.value for example in train], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        scale, mean = float(np.std(values)), float(np.mean(values))
    if not 0 < scale < np.inf:
        raise DataError(
            f"{path}: all rows have the value {values[0]:g}. Expected numbers that differ."
            if scale == 0
            else f"{path}: the values reach {np.abs(values).max():g}, too large to compute with. Divide them."
        )
    note = (
        f"{len(values):,} training rows with values from {values.min():g} to {values.max():g}, mean {mean:.4g}, "
        f"standard deviation {scale:.4g}."
    )
    return tasks.Regression(shift=mean, scale=scale), note


def _known_labels(dev: Sequence[TextExample], known: Sequence[str], columns: Columns) -> None:
    for example in dev:
        if example.label not in known:
            raise DataError(
                f"{example.place}: label {example.label!r} in column {columns.label!r} never occurs in the training "
                f"file. Its labels: {', '.join(map(repr, known[:12]))}{' and others' if len(known) > 12 else ''}."
            )


def _lines_in(path: Path) -> int:
    """Line ends in a file; 0 if it cannot be read, which `load` reports."""
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except (OSError, ValueError):
        return 0
