"""A question and its context as rows: `[CLS] question [SEP] some of the context [SEP]`, windows that overlap (released,
as BERT).

A context that is too long for one row is read in windows, each beginning `stride` tokens after the one before it. A
token is then in several windows; it may begin an answer only where it has the most context, the smaller of its left and
right context.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from electra_trainer.data.tokenizer import Text
from electra_trainer.finetuning.squad_files import Question
from electra_trainer.finetuning.task import Row

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
        context = contexts[question.context]
        spans = (
            answer_tokens(context.offsets_N2, answer.start, answer.start + len(answer.text.strip()))
            for answer in question.answers
            if training and answer.start is not None
        )
        span = next(filter(None, spans), None)
        if training and question.answers and span is None:
            continue
        query = queries[question.question].ids
        if tally is not None:  # a context is read in windows, whole
            tally.add_row(len(query), room_for_query, kind="questions")
        query = query[:room_for_query]
        room = text.length - 3 - len(query)
        windows = spread(len(context.ids), room=room, stride=stride)
        runs = [(0, 0)] * len(windows) if training else most_context(windows, len(context.ids))
        before = len(query) + 2
        for (first, count), run in zip(windows, runs, strict=True):
            ids = text.row(query, context.ids[first : first + count])
            shift = before - first
            startable = (run[0] + shift, run[1] + shift) if run[0] < run[1] else (0, 0)
            place = Window(offsets_N2=context.offsets_N2, first=first, count=count, before=before, startable=startable)
            at = (0, 0)
            if span is not None and first <= span[0] and span[1] < first + count:
                at = span[0] + shift, span[1] + shift
            target = Target(*at, unanswerable=not question.answers) if training else None
            rows.append(Row(ids=array("i", ids), example=index, target=target, place=place))
    return rows
