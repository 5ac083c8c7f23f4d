"""What a task is, and the values that flow through one.

    examples -task.rows-> Row -batches-> Batch -encoder-> hidden -task.loss-> (sum, count)     in training
                                                          hidden -task.read-> one value a row -task.predict-> one prediction an example
                                                                                              -task.score-> {metric: number}

A task is one short frozen dataclass; what it is made of (labels, metrics, a scheme) are its fields, so that it can be written down
and read back. It knows no optimizer, seed, file or device.

Examples of tasks whose answer is about a whole text or pair of texts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.data.texts import Text
from electra_trainer.settings.config import Model

Prediction = dict[str, Any]
"""What is said of an example, ready for JSON: {"label": ...}, {"value": ...}, {"tags": [...]}, {"text": ...}."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row that the encoder reads: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`. An example gives one, or several windows."""

    ids: Sequence[int]
    example: int
    """Index of the example that it is of."""
    target: Any = None
    """What the loss needs; None where it is to be predicted."""
    place: Any = None
    """What is needed to read a prediction back: first tokens of words, offsets of a window."""


class Task(Protocol):
    """A task: rows, a head, a loss, predictions and scores. Scores are shares from 0 to 1, or correlations."""

    @property
    def name(self) -> str:
        """What it is called in folders and tables."""

    @property
    def metric(self) -> str:
        """The main one of its scores, which tables show."""

    def head(self, model: Model) -> nn.Module:
        """The layers upon the encoder; the engine draws their weights, and puts dropout before them where the recipe says so."""

    def rows(self, examples: Sequence[Any], text: Text, *, training: bool) -> list[Row]:
        """What the encoder reads, in the order of the examples; with targets where `training`."""

    def loss(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> tuple[Tensor, int]:
        """Sum of the losses of a batch (scalar, fp32), and the count of what was summed. `hidden_BTD` is fp32, what `head` reads."""

    def read(self, head: nn.Module, hidden_BTD: Tensor, batch: Batch, rows: Sequence[Row]) -> list[Any]:
        """What the head says of each row, as plain values or arrays."""

    def predict(self, examples: Sequence[Any], rows: Sequence[Row], said: Sequence[Any]) -> list[Prediction]:
        """One prediction an example, from what was said of its rows."""

    def score(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Metrics over examples that carry their answer."""

    def doubts(self, examples: Sequence[Any], predictions: Sequence[Prediction]) -> list[str]:
        """Sentences on what looks wrong: one class for all, say. Empty: nothing. On "collapsed: ..." the engine says what to try."""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its examples."""

    task: Task
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    """By name of the split; the first is the main one."""
    test: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Examples without answers, to be predicted."""
    unordered_pairs: bool = False
    """The two texts of a pair may change places (MRPC, STS-B): see `Recipe.double_unordered`."""
    notes: tuple[str, ...] = ()
    """What a reader of the scores must know: a subset, a rebuild."""
    sha256: str = ""
    """Of the files that it was read from."""


class TaskSource(Protocol):
    """Where a task comes from: a small frozen dataclass of paths and names, so that any process can load it.

    It may have a `max_length` besides: tokens of a row, where nothing else is asked for and the recipe's 128 are few.
    """

    @property
    def name(self) -> str:
        """The task's name, known before anything is read."""

    @property
    def epochs(self) -> float:
        """Passes over the training rows, where nothing else is asked for (Table 6)."""

    def load(self) -> TaskData:
        """Read the files.

        Raises:
            MissingInputError, DataError, StorageError: what is wrong, with file and line.
        """


def hash_files(files: Mapping[str, bytes]) -> str:
    """SHA-256 of named contents."""
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()


def lengths_of(rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Tokens of each row, int64 [rows]."""
    return np.fromiter((len(row.ids) for row in rows), dtype=np.int64, count=len(rows))


@dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text, or a pair, with its label if it has one."""

    text: str
    pair: str | None = None
    label: str | None = None
    """The label as it is written in the file."""
    value: float | None = None
    """The number that a regression task asks for, in the file's own units."""
    place: str = ""
    """`file:line`, for messages."""
    id: str | None = None
    """What the file calls it; predictions carry it."""
