"""Windows: every token is in one, every offset is its text, every answer that fits is found again."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks import squad_small

from electra_trainer.data.tokenizer import Text, load_tokenizer, specials_of
from electra_trainer.tasks.squad_files import Question, read_squad, sample
from electra_trainer.tasks.squad_score import answer_tokens, encode, most_context, spread, window_rows


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


@given(st.integers(0, 200), st.integers(1, 60), st.integers(1, 60))
def test_most_context_token_by_token(tokens: int, room: int, stride: int) -> None:
    windows = spread(tokens, room=room, stride=stride)
    runs = most_context(windows, tokens)
    for token in range(tokens):
        best, owner = -1.0, None
        for number, (first, count) in enumerate(windows):
            if first <= token < first + count:
                score = min(token - first, first + count - 1 - token) + 0.01 * count
                if score > best:
                    best, owner = score, number
        assert [number for number, (first, end) in enumerate(runs) if first <= token < end] == [owner]


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
    tokenizer = load_tokenizer(shared / "data" / "vocab" / "bert-base-uncased-vocab.txt")
    return Text(tokenizer=tokenizer, specials=specials_of(tokenizer), length=length)


@pytest.fixture(scope="module")
def real(shared: Path) -> tuple[Question, ...]:
    return sample(read_squad(shared / "data" / "squad" / "dev-v1.1.json", version=1).questions, 200)


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


@pytest.mark.parametrize(("length", "least"), [(128, 0.995), (512, 0.995)])
def test_real_answers_are_found_again(shared: Path, real: tuple[Question, ...], length: int, least: float) -> None:
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
    assert sum(exact.values()) >= least * len(real)
