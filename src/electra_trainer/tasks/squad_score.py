"""A question and its context as rows, the best spans of these as one answer, and its score. No torch here.

Rows are `[CLS] question [SEP] some of the context [SEP]`, windows that overlap (released, as BERT). A context that is
too long for one row is read in windows, each beginning `stride` tokens after the one before it. A token is then in
several windows; it may begin an answer only where it has the most context, the smaller of its left and right context.

Exact match and F1 are as SQuAD's official scripts define them (evaluate-v1.1.py, evaluate-v2.0.py), written anew. Both
compare words after lower-casing, taking out ASCII punctuation and the articles a, an, the. The best true answer
counts. In 2.0 a question without an answer has one true answer, the empty text; an answer that is nothing but articles
and punctuation is not counted among the true ones; and an answer is given only where the "no answer" score is not above
a threshold.
"""

import math
import re
import string
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import Text
from electra_trainer.tasks import examples, task
from electra_trainer.tasks.squad_files import Question
from electra_trainer.tasks.task import Row

_TOGETHER = 512
"""Texts that are tokenized in one call: the library's own encodings are large."""


class Target(NamedTuple):
    """Target of a window for the loss."""

    start: int
    """Column of the answer's first token; 0, which is [CLS], where the answer is not whole in the window."""
    end: int
    """Column of its last token."""
    unanswerable: bool
    """The question has no answer, in any window."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """Tokens of a context that are in a row."""

    offsets_N2: NDArray[np.int32]
    """Characters [begin, end) of each token of the context, in all its windows."""
    first: int
    """The first token of the context that is in the row."""
    count: int
    """How many of them are."""
    before: int
    """Columns before it: [CLS], question, [SEP]."""
    startable: tuple[int, int]
    """Columns [first, end) at which an answer may begin: tokens with more context here than in any other window."""

    def characters(self, start: int, end: int) -> tuple[int, int]:
        """Characters [begin, end) of the context at columns `start` to `end`, both included."""
        shift = self.first - self.before
        return int(self.offsets_N2[start + shift, 0]), int(self.offsets_N2[end + shift, 1])


class Spans(NamedTuple):
    """The best answers of a row, the best first: columns of their first and last tokens, and scores."""

    starts: list[int]
    ends: list[int]
    scores: list[float]
    no_answer: float


class Encoded(NamedTuple):
    """Ids of a text, and the characters [begin, end) that each is of."""

    ids: Sequence[int]
    offsets_N2: NDArray[np.int32]


def encode(texts: Iterable[str], text: Text) -> dict[str, Encoded]:
    """Each different text, encoded once."""
    different = list(dict.fromkeys(texts))
    encoded: dict[str, Encoded] = {}
    for first in range(0, len(different), _TOGETHER):
        some = different[first : first + _TOGETHER]
        for one, encoding in zip(some, text.encode(some), strict=True):
            offsets_N2 = np.asarray(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            encoded[one] = Encoded(ids=array("i", encoding.ids), offsets_N2=offsets_N2)
    return encoded


def spread(tokens: int, *, room: int, stride: int) -> list[tuple[int, int]]:
    """First token and length of each window over a context; together they hold every token.

    Args:
        room: tokens of the context that fit into a row.
        stride: tokens between the beginnings of two windows; of a short row at most half of `room`, so that windows
            overlap by half.
    """
    stride = max(1, min(stride, room // 2))
    windows = [(0, min(tokens, room))]
    while sum(windows[-1]) < tokens:
        first = windows[-1][0] + stride
        windows.append((first, min(tokens - first, room)))
    return windows


def most_context(windows: Sequence[tuple[int, int]], tokens: int) -> list[tuple[int, int]]:
    """Tokens [first, end) of each window that have more context in it than in any other.

    A token's score is the smaller of its left and right context, and a hundredth of the window's length; of equal
    windows the first one has the token (BERT, released). What a window has is one run of tokens: the difference of two
    windows' scores never rises.
    """
    token_N = np.arange(tokens)
    scores_WN = np.full((len(windows), tokens), -np.inf)
    for score_N, (first, count) in zip(scores_WN, windows, strict=True):
        inside = slice(first, first + count)
        left = token_N[inside] - first
        score_N[inside] = np.minimum(left, count - 1 - left) + 0.01 * count
    owner_N = scores_WN.argmax(axis=0)
    first_W = np.searchsorted(owner_N, range(len(windows)), side="left")
    end_W = np.searchsorted(owner_N, range(len(windows)), side="right")
    return list(zip(first_W.tolist(), end_W.tolist(), strict=True))


def answer_tokens(offsets_N2: NDArray[np.int32], begin: int, end: int) -> tuple[int, int] | None:
    """First and last token of those that reach into characters [begin, end); None without any.

    An answer that ends within a token has the whole token: "Japan" of "Japanese".
    """
    first = int(np.searchsorted(offsets_N2[:, 1], begin, side="right"))
    last = int(np.searchsorted(offsets_N2[:, 0], end, side="left")) - 1
    return (first, last) if first <= last else None


def window_rows(questions: Sequence[Question], text: Text, *, max_query: int, stride: int, training: bool) -> list[Row]:
    """Rows of all windows of all questions, one question after another.

    Args:
        max_query: tokens of a question that are read; fewer where rows are short, so that half a row is left for the
            context.
        stride: see `spread`.
        training: with a `Target`, that of the first answer which has a place; a question whose answers have none gives
            no rows.
    """
    contexts = encode((question.context for question in questions), text)
    queries = encode((question.question for question in questions), text)
    rows: list[Row] = []
    room_for_query, tally, text = min(max_query, (text.length - 3) // 2), text.tally, replace(text, tally=None)
    for index, question in enumerate(questions):
        query = queries[question.question].ids
        span = _first_place(question, contexts[question.context]) if training else None
        if training and question.answers and span is None:
            continue
        if tally is not None:  # a context is read in windows, whole
            tally.add_row(len(query), room_for_query, kind="questions")
        for ids, place in _windows(query[:room_for_query], contexts[question.context], text, stride, training=training):
            inside = span is not None and place.first <= span[0] and span[1] < place.first + place.count
            start, end = (token - place.first + place.before for token in span) if span and inside else (0, 0)
            target = Target(start, end, unanswerable=not question.answers) if training else None
            rows.append(Row(ids=ids, example=index, target=target, place=place))
    return rows


def _first_place(question: Question, context: Encoded) -> tuple[int, int] | None:
    """The tokens of the first answer that has some."""
    known = ((one.start, len(one.text.strip())) for one in question.answers if one.start is not None)
    found = (answer_tokens(context.offsets_N2, start, start + length) for start, length in known)
    return next(filter(None, found), None)


def _windows(
    query: Sequence[int], context: Encoded, text: Text, stride: int, *, training: bool
) -> Iterator[tuple["array[int]", Window]]:
    """The rows of a question; in training they do not say where an answer may begin."""
    tokens, before = len(context.ids), len(query) + 2
    windows = spread(tokens, room=text.length - 1 - before, stride=stride)
    runs = [(0, 0)] * len(windows) if training else most_context(windows, tokens)
    for (first, count), (begin, end) in zip(windows, runs, strict=True):
        shift = before - first
        startable = (begin + shift, end + shift) if begin < end else (0, 0)
        place = Window(offsets_N2=context.offsets_N2, first=first, count=count, before=before, startable=startable)
        yield array("i", text.row(query, context.ids[first : first + count])), place


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """The words that count, with one space between them."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(gold: str, predicted: str, *, version: Literal[1, 2]) -> float:
    """Harmonic mean of the shares of words that two answers have in common.

    Of two answers without a word 1.1 says 0, 2.0 says 1.
    """
    left, right = normalize(gold).split(), normalize(predicted).split()
    if not left or not right:
        return float(version == 2 and left == right)
    common = sum((Counter(left) & Counter(right)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(right), common / len(left)
    return 2 * precision * recall / (precision + recall)


def question_scores(golds: Sequence[str], predicted: str, *, version: Literal[1, 2]) -> dict[str, float]:
    """`f1` and `exact_match` (the same words in the same order) of one question: the best over its true answers; none
    of them: it has no answer (2.0).
    """
    if version == 2:
        golds = [gold for gold in golds if normalize(gold)] or [""]
    return {
        "f1": max(f1(gold, predicted, version=version) for gold in golds),
        "exact_match": float(normalize(predicted) in map(normalize, golds)),
    }


def score_v1(golds: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """`f1` and `exact_match` of SQuAD 1.1, means over questions."""
    scores = [question_scores(gold, text, version=1) for gold, text in zip(golds, predicted, strict=True)]
    return {name: _mean([one[name] for one in scores]) for name in ("f1", "exact_match")}


def score_v2(
    golds: Sequence[Sequence[str]], predicted: Sequence[str], no_answer: Sequence[float], *, threshold: float
) -> dict[str, float]:
    """Scores of SQuAD 2.0.

    Args:
        golds: true answers of each question; none: it has no answer.
        predicted: the best answer to each, had one to be given.
        no_answer: the larger, the less likely there is one.
        threshold: no answer is given where `no_answer` is above it.

    Returns:
        `best_f1` and `best_exact_match`, at the thresholds that are best for these very questions; `f1` and
        `exact_match` at `threshold`; of the latter, where there are such, `has_answer_f1`, `has_answer_exact_match` of
        questions with an answer, `no_answer_accuracy` of the others; and the thresholds: `threshold`,
        `best_f1_threshold`, `best_exact_match_threshold`.
    """
    each = [question_scores(gold, text, version=2) for gold, text in zip(golds, predicted, strict=True)]
    answered = [bool(gold) for gold in golds]
    names = ("f1", "exact_match")
    raw = {name: [one[name] for one in each] for name in names}
    best = {name: best_threshold(raw[name], predicted, no_answer, answered) for name in names}
    silent = [null > threshold for null in no_answer]
    held = {
        name: [float(not has) if quiet else one for one, quiet, has in zip(raw[name], silent, answered, strict=True)]
        for name in names
    }
    scores = {f"best_{name}": best[name][0] for name in names} | {name: _mean(held[name]) for name in names}
    if any(answered):
        scores |= {f"has_answer_{name}": _mean([*compress(held[name], answered)]) for name in names}
    if not all(answered):
        scores["no_answer_accuracy"] = _mean([*compress(held["f1"], map(not_, answered))])
    return scores | {"threshold": threshold} | {f"best_{name}_threshold": best[name][1] for name in names}


def best_threshold(
    raw: Sequence[float], predicted: Sequence[str], no_answer: Sequence[float], answered: Sequence[bool]
) -> tuple[float, float]:
    """The highest mean score and its threshold, as the official script looks for it.

    From "never answer" on, questions are answered in the order of their `no_answer`. Like the script it may stop
    between two that are equal, where no threshold can. Where never to answer is best, the threshold is below all of
    them; the script says 0 there.

    Args:
        raw: the score of each question if it is answered.
        answered: whether it has an answer.
    """
    total = best = float(sum(not has for has in answered))
    threshold = math.nextafter(min(no_answer, default=0.0), -math.inf)
    for index in sorted(range(len(raw)), key=lambda index: no_answer[index]):
        total += raw[index] if answered[index] else -float(bool(predicted[index]))
        if total > best:
            best, threshold = total, no_answer[index]
    return best / max(len(raw), 1), threshold


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def decode(
    questions: Sequence[Question],
    rows: Sequence[task.Row],
    predicted: Sequence[Spans],
    *,
    n_best: int,
    null_threshold: float | None,
    null_against_best: bool,
) -> list[examples.Prediction]:
    """One prediction a question.

    Args:
        rows: with a `Window` as their place.
        predicted: the head's output for each row.
        n_best: answers that are kept of each question; equal texts are one, with the better score.
        null_threshold: the text is empty where `no_answer_score` is above it; None: an answer is always given.
        null_against_best: `no_answer_score` is how much better the null span is than the best one (BERT); else it is
            the head's own (XLNet). Either way that of the window which likes it least.

    Returns:
        {"id", "text", "score", "probability", "no_answer_score", "nbest": [{"text", "start", "end", "score",
        "probability"}]} with `start` and `end` in characters of the context. "score" and "probability" are those of the
        best answer, also where "text" is empty; probabilities are shares among the `nbest`.
    """
    rows_of: list[list[int]] = [[] for _ in questions]
    for number, row in enumerate(rows):
        rows_of[row.example].append(number)
    predictions: list[examples.Prediction] = []
    for question, numbers in zip(questions, rows_of, strict=True):
        nbest = _nbest(question.context, [(rows[n].place, predicted[n]) for n in numbers], n_best)
        null = min((predicted[n].no_answer for n in numbers), default=0.0)
        if null_against_best and nbest:
            null -= nbest[0]["score"]
        best = nbest[0] if nbest else {"text": "", "score": None, "probability": 0.0}
        silent = null_threshold is not None and null > null_threshold
        given = {name: best[name] for name in ("text", "score", "probability")} | ({"text": ""} if silent else {})
        predictions.append({"id": question.id, **given, "no_answer_score": null, "nbest": nbest})
    return predictions


def _nbest(context: str, windows: Sequence[tuple[Window, Spans]], count: int) -> list[examples.Prediction]:
    spans = [
        (score, *_trimmed(context, *window.characters(start, end)))
        for window, predicted in windows
        for start, end, score in zip(predicted.starts, predicted.ends, predicted.scores, strict=True)
    ]
    kept: dict[str, examples.Prediction] = {}
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
    """Without spaces at either end (some tokenizers count the space before a word to its token), with the last letter's
    accents.
    """
    text = context[begin:end]
    begin, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    return begin, end


_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)", re.DOTALL)


def most_alike(questions: Sequence[Question]) -> list[examples.Prediction]:
    """A baseline: the sentence of each context with the largest share of the question's words, of equals the shortest.

    Its "no answer" score is the missing share, so for SQuAD 2.0 read its scores at the best threshold.
    """
    predictions = []
    for question in questions:
        asked = set(normalize(question.question).split())
        sentences = [match.group() for match in _SENTENCE.finditer(question.context)]
        shares = [len(asked & set(normalize(sentence).split())) / max(len(asked), 1) for sentence in sentences]
        best = max(range(len(sentences)), key=lambda index: (shares[index], -len(sentences[index])))
        place = {"text": sentences[best], "start": question.context.index(sentences[best])}
        predicted = {"id": question.id, "text": sentences[best], "no_answer_score": 1 - shares[best], "nbest": [place]}
        predictions.append(predicted)
    return predictions


def never(questions: Sequence[Question]) -> list[examples.Prediction]:
    """A baseline of 2.0: no answer to any question."""
    return [{"id": question.id, "text": "", "no_answer_score": 0.0, "nbest": []} for question in questions]
