"""The best spans of all windows of a question -> one answer, in the context's own letters."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from electra_trainer.finetune.squad_files import Question
from electra_trainer.finetune.squad_head import Spans
from electra_trainer.finetune.squad_windows import Window
from electra_trainer.finetune.task import Prediction, Row


def decode(
    questions: Sequence[Question],
    rows: Sequence[Row],
    said: Sequence[Spans],
    *,
    n_best: int,
    null_threshold: float | None,
    null_against_best: bool,
) -> list[Prediction]:
    """One prediction a question.

    Args:
        rows: with a `Window` as their place.
        said: what the head said of each row.
        n_best: answers that are kept of each question; equal texts are one, with the better score.
        null_threshold: the text is empty where `no_answer_score` is above it; None: an answer is always given.
        null_against_best: `no_answer_score` is how much better the null span is than the best one (BERT); else it is the head's own
            (XLNet). Either way that of the window which likes it least.

    Returns:
        {"id", "text", "score", "probability", "no_answer_score", "nbest": [{"text", "start", "end", "score", "probability"}]} with
        `start` and `end` in characters of the context. "score" and "probability" are those of the best answer, also where "text" is
        empty; probabilities are shares among the `nbest`.
    """
    rows_of: list[list[int]] = [[] for _ in questions]
    for number, row in enumerate(rows):
        rows_of[row.example].append(number)
    predictions: list[Prediction] = []
    for question, numbers in zip(questions, rows_of, strict=True):
        nbest = _nbest(question.context, [(rows[n].place, said[n]) for n in numbers], n_best)
        null = min((said[n].no_answer for n in numbers), default=0.0)
        if null_against_best and nbest:
            null -= nbest[0]["score"]
        silent = not nbest or (null_threshold is not None and null > null_threshold)
        predictions.append(
            {
                "id": question.id,
                "text": "" if silent else nbest[0]["text"],
                "score": nbest[0]["score"] if nbest else None,
                "probability": nbest[0]["probability"] if nbest else 0.0,
                "no_answer_score": null,
                "nbest": nbest,
            }
        )
    return predictions


def best_text(prediction: Prediction) -> str:
    """The answer that is given where one has to be."""
    nbest = prediction["nbest"]
    return str(nbest[0]["text"]) if nbest else ""


def _nbest(context: str, windows: Sequence[tuple[Window, Spans]], count: int) -> list[Prediction]:
    spans = [
        (score, *_trimmed(context, *window.characters(start, end)))
        for window, said in windows
        for start, end, score in zip(said.starts, said.ends, said.scores, strict=True)
    ]
    kept: dict[str, Prediction] = {}
    for score, begin, end in sorted(spans, key=lambda span: -span[0]):
        text = context[begin:end]
        if text and text not in kept:
            kept[text] = {"text": text, "start": begin, "end": end, "score": score}
        if len(kept) == count:
            break
    nbest = list(kept.values())
    weights = [math.exp(one["score"] - nbest[0]["score"]) for one in nbest]
    for one, weight in zip(nbest, weights, strict=True):
        one["probability"] = weight / sum(weights)
    return nbest


def _trimmed(context: str, begin: int, end: int) -> tuple[int, int]:
    """Without spaces at either end (some tokenizers count the space before a word to its token), with the last letter's accents."""
    text = context[begin:end]
    begin, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    return begin, end
