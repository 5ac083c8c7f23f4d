"""Examples of texts and of tagged sentences, and the files that predictions are written to. No torch here.

Which columns hold the text, its partner and the label: those that were named, or those that cannot be meant otherwise.

    label       --label; else the one column with a label's name; else, of two columns, the second
    text        --text; else, of two columns, the other one; else the one column with a text's name
    text pair   --text-pair; else none, unless two columns are named as a known pair (sentence1 and sentence2, ...)

Column names are compared without regard to case. Anything else is asked for, never guessed.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.files import reading, wording
from electra_trainer.files.tables import Table, texts
from electra_trainer.settings import records

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
    """CSV: the columns of `table`, then `prediction`; for classes also `probability` (the predicted one's) and one
    column per label.
    """
    names, predicted = list(table.columns), [_flat(prediction) for prediction in predictions]
    rows = []
    for row, cells in zip(table.rows, predicted, strict=True):
        own = [cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell) for cell in row]
        rows.append([*own, *[""] * (len(table.columns) - len(row)), *cells.values()])
    return wording.Table(head=[*table.columns, *(_free(name, names) for name in predicted[0])], rows=rows).csv()


def _flat(prediction: Prediction) -> dict[str, str]:
    """Column -> cell."""
    shares = prediction.get("probabilities")
    if shares is None:
        answer = _answer(prediction)
        return {"prediction": answer if isinstance(answer, str) else f"{answer:.6g}"}
    each = {f"probability_{label}": f"{share:.6f}" for label, share in shares.items() if len(shares) <= MANY}
    return {"prediction": _answer(prediction), "probability": f"{shares[prediction['label']]:.6f}", **each}


def predicted_jsonl(table: Table, predictions: Iterable[Prediction]) -> str:
    """One JSON object per row: its columns, `prediction` and, for classes, `probabilities`."""
    lines = []
    for values, prediction in zip(table.rows, predictions, strict=True):
        row = dict(zip(table.columns, values, strict=False))
        predicted = {"prediction": _answer(prediction), "probabilities": prediction.get("probabilities")}
        new = {_free(name, list(row)): value for name, value in predicted.items() if value is not None}
        lines.append(row | new)
    return jsonl(lines)


def tagged_text(predictions: Iterable[Prediction]) -> str:
    """A word, a tab and its tag per line, a blank line after each sentence."""
    return "".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(predicted["words"], predicted["tags"], strict=True)) + "\n"
        for predicted in predictions
    )


def jsonl(predictions: Iterable[Prediction]) -> str:
    """One JSON object per prediction: {words, tags}, or {id, text, score, probability, no_answer_score, nbest}."""
    return "".join(json.dumps(predicted) + "\n" for predicted in predictions)


_FIELDS: dict[str, Any] = {
    "label": str,
    "probabilities": dict[str, float],
    "value": float,
    "words": list[str],
    "tags": list[str],
    "id": str,
    "text": str,
}
"""Fields of predictions; a task of one's own may have others."""
_NEEDS = {"probabilities": "label", "tags": "words", "words": "tags", "text": "id"}
"""Field -> another that comes with it."""


def read_predictions(path: Path, examples: Sequence[Any], *, remedy: str) -> list[Prediction]:
    """Read the predictions that `jsonl` wrote for these examples.

    Raises:
        MissingInputError: no such file. DataError: it is damaged; `remedy` ends the message.
    """
    if not path.is_file():
        raise MissingInputError(f"{path}: no such file. {remedy}")
    lines = reading.read_file(path, limit=sys.maxsize).splitlines()
    if len(lines) != len(examples):
        raise DataError(f"{path}: {len(lines):,} predictions, expected {len(examples):,}. {remedy}")
    found: list[Prediction] = []
    for number, (line, example) in enumerate(zip(lines, examples, strict=True), 1):
        where = f"{path}:{number}"
        predicted = reading.parse_json(line, where=where, remedy=remedy)
        fields = predicted.keys() if isinstance(predicted, dict) else set()
        whole = fields and all(_NEEDS.get(name, name) in fields for name in fields)
        if not whole or fields != (found or [predicted])[0].keys():
            raise DataError(f"{where}: {reading.short(predicted)}, expected a prediction of the task. {remedy}")
        records.require_fields(
            {name: _FIELDS[name] for name in fields & _FIELDS.keys()}, predicted, where, remedy=remedy
        )
        if "tags" in predicted and not len(predicted["tags"]) == len(predicted["words"]) == len(example.words):
            raise DataError(f"{where}: {len(predicted['tags']):,} tags, expected one for each word. {remedy}")
        if predicted.get("label") not in predicted.get("probabilities", [predicted.get("label")]):
            raise DataError(f"{where}: label {reading.short(predicted['label'])} has no probability. {remedy}")
        found.append(predicted)
    return found


def by_id(predictions: Iterable[Prediction], name: str) -> str:
    """{id: prediction[name]}. Of "text" what SQuAD's official scripts score ("" is no answer, 2.0); of
    "no_answer_score" what evaluate-v2.0.py reads as --na-prob-file: the larger, the less likely there is an answer.
    """
    return json.dumps({predicted["id"]: predicted[name] for predicted in predictions}, indent=1) + "\n"


def _answer(prediction: Prediction) -> Any:
    return prediction["label"] if "label" in prediction else prediction["value"]


def _free(name: str, taken: list[str]) -> str:
    """`name`, with underscores appended until no column has it."""
    while name in taken:
        name += "_"
    taken.append(name)
    return name


LABELS = "label labels class target score category sentiment rating stars gold_label y value".split()
TEXTS = "text texts sentence review comment content body message document tweet utterance".split()
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("question", "sentence"),
    ("text", "text_pair"),
)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of columns."""

    text: str
    pair: str | None = None
    label: str | None = None
    """None for a file without labels."""

    def described(self) -> str:
        """A sentence on the columns that were taken."""
        parts = [("text", self.text), ("text pair", self.pair), ("label", self.label)]
        return "columns: " + ", ".join(f"{what} = {name!r}" for what, name in parts if name is not None) + "."


def choose_columns(table: Table, *, text: str | None, text_pair: str | None, label: str | None) -> Columns:
    """Columns of a training file.

    Args:
        table: the file.
        text, text_pair, label: columns named by flags; None: by the rule above.

    Raises:
        ConfigError: a flag names no column, or one column twice; or a flag is needed.
    """
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    names = [name for name in table.columns if name]
    if len(names) < 2:
        raise DataError(f"{table.path}: has one column ({names[0]!r}), expected a text and a label.")
    free = [name for name in names if name not in (text, text_pair)]
    label = label or _only(table, "--label", LABELS, free)
    if label is None and len(names) == 2:
        label = names[1] if names[1] in free else names[0]
    if label is None:
        raise _ask(table, "--label", "the label")
    left = [name for name in names if name != label]
    if text is None and text_pair is None:
        text, text_pair = _pair(left)
    text = text or _remaining_text(table, [name for name in left if name != text_pair])
    _require_columns(table, text=text, text_pair=text_pair, label=label)
    return Columns(text=text, pair=text_pair, label=label)


def choose_texts(
    table: Table, like: Columns | None, *, text: str | None = None, text_pair: str | None = None, pair: bool = False
) -> Columns:
    """Columns of a file to be predicted: those named by flags, or those of training.

    Args:
        table: the file.
        like: the columns of training, where they are known.
        text, text_pair: columns named by flags.
        pair: whether a pair is needed, where `like` does not say.

    Raises:
        ConfigError: a flag names no column, or a flag is needed. DataError: a column of training is missing.
    """
    _require_columns(table, text=text, text_pair=text_pair)
    names = [name for name in table.columns if name]
    if like is None and pair and text is None and text_pair is None:
        text, text_pair = _pair(names)
    if text is None and like is not None:
        text = _as_trained(table, like.text, flag="--text")
    text = text or _remaining_text(table, [name for name in names if name != text_pair])
    if text_pair is None and like is not None and like.pair is not None:
        text_pair = _as_trained(table, like.pair, flag="--text-pair")
    if text_pair is None and pair:
        raise _ask(table, "--text-pair", "the second text")
    _require_columns(table, text=text, text_pair=text_pair)
    return Columns(text=text, pair=text_pair)


def labelled_like(table: Table, columns: Columns) -> Columns:
    """Columns of training in another file, such as the development set; DataError: one is missing."""
    for name in (columns.text, columns.pair, columns.label):
        if name is not None:
            _as_trained(table, name, flag=None)
    return columns


def text_examples(table: Table, columns: Columns) -> list[TextExample]:
    """Examples without answers."""
    first = texts(table, columns.text)
    second: Sequence[str | None] = texts(table, columns.pair) if columns.pair is not None else [None] * len(first)
    return [
        TextExample(text=text, pair=pair, place=table.where(row))
        for row, (text, pair) in enumerate(zip(first, second, strict=True))
    ]


def _as_trained(table: Table, name: str, *, flag: str | None) -> str:
    if name not in table.columns:
        remedy = f" Rename it, or name it: {flag} COLUMN." if flag else " Name it as in the training file."
        raise DataError(
            f"{table.path}: has no column {name!r}, which the training file has.{did_you_mean(name, table.columns)} "
            f"Its columns: {_listed(table.columns)}.{remedy}"
        )
    return name


def _require_columns(table: Table, **named: str | None) -> None:
    """ConfigError: a named column is missing, or named twice."""
    flags: dict[str, str] = {}
    for field, name in named.items():
        flag = f"--{field.replace('_', '-')}"
        if name is None:
            continue
        if name not in table.columns:
            raise ConfigError(
                f"{flag} {name}: {table.path} has no such column.{did_you_mean(name, table.columns)} Its columns: "
                f"{_listed(table.columns)}."
            )
        if name in flags:
            raise ConfigError(f"{flags[name]} and {flag} are both {name!r}. Name two different columns.")
        flags[name] = flag


def _only(table: Table, flag: str, known: Sequence[str], names: Iterable[str]) -> str | None:
    """The one of `names` that is known; ConfigError: several are."""
    found = [name for name in names if name.casefold() in known]
    if len(found) > 1:
        raise ConfigError(f"{table.path}: {_listed(found)} could all be meant. Name one: {flag} {_word(found[0])}")
    return found[0] if found else None


def _remaining_text(table: Table, left: Sequence[str]) -> str:
    """The column of the text: the only one left, or the one with a text's name; ConfigError: neither."""
    text = left[0] if len(left) == 1 else _only(table, "--text", TEXTS, left)
    if text is None:
        raise _ask(table, "--text", "the text")
    return text


def _pair(names: Sequence[str]) -> tuple[str, str] | tuple[None, None]:
    """Two columns named as a known pair."""
    folded = {name.casefold(): name for name in names}
    return next(((folded[one], folded[two]) for one, two in PAIRS if one in folded and two in folded), (None, None))


def _ask(table: Table, flag: str, what: str) -> ConfigError:
    names = [name for name in table.columns if name]
    return ConfigError(f"{table.path}: which column is {what}? Its columns: {_listed(names)}. Name it: {flag} COLUMN")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _word(name: str) -> str:
    return f'"{name}"' if not name.isidentifier() else name
