"""Windows -> one answer a question, in the context's own letters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.tasks.squad_small import question

from electra_trainer.tasks.squad_score import Spans, Window, decode
from electra_trainer.tasks.task import Row

CONTEXT = "Straße 9, (the  café)"
OFFSETS = np.array([(0, 6), (7, 8), (8, 9), (10, 11), (11, 14), (16, 20), (20, 21)], dtype=np.int32)


def row(example: int, *, first: int = 0, count: int = 7, before: int = 4) -> Row:
    place = Window(offsets_N2=OFFSETS, first=first, count=count, before=before, startable=(before, before + count))
    return Row(ids=(), example=example, place=place)


def spans(*found: tuple[int, int, float], null: float = 0.0) -> Spans:
    starts, ends, scores = zip(*found, strict=True) if found else ((), (), ())
    return Spans(list(starts), list(ends), list(scores), null)


def decoded(rows: list[Row], said: list[Spans], *, questions: int = 1, **changes):
    settings = {"n_best": 20, "null_threshold": None, "null_against_best": False} | changes
    return decode([question(CONTEXT, name=f"q{n}") for n in range(questions)], rows, said, **settings)


def test_the_text_is_the_contexts_own() -> None:
    (said,) = decoded([row(0)], [spans((4, 5, 2.0), (7, 10, 1.0))])
    assert said["text"] == "Straße 9"
    assert [one["text"] for one in said["nbest"]] == ["Straße 9", "(the  café)"]
    assert all(CONTEXT[one["start"] : one["end"]] == one["text"] for one in said["nbest"])
    assert [one["probability"] for one in said["nbest"]] == pytest.approx(
        [1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))]
    )
    assert (said["id"], said["score"], said["probability"]) == ("q0", 2.0, said["nbest"][0]["probability"])


def test_windows_of_a_question_compete_and_questions_do_not() -> None:
    rows = [row(1), row(0, first=2, count=5, before=9), row(0)]
    first, second = decoded(rows, [spans((4, 4, 9.0)), spans((12, 12, 3.0)), spans((5, 5, 2.0))], questions=2)
    assert [one["text"] for one in first["nbest"]] == ["café", "9"]  # column 12 of a row whose column 9 is token 2
    assert [one["text"] for one in second["nbest"]] == ["Straße"]


def test_equal_texts_are_one_and_the_better_counts() -> None:
    (said,) = decoded([row(0), row(0)], [spans((5, 5, 1.0), (4, 4, 0.5)), spans((5, 5, 4.0))])
    assert [(one["text"], one["score"]) for one in said["nbest"]] == [("9", 4.0), ("Straße", 0.5)]
    assert sum(one["probability"] for one in said["nbest"]) == pytest.approx(1)


def test_n_best_are_kept() -> None:
    (said,) = decoded([row(0)], [spans(*((column, column, -float(column)) for column in range(4, 11)))], n_best=3)
    assert [one["text"] for one in said["nbest"]] == ["Straße", "9", ","]


@pytest.mark.parametrize(("threshold", "text"), [(-1.0, ""), (-0.5, "9"), (0.0, "9"), (None, "9")])
def test_no_answer_is_that_of_the_window_which_likes_it_least(threshold: float | None, text: str) -> None:
    rows, said = [row(0), row(0)], [spans((5, 5, -7.0), null=2.0), spans((4, 4, -8.0), null=-0.5)]
    (one,) = decoded(rows, said, null_threshold=threshold)
    assert one["no_answer_score"] == -0.5
    assert one["text"] == text and one["nbest"][0]["text"] == "9"


@pytest.mark.parametrize(("threshold", "text"), [(0.9, ""), (1.0, "9")])
def test_no_answer_of_bert_is_against_the_best_span(threshold: float, text: str) -> None:
    rows, said = [row(0), row(0)], [spans((5, 5, 3.0), null=6.0), spans((4, 4, 2.0), null=4.0)]
    (one,) = decoded(rows, said, null_threshold=threshold, null_against_best=True)
    assert one["no_answer_score"] == pytest.approx(1.0)
    assert one["text"] == text


def test_a_question_without_spans_is_answered_with_nothing() -> None:
    (one,) = decoded([row(0)], [spans(null=0.3)])
    assert (one["text"], one["nbest"], one["score"]) == ("", [], None)


@pytest.mark.parametrize(
    ("context", "offsets", "text"),
    [(" the cat ", (0, 8), "the cat"), ("the cafe\u0301 is", (4, 8), "cafe\u0301"), ("a \n b", (1, 3), None)],
)
def test_spaces_go_and_accents_stay(context: str, offsets: tuple[int, int], text: str | None) -> None:
    place = Window(offsets_N2=np.array([offsets], dtype=np.int32), first=0, count=1, before=4, startable=(4, 5))
    (one,) = decode(
        [question(context)], [Row(ids=(), example=0, place=place)], [spans((4, 4, 0.0))],
        n_best=20, null_threshold=None, null_against_best=False,
    )  # fmt: skip
    assert one["text"] == (text or "")
    assert len(one["nbest"]) == (text is not None)
