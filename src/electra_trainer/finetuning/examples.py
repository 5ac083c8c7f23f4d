"""Examples of texts and of tagged sentences, and the files that predictions are written to. No torch here."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from electra_trainer.errors import DataError
from electra_trainer.files.tables import Table

Prediction = dict[str, Any]
"""The prediction for one example, ready for JSON: {"label": ...}, {"value": ...}, {"tags": [...]}, {"text": ...}."""


@dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text, or a pair, with its label if it has one."""

    text: str
    pair: str | None = None
    label: str | None = None
    """The label as written in the file."""
    value: float | None = None
    """The number that a regression task learns, in the file's own units."""
    place: str = ""
    """`file:line`, for messages."""
    id: str | None = None
    """Its id in the file; predictions carry it."""


@dataclass(frozen=True, kw_only=True)
class TaggedSentence:
    """An example: a sentence of words, each with its label if it has one."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    """One per word; None: not labelled, so neither learned nor scored."""
    file: str = ""
    lines: tuple[int, ...] = ()
    """The line of each word in `file`, counted from 1."""

    def __post_init__(self) -> None:
        if len(self.words) != len(self.labels):
            raise ValueError(f"{self.place}: {len(self.words)} words and {len(self.labels)} labels.")

    @property
    def place(self) -> str:
        """`file:line` of the first word, for messages."""
        return self.place_of(0)

    def place_of(self, word: int) -> str:
        """`file:line` of a word."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file


def strings(value: Any, index: int, expected: str, *, count: int | None = None) -> tuple[str, ...]:
    """`value`, the `index`-th to be predicted, as a tuple of strings; DataError: it is not one, or not of `count`."""
    fits = not isinstance(value, str) and isinstance(value, Sequence) and all(isinstance(item, str) for item in value)
    if not fits or not value or count not in (None, len(value)):
        raise DataError(f"predict: item {index} is {value!r:.60}, expected {expected}.")
    return tuple(value)


MANY = 20
"""Most labels that get a column each for their probabilities."""


def predicted_csv(table: Table, predictions: Sequence[Prediction]) -> str:
    """CSV: the columns of `table`, then `prediction`; for classes also `probability` (the predicted one's) and one column per label."""
    names, taken = table.columns, list(table.columns)
    more = [_free(name, taken) for name in _columns(predictions[0])]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*names, *more])
    for number, prediction in enumerate(predictions):
        row = table.rows[number]
        cells = [_plain(cell) for cell in row] + [""] * (len(names) - len(row))
        writer.writerow([*cells, *_said(prediction)])
    return buffer.getvalue()


def predicted_jsonl(table: Table, predictions: Iterable[Prediction]) -> str:
    """One JSON object per row: its columns, `prediction` and, for classes, `probabilities`."""
    lines = []
    for number, prediction in enumerate(predictions):
        row = dict(zip(table.columns, table.rows[number], strict=False))
        said = {
            "prediction": _answer(prediction),
            **({"probabilities": p} if (p := prediction.get("probabilities")) else {}),
        }
        lines.append(json.dumps({**row, **{_free(name, list(row)): value for name, value in said.items()}}) + "\n")
    return "".join(lines)


def tagged_text(predictions: Iterable[Prediction]) -> str:
    """A word, a tab and its tag per line, a blank line after each sentence."""
    return "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(said["words"], said["tags"], strict=True)) + "\n"
        for said in predictions
    )


def jsonl(predictions: Iterable[Prediction]) -> str:
    """One JSON object per prediction: {words, tags}, or {id, text, score, probability, no_answer_score, nbest}."""
    return "".join(json.dumps(said) + "\n" for said in predictions)


def by_id(predictions: Iterable[Prediction], name: str) -> str:
    """{id: prediction[name]}. Of "text" what SQuAD's official scripts score ("" is no answer, 2.0); of "no_answer_score" what
    evaluate-v2.0.py reads as --na-prob-file: the larger, the less likely there is an answer.
    """
    return json.dumps({said["id"]: said[name] for said in predictions}, indent=1) + "\n"


def _columns(prediction: Prediction) -> list[str]:
    shares = prediction.get("probabilities")
    if shares is None:
        return ["prediction"]
    return ["prediction", "probability", *(f"probability_{label}" for label in shares if len(shares) <= MANY)]


def _said(prediction: Prediction) -> list[str]:
    shares = prediction.get("probabilities")
    if shares is None:
        return [f"{_answer(prediction):.6g}"]
    each = [f"{share:.6f}" for share in shares.values()] if len(shares) <= MANY else []
    return [_answer(prediction), f"{shares[prediction['label']]:.6f}", *each]


def _answer(prediction: Prediction) -> Any:
    return prediction["label"] if "label" in prediction else prediction["value"]


def _free(name: str, taken: list[str]) -> str:
    """`name`, with underscores appended until no column has it."""
    while name in taken:
        name += "_"
    taken.append(name)
    return name


def _plain(cell: Any) -> str:
    return cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell)
