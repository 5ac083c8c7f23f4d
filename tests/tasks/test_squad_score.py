"""Windows hold every token and find their answers again, become one answer a question, and are scored by hand and by loops."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks import squad_small

from electra_trainer.data.tokenizer import Text, load_tokenizer
from electra_trainer.tasks.squad_files import Question, read_squad
from electra_trainer.tasks.squad_score import (
    Spans,
    Window,
    answer_tokens,
    decode,
    encode,
    f1,
    normalize,
    question_scores,
    score_v1,
    score_v2,
    spread,
    window_rows,
)
from electra_trainer.tasks.task import Row


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The  Cat,\tsat.", "cat sat"),
        ("a an the", ""),
        ("A-Team", "ateam"),  # punctuation goes before articles, and leaves no space
        ("the-end", "theend"),
        ("Theatre another an", "theatre another"),
        ("US$3.5", "us35"),
        ("1973–74", "1973–74"),  # only ASCII punctuation is any
        ("“the cat”", "“ cat”"),
        ("l'a", "la"),
        ("O'the hill", "othe hill"),
        ("ÉCOLE", "école"),
        ("a\u00a0b", "b"),  # a no-break space is a space
        ("", ""),
        ("_the_", ""),
    ],
)  # fmt: skip
def test_normalize(text: str, words: str) -> None:
    assert normalize(text) == words


@pytest.mark.parametrize(
    ("gold", "said", "exact", "version_1", "version_2"),
    [
        ("the cat", "Cat.", 1, 1, 1),
        ("cat sat", "the cat sat down", 0, 0.8, 0.8),  # 2 of 3 and 2 of 2
        ("cat cat", "cat", 0, 2 / 3, 2 / 3),  # words count as often as they stand
        ("cat", "dog", 0, 0, 0),
        ("The", "a", 1, 0, 1),  # no words on either side: the versions differ
        ("", "", 1, 0, 1),
        ("", "cat", 0, 0, 0),
        ("cat", "the", 0, 0, 0),
    ],
)
def test_by_hand(gold: str, said: str, exact: float, version_1: float, version_2: float) -> None:
    assert question_scores([gold], said, version=1)["exact_match"] == exact
    assert f1(gold, said, version=1) == pytest.approx(version_1)
    assert f1(gold, said, version=2) == pytest.approx(version_2)


def test_the_best_gold_counts_and_empty_golds_are_dropped_in_2_0() -> None:
    for golds, said, version, exact, overlap in (
        (["dog", "the black cat", "cat"], "black cat", 1, 1, 1),
        (["dog", "a b c d"], "b dog", 1, 0, 2 / 3),
        (["the", "cat"], "a", 2, 0, 0),
        (["the", "cat"], "a", 1, 1, 0),
        (["the"], "", 2, 1, 1),
        ([], "", 2, 1, 1),
        ([], "cat", 2, 0, 0),
    ):
        assert question_scores(golds, said, version=version) == {"f1": pytest.approx(overlap), "exact_match": exact}


def test_scores_of_a_whole_file_by_hand() -> None:
    assert score_v1([["cat"], ["dog"], ["red fox"]], ["the cat", "cow", "fox"]) == {
        "f1": pytest.approx((1 + 0 + 2 / 3) / 3),
        "exact_match": pytest.approx(1 / 3),
    }
    # answered if the score is not above 0: the first right, the second wrongly silent, the third rightly silent, the fourth not
    found = score_v2([["cat"], ["red fox"], [], []], ["cat", "fox", "cow", "hen"], [-3.0, 0.5, 2.0, 0.0], threshold=0.0)
    assert found == {
        "f1": pytest.approx(2 / 4),
        "exact_match": pytest.approx(2 / 4),
        "best_f1": pytest.approx(3 / 4),  # answer the first only: 1 + 0 + 1 + 1
        "best_exact_match": pytest.approx(3 / 4),
        "has_answer_f1": pytest.approx(1 / 2),
        "has_answer_exact_match": pytest.approx(1 / 2),
        "no_answer_accuracy": pytest.approx(1 / 2),
        "threshold": 0.0,
        "best_f1_threshold": -3.0,
        "best_exact_match_threshold": -3.0,
    }
    partly = score_v2([["cat"], ["red fox"], []], ["cat", "fox", "cow"], [-3.0, -1.0, 2.0], threshold=-2.75)
    assert (partly["best_f1_threshold"], partly["best_exact_match_threshold"]) == (
        -1.0,
        -3.0,
    )  # the fox counts for F1 only


def test_a_threshold_is_not_above_itself() -> None:
    assert score_v2([["cat"]], ["cat"], [1.5], threshold=1.5)["f1"] == 1
    assert score_v2([["cat"]], ["cat"], [1.5], threshold=1.4999)["f1"] == 0
    assert "no_answer_accuracy" not in score_v2([["cat"]], ["cat"], [0.0], threshold=0.0)
    assert "has_answer_f1" not in score_v2([[]], ["cat"], [0.0], threshold=0.0)


@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.integers(0, 60)),
        min_size=1,
        max_size=8,
        unique_by=lambda one: one[2],
    )
)
def test_the_best_threshold_is_the_best_of_all(rows: list[tuple[bool, bool, int]]) -> None:
    """Every threshold is tried: below all scores, and at each."""
    golds = [["cat"] if answered else [] for answered, _, _ in rows]
    said = ["cat" if right else "dog" for _, right, _ in rows]
    null = [float(one) for _, _, one in rows]
    tried = [score_v2(golds, said, null, threshold=at)["f1"] for at in [-1.0, *null]]
    found = score_v2(golds, said, null, threshold=0.0)
    assert found["best_f1"] == pytest.approx(max(tried))
    best = found["best_f1_threshold"]
    assert score_v2(golds, said, null, threshold=best)["f1"] == pytest.approx(max(tried))


@given(st.integers(0, 300), st.integers(1, 120), st.integers(1, 200))
def test_windows_hold_every_token_and_overlap(tokens: int, room: int, stride: int) -> None:
    windows = spread(tokens, room=room, stride=stride)
    seen = [token for first, count in windows for token in range(first, first + count)]
    assert set(seen) == set(range(tokens))
    assert all(0 <= count <= room for _, count in windows)
    assert all(count == room for _, count in windows[:-1])
    steps = {after[0] - before[0] for before, after in itertools.pairwise(windows)}
    assert steps <= {max(1, min(stride, room // 2))}
    assert sum(windows[-1]) == tokens
    assert len(windows) < 2 or sum(windows[-2]) < tokens, "no window for nothing"


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=8),
    st.integers(0, 30),
    st.integers(1, 10),
)
def test_answer_tokens_are_those_that_overlap(gaps: list[tuple[int, int]], begin: int, length: int) -> None:
    offsets, at = [], 0
    for gap, width in gaps:
        offsets.append((at + gap, at + gap + width))
        at += gap + width
    overlapping = [number for number, (first, end) in enumerate(offsets) if first < begin + length and end > begin]
    found = answer_tokens(np.array(offsets, dtype=np.int32), begin, begin + length)
    assert found == ((overlapping[0], overlapping[-1]) if overlapping else None)


def test_a_row_by_hand() -> None:
    text = squad_small.text(16)
    one = squad_small.question("ab cd ef gh ij", "xyz?", "gh")
    rows = window_rows([one], text, max_query=64, stride=128, training=True)
    tokens = [[text.tokenizer.id_to_token(number) for number in row.ids] for row in rows]
    query = ["[CLS]", "x", "##y", "##z", "?", "[SEP]"]
    assert tokens == [
        [*query, "a", "##b", "c", "##d", "e", "##f", "g", "##h", "i", "[SEP]"],
        [*query, "e", "##f", "g", "##h", "i", "##j", "[SEP]"],
    ]  # room 9, stride 4
    assert [tuple(row.target) for row in rows] == [(12, 13, False), (8, 9, False)]
    assert [row.place.characters(*row.target[:2]) for row in rows] == [(9, 11), (9, 11)]
    (first, second) = window_rows([one], text, max_query=64, stride=128, training=False)
    # tokens 0..9 have left/right context min(0,8) ... ; from token 7 on the second window has more
    assert first.place.startable == (6, 13) and second.place.startable == (9, 12)
    assert first.target is None and first.example == 0


def test_targets_where_the_answer_is_not_whole() -> None:
    text = squad_small.text(16)
    rows = window_rows(
        [squad_small.question("abcdefghijklmnop", "xyz?", "hijk")], text, max_query=64, stride=128, training=True
    )
    assert [row.target[:2] for row in rows] == [(0, 0), (9, 12), (0, 0)]
    none = window_rows([squad_small.question("ab cd", "xyz?", None)], text, max_query=64, stride=128, training=True)
    assert [tuple(row.target) for row in none] == [(0, 0, True)]


def test_a_question_without_a_place_for_its_answer_gives_no_training_rows() -> None:
    text = squad_small.text(32)
    lost = squad_small.question("ab cd", "x?", "zz")
    second = squad_small.question("ab cd", "x?", ["zz", "cd"])
    rows = window_rows([lost, second], text, max_query=64, stride=128, training=True)
    assert [(row.example, row.place.characters(*row.target[:2])) for row in rows] == [(1, (3, 5))]
    assert len(window_rows([lost, second], text, max_query=64, stride=128, training=False)) == 2


@pytest.mark.parametrize("length", [8, 9, 16, 33, 128])
def test_long_questions_leave_half_a_row(length: int) -> None:
    text = squad_small.text(length)
    one = squad_small.question("ab " * 60, "why " * 60, "ab")
    rows = window_rows([one], text, max_query=64, stride=128, training=False)
    assert all(len(row.ids) <= length for row in rows)
    assert rows[0].place.before - 2 == min(64, (length - 3) // 2)
    seen = {row.place.first + token for row in rows for token in range(row.place.count)}
    assert seen == set(range(120))


def test_a_context_without_tokens_gives_one_empty_window() -> None:
    text = squad_small.text(16)
    (row,) = window_rows([squad_small.question("\u200b", "x?", None)], text, max_query=64, stride=128, training=False)
    assert row.place.count == 0 and row.place.startable == (0, 0)


@pytest.mark.parametrize(
    "context",
    ["Übergrößenträger İstanbul", "日本語 の 文", "a\u0301 é ﬁ ǆ", "👩‍👩‍👧 family", "x\u00a0y\u2003z", "1973–74, US$3"],
)
def test_offsets_in_odd_letters(shared: Path, context: str) -> None:
    encoded = encode([context], bert_text(shared, 64))[context]
    tokens = [context[begin:end] for begin, end in encoded.offsets_N2.tolist()]
    assert all(token.strip() for token in tokens)
    marks = "\u0301"  # stripped with the accents: no token is of it
    assert "".join(tokens) == "".join(
        character for character in context if not character.isspace() and character not in marks
    )


def bert_text(shared: Path, length: int) -> Text:
    return Text.of(load_tokenizer(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt"), length=length)


@pytest.fixture(scope="module")
def real(shared: Path) -> tuple[Question, ...]:
    return read_squad(shared / "data" / "squad" / "dev-v1.1.json", version=1).questions[::53]


@pytest.mark.parametrize("length", [128, 512])
def test_real_contexts(shared: Path, real: tuple[Question, ...], length: int) -> None:
    """Each token's characters read like the token; every token is in a window; an answer may begin at each, once."""
    text = bert_text(shared, length)
    rows = window_rows(real, text, max_query=64, stride=128, training=False)
    windows_of: dict[int, list] = {}
    for row in rows:
        windows_of.setdefault(row.example, []).append(row)
    assert sorted(windows_of) == list(range(len(real)))
    for number, windows in windows_of.items():
        context = real[number].context
        seen: set[int] = set()
        starts: list[int] = []
        for row in windows:
            place = row.place
            for token in range(place.count):
                begin, end = place.characters(place.before + token, place.before + token)
                plain = text.tokenizer.normalizer.normalize_str(context[begin:end]).strip()
                word = text.tokenizer.id_to_token(row.ids[place.before + token])
                assert word == "[UNK]" or word.removeprefix("##") == plain
            seen.update(range(place.first, place.first + place.count))
            starts += [column - place.before + place.first for column in range(*place.startable)]
        assert seen == set(range(len(place.offsets_N2)))
        assert sorted(starts) == list(range(len(place.offsets_N2)))


@pytest.mark.parametrize("length", [128, 512])
def test_real_answers_are_found_again(shared: Path, real: tuple[Question, ...], length: int) -> None:
    """The characters of the target columns are the answer, but for answers that end inside a word; all the same in some window."""
    text = bert_text(shared, length)
    rows = window_rows(real, text, max_query=64, stride=128, training=True)
    exact: dict[int, bool] = {}
    for row in rows:
        if row.target.start:
            one = real[row.example]
            begin, end = row.place.characters(row.target.start, row.target.end)
            answer = one.answers[0]
            assert answer.text in one.context[begin:end]
            exact[row.example] = one.context[begin:end] == answer.text and begin == answer.start
    assert len(exact) == len(real), "every answer is whole in some window"
    assert sum(exact.values()) >= 0.995 * len(real)


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
    return decode([squad_small.question(CONTEXT, name=f"q{n}") for n in range(questions)], rows, said, **settings)


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


@pytest.mark.parametrize(
    ("against_best", "score", "threshold", "text"),
    [
        *((False, -0.5, *case) for case in ((-1.0, ""), (-0.5, "9"), (0.0, "9"), (None, "9"))),
        *((True, 6.5, *case) for case in ((6.4, ""), (6.5, "9"))),  # as BERT has it
    ],
)
def test_no_answer_is_that_of_the_window_which_likes_it_least(
    against_best: bool, score: float, threshold: float | None, text: str
) -> None:
    rows, said = [row(0), row(0)], [spans((5, 5, -7.0), null=2.0), spans((4, 4, -8.0), null=-0.5)]
    (one,) = decoded(rows, said, null_threshold=threshold, null_against_best=against_best)
    assert one["no_answer_score"] == score
    assert one["text"] == text and one["nbest"][0]["text"] == "9"


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
        [squad_small.question(context)], [Row(ids=(), example=0, place=place)], [spans((4, 4, 0.0))],
        n_best=20, null_threshold=None, null_against_best=False,
    )  # fmt: skip
    assert one["text"] == (text or "")
    assert len(one["nbest"]) == (text is not None)
