"""Files of your own as a task: one class or one number for each text or pair (several labels: multi_label.py)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from electra_trainer.errors import ConfigError, DataError, did_you_mean
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import NUMBER, SEVERAL, Table, looks_listed, shown
from electra_trainer.settings.calls import checked_class
from electra_trainer.tasks import examples as files
from electra_trainer.tasks.baselines import MOST_CLASSES
from electra_trainer.tasks.examples import WARNING, Columns, TextExample
from electra_trainer.tasks.recipe import for_own_rows
from electra_trainer.tasks.task import OwnFiles, TaskData, hash_files
from electra_trainer.tasks.texts import Classification, Regression, TextTask, known_labels

UNEVEN = 0.8
"""Share of the largest class from which on accuracy says little."""
FEW = 1_000
"""Fewer rows are cross-validated."""
FEWEST = 20
"""Rows of a class below which it is named."""
_ALWAYS = ("text", "pair", "label")
"""Fields of `Columns` that are hashed even where they are empty."""
Own = TypeVar("Own", bound=TextTask)


@dataclass(frozen=True, kw_only=True)
class OwnRows(OwnFiles):
    """Files of texts or pairs with an answer each. A kind of answer is a subclass with `name`, `kind` and `task`."""

    kind: ClassVar[type[TextTask]]
    """The class of its task."""
    own_recipe: ClassVar[bool] = True
    one_class: ClassVar[bool] = False
    """Whether a text has one class: see `recipe.for_own_rows`."""

    text: str | None = None
    """Columns; None: see examples.py."""
    text_pair: str | None = None
    label: str | None = None
    metric: str | None = None
    """The main score, one of its task's; None: the first."""
    folds: bool = True
    """Cross-validate a table of fewer than `FEW` rows without dev and test files; else a tenth of it is held out."""

    def recipe_for(self, rows: int, layers: int) -> Mapping[str, Any]:
        """See `recipe.for_own_rows`."""
        return for_own_rows(rows, layers, classes=self.one_class)

    def columns(self, table: Table) -> Columns:
        """The columns of the training file."""
        return files.choose_columns(table, text=self.text, text_pair=self.text_pair, label=self.label)

    def answered(self, table: Table, columns: Columns) -> list[TextExample]:
        """The examples of a file with their answers."""
        return self.kind.read_answers(files.text_examples(table, columns), table, columns)

    def task(self, train: Sequence[TextExample], path: Path) -> tuple[TextTask, list[str]]:
        """The task that the training examples describe, and notes on it."""
        raise NotImplementedError

    def load(self) -> TaskData:
        """Read and check all files.

        Raises:
            MissingInputError, StorageError: a file cannot be read. ConfigError: a column is missing, or must be named.
            DataError: a row, or the labels as a whole, cannot be used; with file:line.
        """
        tables = {split: read_rows(path) for split, path in self.given().items()}
        hashes = {split: table.sha256 for split, table in tables.items()}
        table, asked = tables["train"], tables.pop("predict", None)
        columns = self.columns(table)
        train = self.answered(table, columns)
        self.task(train, table.path)  # unusable labels are found before some are held out
        notes = [columns.described(), *files.contradictions(train)]
        rows = {name: self.answered(one, files.as_trained(one, columns)) for name, one in tables.items()}
        if folds := self._folds(rows):
            rows["dev"] = train
            notes.append(
                f"no development file: each of the {len(train):,} rows is predicted by one of {len(folds)} models, "
                "which learns from rows with other texts, and the exported model learns from all of them."
            )
        elif "dev" not in rows:
            rows["train"], rows["dev"] = files.hold_out(train, where=str(table.path))
            notes.append(files.held_out(rows["dev"], train, "rows"))
        notes += _overlaps(rows, held_out="dev" not in tables)
        task, of_task = self.task(rows["train"], table.path)
        notes += files.odd_labels(task.classes, columns)
        known_labels([*rows["dev"], *rows.get("test", ())], task.classes, columns)
        if not task.classes:
            notes += [note for one in tables.values() for note in files.odd_numbers(one, str(columns.label))]
        named = {name: value for name, value in asdict(columns).items() if value or name in _ALWAYS}
        hashes["columns"] = json.dumps(named)
        test: dict[str, list[TextExample]] = {}
        written: Any = None
        if asked is not None:
            test = {"predict": files.text_examples(asked, files.choose_texts(asked, columns))}
            written = "predictions.csv", partial(files.predicted_csv, asked, separator=columns.separator or ";")
        return TaskData(
            task=self._led(task),
            train=rows["train"],
            dev={"folds" if folds else "dev": rows["dev"]},
            folds=folds,
            tested={"test": rows["test"]} if "test" in rows else {},
            test=test,
            notes=(*notes, *of_task),
            columns=columns,
            written=written,
            sha256=hash_files({name: content.encode() for name, content in hashes.items()}),
        )

    def _folds(self, rows: Mapping[str, Sequence[TextExample]]) -> tuple[tuple[int, ...], ...]:
        """The parts of a small table; empty where it is not cross-validated."""
        is_small = rows.keys() == {"train"} and len(rows["train"]) < FEW
        return files.folds(rows["train"]) if self.folds and is_small else ()

    def _led(self, task: Own) -> Own:
        """The task with `metric` as its main score. Raises ConfigError if it has no such score."""
        metric, known = self.metric or task.metric, task.metrics
        if metric not in known:
            raise ConfigError(f"--metric {metric}: {task.name} has {', '.join(known)}.{did_you_mean(metric, known)}")
        led: Any = task
        return replace(led, metrics=(metric, *(one for one in known if one != metric)))  # type: ignore[no-any-return]


@checked_class
@dataclass(frozen=True, kw_only=True)
class OwnTask(OwnRows):
    """One of several classes for each text."""

    kind: ClassVar[type[TextTask]] = Classification
    one_class: ClassVar[bool] = True

    name: str = "classification"
    class_weights: Literal["balanced"] | None = None
    """balanced: the loss of a row has the inverse frequency of its class as its weight, 1 on average."""

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
        much = max(counts.values()) / len(train)
        if self.metric is None and much >= UNEVEN:
            notes.append(
                f"{WARNING}{100 * much:.0f} % of the training rows have the same label, so predicting it always has "
                "about that accuracy. --metric macro_f1 counts classes alike."
            )
        each = shown([f"{name} {counts[name]:,}" for name in names])
        alone = " They are too many for TF-IDF, so none is compared with." * (len(names) > MOST_CLASSES)
        notes.append(f"{len(names)} classes in {len(train):,} training rows: {each}.{alone}")
        if few := shown([f"{name} {counts[name]}" for name in names if counts[name] < FEWEST]):
            notes.append(f"Fewer than {FEWEST} rows, so hard to learn and to score: {few}.")
        metrics = ("accuracy", "macro_f1", "matthews")
        weights = tuple(len(train) / (len(names) * counts[name]) for name in names) if self.class_weights else ()
        return Classification(labels=tuple(names), metrics=metrics, class_weights=weights), notes


@checked_class
@dataclass(frozen=True, kw_only=True)
class RegressionTask(OwnRows):
    """A number for each text."""

    kind: ClassVar[type[TextTask]] = Regression

    name: str = "regression"

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
    """Notes on texts in two of the splits."""
    train, dev, test = rows["train"], rows["dev"], rows.get("test")
    notes = [] if held_out else files.overlap(train, dev)
    if test is not None:
        notes += [*files.overlap(train, test, "test"), *files.overlap(dev, test, "test", "development")]
    return notes
