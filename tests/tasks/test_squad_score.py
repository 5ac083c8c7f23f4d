"""Exact match, F1 and thresholds: worked by hand, and against a second, slow implementation."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from electra_trainer.tasks.squad_score import best_threshold, f1, normalize, question_scores, score_v1, score_v2


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


def test_the_threshold_is_that_of_the_last_question_that_is_worth_answering() -> None:
    raw, said, null, has = [1.0, 0.6, 0.0], ["a cat", "b", "c"], [-3.0, -1.0, -2.0], [True, True, False]
    assert best_threshold(raw, said, null, has) == (pytest.approx(2 / 3), -3.0)  # 1 + 0 + 1, then -1, then +0.6
    never, threshold = best_threshold([0.0], ["x"], [-9.0], [False])
    assert never == 1.0 and -9.01 < threshold < -9.0
    assert score_v2([[]], ["x"], [-9.0], threshold=threshold)["f1"] == 1.0, "where it says so, nothing is answered"


def test_a_threshold_is_not_above_itself() -> None:
    assert score_v2([["cat"]], ["cat"], [1.5], threshold=1.5)["f1"] == 1
    assert score_v2([["cat"]], ["cat"], [1.5], threshold=1.4999)["f1"] == 0
    assert "no_answer_accuracy" not in score_v2([["cat"]], ["cat"], [0.0], threshold=0.0)
    assert "has_answer_f1" not in score_v2([[]], ["cat"], [0.0], threshold=0.0)


def slow_words(text: str) -> list[str]:
    """Character by character: runs of letters and digits that are articles become a space."""
    made, word = "", ""
    for character in [*(one for one in text.lower() if one not in string.punctuation), " "]:
        if character.isalnum():
            word += character
            continue
        made += (" " if word in ("a", "an", "the") else word) + character
        word = ""
    return made.split()


@given(st.text(alphabet="aAnthe xÉ–“'-_.$7ß\u00a0\u0301\n", max_size=25) | st.text(max_size=12))
def test_normalize_is_what_is_left_character_by_character(text: str) -> None:
    assert normalize(text).split() == slow_words(text)
    assert normalize(text) == " ".join(slow_words(text))


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
