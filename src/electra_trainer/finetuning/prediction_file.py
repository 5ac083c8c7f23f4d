"""Predictions as a file beside the one that was predicted: its columns and what was said of each row."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from electra_trainer.files.tables import Table
from electra_trainer.finetuning.task import Prediction

MANY = 20
"""Labels up to which each has a column with its probability."""


def predicted_csv(table: Table, predictions: Sequence[Prediction]) -> str:
    """CSV: the columns of `table`, then `prediction`; of classes also `probability` (the predicted one's) and one column a label."""
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
    """One JSON object a row: its columns, and what was said as `prediction` (and `probabilities`)."""
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
    """A word and its tag a line, between tabs, a blank line after each sentence."""
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
    """`name`, or with underscores behind it, so that no two columns have it."""
    while name in taken:
        name += "_"
    taken.append(name)
    return name


def _plain(cell: Any) -> str:
    return cell if isinstance(cell, str) else "" if cell is None else json.dumps(cell)
