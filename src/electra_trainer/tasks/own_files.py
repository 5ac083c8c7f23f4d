"""Files of your own as a task: one class or one number for each text or pair (several labels: multi_label.py)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import NUMBER, SEVERAL, Table, looks_listed, shown
from electra_trainer.settings.calls import checked_class
from electra_trainer.tasks import examples as files
from electra_trainer.tasks.examples import WARNING, Columns, TextExample
from electra_trainer.tasks.recipe import FEWEST_EPOCHS, SMALL, for_own_rows
from electra_trainer.tasks.task import TaskData, TaskSource, hash_files
from electra_trainer.tasks.texts import Classification, Regression, TextTask, known_labels, labelled, valued

EPOCHS = 3.0
"""For larger files."""
UNEVEN = 0.8
"""Share of the largest class from which on accuracy says little."""
_FEW_TO_SCORE = 50
"""A note says how little fewer rows than these tell."""
_ALWAYS = ("text", "pair", "label")
"""Fields of `Columns` that are hashed even where they are empty."""
Own = TypeVar("Own", bound=TextTask)


@dataclass(frozen=True, kw_only=True)
class OwnRows(TaskSource):
    """Files of texts or pairs with an answer each. A kind of answer is a subclass with `name`, `answered`, `task`."""

    own_recipe: ClassVar[bool] = True
    one_class: ClassVar[bool] = False
    """Whether a text has one class: see `recipe.for_own_rows`."""

    train: str | Path
    dev: str | Path | None = None
    """None: a tenth of the training rows is held out."""
    test: str | Path | None = None
    """Rows with labels that are scored and choose nothing."""
    predict: str | Path | None = None
    """Texts without labels."""
    text: str | None = None
    """Columns; None: see examples.py."""
    text_pair: str | None = None
    label: str | None = None
    metric: str | None = None
    """The main score, one of its task's; None: the first."""

    @cached_property
    def epochs(self) -> float:
        return FEWEST_EPOCHS if len(self._trained.rows) < SMALL else EPOCHS

    @cached_property
    def _trained(self) -> Table:
        """The rows of `train`."""
        return read_rows(self.train)

    def recipe_for(self, rows: int, layers: int) -> Mapping[str, Any]:
        """See `recipe.for_own_rows`."""
        return for_own_rows(rows, layers, classes=self.one_class)

    def columns(self, table: Table) -> Columns:
        """The columns of the training file."""
        return files.choose_columns(table, text=self.text, text_pair=self.text_pair, label=self.label)

    def answered(self, table: Table, columns: Columns) -> list[TextExample]:
        """The examples of a file with their answers."""
        raise NotImplementedError

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[TextTask, list[str]]:
        """The task that the training examples describe, and notes on it."""
        raise NotImplementedError

    def load(self) -> TaskData:
        """Read and check all files.

        Raises:
            MissingInputError, StorageError: a file cannot be read. ConfigError: a column is missing, or must be named.
            DataError: a row, or the labels as a whole, cannot be used; with file:line.
        """
        others = {name: path for name in ("dev", "test", "predict") if (path := getattr(self, name)) is not None}
        read = {"train": self._trained, **{name: read_rows(path) for name, path in others.items()}}
        table, asked = read["train"], read.get("predict")
        columns = self.columns(table)
        train = self.answered(table, columns)
        self.task(train, table.path)  # unusable labels are found before some are held out
        notes = [columns.described(), *files.contradictions(train), *files.repeats(train)]
        tables = {name: one for name, one in read.items() if name != "predict"}
        rows = {name: self.answered(one, files.as_trained(one, columns)) for name, one in tables.items()}
        if "dev" not in rows:
            rows["train"], rows["dev"] = files.hold_out(train, where=str(table.path))
            notes.append(
                f"no development file: {len(rows['dev']):,} of {len(train):,} rows were held out, chosen by a hash of "
                "the text; no text is on both sides."
            )
        notes += _overlaps(rows, held_out="dev" not in tables)
        task, of_task = self.task(rows["train"], table.path)
        notes += files.odd_labels(task.classes, columns)
        if task.classes:
            known_labels([*rows["dev"], *rows.get("test", ())], task.classes, columns)
        else:
            notes += [note for one in tables.values() for note in files.odd_numbers(one, str(columns.label))]
        named = {name: value for name, value in asdict(columns).items() if value or name in _ALWAYS}
        hashes = {**{name: one.sha256 for name, one in read.items()}, "columns": json.dumps(named)}
        short = f"fewer than {SMALL:,} rows: without --epochs {self.epochs:g} epochs, for larger files {EPOCHS:g}."
        write = asked and partial(files.predicted_csv, asked, separator=columns.separator or ";")
        return TaskData(
            task=self._led(task),
            train=rows["train"],
            dev={"dev": rows["dev"]},
            tested={"test": rows["test"]} if "test" in rows else {},
            test={"predict": files.text_examples(asked, files.choose_texts(asked, columns))} if asked else {},
            notes=(*notes, *of_task),
            columns=columns,
            written=("predictions.csv", write) if write else None,
            defaults={} if self.epochs == EPOCHS else {"epochs": short},
            sha256=hash_files({name: content.encode() for name, content in hashes.items()}),
        )

    def _led(self, task: Own) -> Own:
        """The task with `metric` as its main score. Raises ConfigError if it has no such score."""
        metric, known = self.metric, task.metrics
        if metric is None:
            return task
        if metric not in known:
            raise ConfigError(f"--metric {metric}: {task.name} has {', '.join(known)}.{did_you_mean(metric, known)}")
        others: Any = task
        led: Own = replace(others, metrics=(metric, *(one for one in known if one != metric)))
        return led


@checked_class
@dataclass(frozen=True, kw_only=True)
class OwnTask(OwnRows):
    """One of several classes for each text."""

    one_class: ClassVar[bool] = True

    name: str = "classification"
    class_weights: Literal["balanced"] | None = None
    """balanced: the loss of a row has the inverse frequency of its class as its weight."""

    def answered(self, table: Table, columns: Columns) -> list[TextExample]:
        return labelled(files.text_examples(table, columns), table, columns)

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[Classification, list[str]]:
        """Its labels in order: numbers by size, others by letters."""
        counts = Counter(str(example.label) for example in train)
        names, notes = sorted(counts), []
        if len(names) == 1:
            raise DataError(f"{path}: all rows have the label {names[0]!r}. Expected two classes or more.")
        if len(names) == len(train) > 2 or len(names) > max(50, len(train) // 2):
            remedy = "Name the columns with --text and --label; numbers are learned with --task regression"
            raise DataError(
                f"{path}: {len(names):,} different labels in {len(train):,} rows, for example {names[0]!r} and "
                f"{names[1]!r}. {SEVERAL if any(map(looks_listed, names)) else remedy}."
            )
        if all(NUMBER.fullmatch(name) for name in names):
            names.sort(key=lambda name: (float(name), name))
        weights = tuple([len(train) / (len(names) * counts[name]) for name in names] if self.class_weights else ())
        if weights:  # 1 on average over the rows
            notes.append(f"class weights: {shown([f'{a} {b:.3g}' for a, b in zip(names, weights, strict=True)])}.")
        much = max(counts.values()) / len(train)
        if self.metric is None and much >= UNEVEN:
            notes.append(
                f"{WARNING}{100 * much:.0f} % of the training rows have the same label, so predicting it always has "
                "about that accuracy. Seeds and epochs are chosen by accuracy; --metric macro_f1 counts classes alike."
            )
        each = shown([f"{name} {counts[name]:,}" for name in names])
        notes.append(f"{len(names)} classes in {len(train):,} training rows: {each}.")
        metrics = ("accuracy", "macro_f1", "matthews")
        return Classification(labels=tuple(names), metrics=metrics, class_weights=weights), notes


@checked_class
@dataclass(frozen=True, kw_only=True)
class RegressionTask(OwnRows):
    """A number for each text."""

    name: str = "regression"

    def answered(self, table: Table, columns: Columns) -> list[TextExample]:
        return valued(files.text_examples(table, columns), table, columns)

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[Regression, list[str]]:
        """Its numbers scaled to mean 0 and standard deviation 1."""
        values = np.array([example.value for example in train], dtype=np.float64)
        low, high = values.min(), values.max()
        with np.errstate(over="ignore", invalid="ignore"):
            scale, mean = float(np.std(values)), float(np.mean(values))
        if not 0 < scale < np.inf:
            raise DataError(f"{path}: values from {low:g} to {high:g}. Expected numbers that differ, below 1e150.")
        note = (
            f"{len(values):,} training rows with values from {low:g} to {high:g}, mean {mean:.4g}, standard deviation "
            f"{scale:.4g}."
        )
        return Regression(shift=mean, scale=scale), [note]


def _overlaps(rows: Mapping[str, Sequence[TextExample]], *, held_out: bool) -> list[str]:
    """Notes on texts in two of the splits, and on few rows to score on."""
    train, dev, test = rows["train"], rows["dev"], rows.get("test")
    notes = [] if held_out else files.overlap(train, dev)
    if test is not None:
        notes += [*files.overlap(train, test, "test"), *files.overlap(dev, test, "test", "development")]
    if (few := len(dev if test is None else test)) < _FEW_TO_SCORE:
        known = f"shares are known to ± {98 / few**0.5:.0f} points"
        notes.append(f"{WARNING}{few} rows are few: {known}. Score more with --test FILE.")
    return notes
