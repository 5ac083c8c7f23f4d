r"""GLUE as a table of rows, one a task (glue_tasks.toml), and where a task's data come from. No torch here.

The paper's metrics come first (§3.1: Matthews correlation for CoLA, Spearman for STS-B, accuracy for the others),
GLUE's own after them; epochs are Table 6's. AX has no training set: the MNLI model predicts it.

Data are the official files, the same columns in any order, or the Hub's rows (`nyu-mll/glue`). Fields are separated by
tabs and never quoted (a `"` is a character of the text). Lines end at "\n" alone, with or without "\r" before it: texts
may hold U+2028 and the like.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.files import reading, tables
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.files.rows import read_rows
from electra_trainer.settings import records
from electra_trainer.tasks.examples import TextExample, overlap
from electra_trainer.tasks.task import TaskData, TaskSource, hash_files

HUB = "hub"
"""Instead of a folder: from the Hub."""
REPOSITORY = "nyu-mll/glue"
_IDS = ("index", "idx", "id")


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


@dataclass(frozen=True, kw_only=True)
class GlueRow:
    """The facts of a task."""

    name: str
    """On the command line, in folders and on the Hub."""
    folder: str
    """The official name."""
    layout: Layout
    column: str = ""
    """Title of the paper's column; empty: it has none."""
    metrics: tuple[str, ...] = ("accuracy",)
    epochs: float = 3.0
    unordered: bool = False
    """The two texts of a pair may be swapped."""
    train: int = 0
    """Rows of GLUE's training set; below, of its other splits."""
    dev: Mapping[str, int] = field(default_factory=dict)
    test: Mapping[str, int] = field(default_factory=dict)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FILES: dict[str, list[str]] = _TABLES.pop("files")
"""Names of a split's file where they are not the split's own."""
ROWS = {name: records.read(GlueRow, {"name": name, **table}, where=name) for name, table in _TABLES.items()}
PAPER_COLUMNS = {name: row.column for name, row in ROWS.items() if row.column}
"""The titles of the paper's columns by task, in its order; it leaves out WNLI (Appendix B). A title in lower case is a
column's key.
"""
PAPER = tuple(PAPER_COLUMNS)


def parse_tasks(text: str) -> tuple[str, ...]:
    """`"cola,sst2"` -> names of rows; `"paper"` is the paper's eight, `"all"` every task that can be trained.

    Raises:
        ConfigError: an unknown name, or one given twice.
    """
    trained = tuple(name for name in ROWS if ROWS[name].train)
    if text in ("paper", "all"):
        return PAPER if text == "paper" else trained
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    for name in names:
        if name not in ROWS:
            raise ConfigError(f"--tasks {name}: unknown.{did_you_mean(name.lower(), ROWS)} Known: {', '.join(ROWS)}.")
        if names.count(name) > 1:
            raise ConfigError(f"--tasks: {name} is given twice.")
    if not names:
        raise ConfigError(f"--tasks {text!r}: expected names between commas, for example cola,rte.")
    return names


@dataclass(frozen=True, kw_only=True)
class GlueTask(TaskSource):
    """A task of GLUE as the engine takes it."""

    folder: str
    """GLUE's folder, or `hub`."""
    task: str
    """A name in `ROWS`."""
    limit: int | None = None
    """Largest number of training rows, the first after a fixed shuffle."""
    test: bool = True
    """Read the test sets that exist, to be predicted."""

    def __post_init__(self) -> None:
        if self.task not in ROWS:
            raise ConfigError(f"GLUE has no task {self.task!r}. Known: {', '.join(ROWS)}.")
        if not self.row.train:
            raise ConfigError(f"{self.task}: has no training set; the model of mnli predicts it. Add mnli to --tasks.")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"--limit {self.limit}: expected at least 1 training row.")

    @property
    def row(self) -> GlueRow:
        return ROWS[self.task]

    @property
    def name(self) -> str:
        return self.task

    @property
    def epochs(self) -> float:
        return self.row.epochs

    def require_files(self) -> None:
        """Check that the training and dev files exist, before anything is trained.

        Raises:
            MissingInputError: one is missing.
        """
        for split in () if self.folder == HUB else ("train", *self.row.dev):
            _require_file(self.folder, self.row, split)

    def load(self) -> TaskData:
        """Read the files, or the Hub.

        Raises:
            ConfigError, MissingInputError, DataError, StorageError: what is wrong, with file and line.
        """
        from electra_trainer.randomness import drawn
        from electra_trainer.tasks import texts as tasks

        row = self.row
        hashed: dict[str, bytes] = {}
        train = self._read(row, "train", hashed=hashed)
        notes = _counted("training", len(train), row.train)
        if self.limit is not None and self.limit < len(train):
            notes.append(f"trained on {self.limit:,} of these {len(train):,} rows (--limit).")
            train = [train[at] for at in drawn(f"glue rows/{self.task}", count=self.limit, total=len(train))]
            hashed["limit"] = str(self.limit).encode()
        dev = {}
        for split, rows in row.dev.items():
            dev[split] = self._read(row, split, hashed=hashed)
            notes += _counted(split, len(dev[split]), rows)
        notes += [warning for rows in dev.values() for warning in overlap(train, rows)]
        labels, metrics, scale = row.layout.labels, row.metrics, row.layout.bounds[1]
        task: tasks.TextTask = tasks.Regression(scale=scale, metrics=metrics, name=self.task)
        if labels:
            task = tasks.Classification(labels=labels, metrics=metrics, name=self.task)
        return TaskData(
            task=task,
            train=train,
            dev=dev,
            test=self.tests(hashed=hashed) if self.test else {},
            unordered_pairs=row.unordered,
            notes=tuple(notes),
            sha256=hash_files(hashed),
        )

    def tests(self, *, hashed: dict[str, bytes] | None = None) -> dict[str, list[TextExample]]:
        """The test sets that exist, AX's among MNLI's.

        Args:
            hashed: receives the contents read.
        """
        rows = (self.row, ROWS["ax"]) if self.task == "mnli" else (self.row,)
        every = [(row, split) for row in rows for split in row.test]
        there = [one for one in every if self.folder == HUB or _file(self.folder, *one) is not None]
        contents = {} if hashed is None else hashed
        return {split: self._read(row, split, hashed=contents, labelled=False) for row, split in there}

    def _read(self, row: GlueRow, split: str, *, hashed: dict[str, bytes], labelled: bool = True) -> list[TextExample]:
        if self.folder == HUB:
            there = "test" if split == "ax" else split.replace("dev", "validation")
            table = read_rows(f"{REPOSITORY}:{row.name}:{there}")
            remedy = "The repository has changed: give GLUE's folder"
            examples = [*_examples(table, row.layout, labelled=labelled, remedy=remedy)]
            rows = ([one.id, one.text, one.pair, one.label, one.value] for one in examples)
            hashed[split] = "".join(json.dumps(row) + "\n" for row in rows).encode()
            return examples
        path = _require_file(self.folder, row, split)
        hashed[split] = read_file(path, limit=MOST_TEXT)
        return parse(hashed[split], row.layout, path=path, labelled=labelled)


def tasks_in(folder: str | Path) -> tuple[str, ...]:
    """Tasks whose training file is in `folder`, in the order of `ROWS`."""
    return tuple(name for name, row in ROWS.items() if row.train and _file(folder, row, "train") is not None)


def _file(folder: str | Path, row: GlueRow, split: str) -> Path | None:
    """A split's file, if it exists, in a folder with the official name or the Hub's; AX's diagnostics have another."""
    names = _FILES.get(split, [f"{split}.tsv"])
    folders = (row.folder, row.name, *(["diagnostic"] if row.name == "ax" else []))
    paths = (Path(folder) / below / name for below in folders for name in names)
    return next((path for path in paths if path.is_file()), None)


def _require_file(folder: str | Path, row: GlueRow, split: str) -> Path:
    """A split's file. Raises MissingInputError if it, the task's folder or GLUE's does not exist."""
    path, root = _file(folder, row, split), Path(folder)
    if path is not None:
        return path
    if not root.is_dir():
        raise MissingInputError(f"{root}: no such folder. Give the folder that holds {row.folder} and so on, or hub.")
    there = ", ".join(sorted(one.name for one in root.iterdir())[:20]) or "nothing"
    raise MissingInputError(
        f"{root / row.folder / _FILES.get(split, [f'{split}.tsv'])[0]}: no such file. {root} has {there}. Name the "
        "tasks that exist with --tasks."
    )


def _counted(split: str, found: int, official: int) -> list[str]:
    """A note where a split is not GLUE's own."""
    return [] if found == official else [f"{found:,} of {official:,} {split} rows."]


def parse(content: bytes, layout: Layout, *, path: Path | str, labelled: bool) -> list[TextExample]:
    """The examples of a file.

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
    columns, rows = tuple(lines[0][1]), lines[1:]
    if layout.headless and labelled and not {*columns} & {*layout.text}:
        columns, rows = layout.headless, lines
    for number, fields in rows:
        if len(fields) != len(columns):
            raise DataError(
                f"{path}:{number}: expected {len(columns)} fields between tabs ({', '.join(columns)}), found "
                f"{len(fields)}. Mend or remove the line; a text can hold neither a tab nor a line end."
            )
    cells, numbers = [tuple(fields) for _, fields in rows], [number for number, _ in rows]
    table = tables.Table(path=Path(path), columns=columns, rows=cells, lines=numbers)
    remedy = "Name the columns in the first line, with tabs between them"
    examples = [*_examples(table, layout, labelled=labelled, remedy=remedy)]
    if not examples:
        raise DataError(f"{path}: holds no rows. It was cut short: fetch it again.")
    return examples


def _examples(table: tables.Table, layout: Layout, *, labelled: bool, remedy: str) -> Iterator[TextExample]:
    """The examples of a table; `remedy` ends the error on a column that is missing."""

    def find(wanted: Sequence[str]) -> int:
        for name in wanted:
            if name in table.columns:
                return table.columns.index(name)
        found = ", ".join(map(repr, table.columns[:20]))
        raise DataError(f"{table.path}:1: no column {' or '.join(map(repr, wanted))}. Found: {found}. {remedy}.")

    places = [find(wanted) for wanted in (layout.text, layout.pair) if wanted]
    answer = find(layout.label) if labelled else None
    names = next((table.column(name) for name in _IDS if name in table.columns), [None] * len(table.rows))
    for number, row in enumerate(table.rows):
        where = table.where(number)
        texts = ["" if row[at] is None else str(row[at]) for at in places]
        empty = [table.columns[at] for at, text in zip(places, texts, strict=True) if not text.strip()]
        if empty and not (layout.may_lack_one and len(empty) < 2):
            raise DataError(f"{where}: {empty[0]} is empty. Expected a text; fill it in or remove the line.")
        found = {} if answer is None else _answer(str(row[answer]), layout, where)
        name, pair = None if names[number] is None else str(names[number]), texts[1] if layout.pair else None
        yield TextExample(text=texts[0], pair=pair, place=where, id=name, **found)


def _answer(written: str, layout: Layout, where: str) -> dict[str, Any]:
    """A label in the official files' words, from those words or from the Hub's number; or a score within the bounds.
    Raises DataError if it is neither.
    """
    labels, (low, high) = layout.labels, layout.bounds
    numbers = [str(index) for index in range(len(labels))]
    if written in (*labels, *numbers):
        return {"label": written if written in labels else labels[int(written)]}
    if labels:
        known = ", ".join(labels) + ("" if numbers == list(labels) else f" (or {', '.join(numbers)} in this order)")
        raise DataError(
            f"{where}: unknown label {reading.short(written)}. Expected one of: {known}. Mend or remove the line."
        )
    with suppress(ValueError):
        if low <= (value := float(written)) <= high:
            return {"value": value}
    raise DataError(
        f"{where}: score {reading.short(written)}: expected a number from {low:g} to {high:g}. Mend or remove the line."
    )
