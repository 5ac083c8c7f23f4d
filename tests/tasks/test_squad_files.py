"""SQuAD's JSON: what is read, what is mended and said, and where each mistake is."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.squad_small import question

from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.tasks.squad_files import occurrence, read_squad, split_by_article

CONTEXT = "The chef cooked the meal. The guest ate the meal."


def entry(name: str = "1", **changes: Any) -> dict[str, Any]:
    return {"id": name, "question": "Who?", "answers": [{"text": "chef", "answer_start": 4}], **changes}


def table(*entries: Any, context: Any = CONTEXT, title: Any = "Meals", **top: Any) -> dict[str, Any]:
    return {"data": [{"title": title, "paragraphs": [{"context": context, "qas": list(entries)}]}], **top}


def written(folder: Path, content: Any) -> Path:
    path = folder / "file.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def test_reads_what_is_there(tmp_path: Path) -> None:
    path = written(
        tmp_path, table(entry("1"), entry("2", answers=[{"text": "the meal", "answer_start": 40}] * 2), version="1.1")
    )
    file = read_squad(path, version=1)
    first, second = file.questions
    assert (first.id, first.question, first.context, first.article) == ("1", "Who?", CONTEXT, "Meals")
    assert first.context[first.answers[0].start :].startswith("chef")
    assert [answer.start for answer in second.answers] == [40, 40]
    assert second.place == f"{path}: data[0].paragraphs[0].qas[1]"
    assert file.notes == () and file.content == path.read_bytes()


@pytest.mark.parametrize(
    ("answer", "said", "found"),
    [
        ("meal", 19, 20), ("meal", 30, 20), ("meal", 41, 44), ("meal", 10**9, 44), ("meal", -5, 20),
        ("The", 26, 26), (" meal ", 20, 20), (" meal", 19, 20), ("guest", 0, 30),
    ],
)  # fmt: skip
def test_a_wrong_answer_start_is_moved_to_the_nearest_place(tmp_path: Path, answer: str, said: int, found: int) -> None:
    path = written(tmp_path, table(entry(answers=[{"text": answer, "answer_start": said}])))
    file = read_squad(path, version=1)
    (one,) = file.questions[0].answers
    assert one.start == found and CONTEXT.startswith(answer.strip(), found)
    exact = CONTEXT.startswith(answer.strip(), said + len(answer) - len(answer.lstrip())) and said >= 0
    assert file.notes == (
        () if exact else ("file.json: 1 answers were not at their answer_start; the nearest place was taken.",)
    )


def test_an_answer_that_is_nowhere_is_counted(tmp_path: Path) -> None:
    file = read_squad(
        written(tmp_path, table(entry("1"), entry("2", answers=[{"text": "waiter", "answer_start": 4}]))), version=1
    )
    assert file.questions[1].answers[0].start is None
    assert "1 answers do not occur" in file.notes[0]


@given(st.text("ab ", max_size=14), st.text("ab ", min_size=1, max_size=5), st.integers(-3, 18))
def test_the_nearest_occurrence(context: str, text: str, start: int) -> None:
    found = [match.start() for match in re.finditer(f"(?={text})", context)]
    assert occurrence(context, text, start) == min(found, key=lambda one: abs(one - max(start, 0)), default=None)


@pytest.mark.parametrize("wanted", ["a " * 25_000, "b " + "a " * 25_000, "a " * 25_000 + "b", "b"])
def test_an_answer_that_occurs_often_takes_linear_time_and_memory(wanted: str) -> None:
    """Quadratic work would take minutes, and gigabytes."""
    context = "a " * 100_000
    tracemalloc.start()
    began = time.process_time()
    found = occurrence(context, wanted.strip(), 50_001)
    assert time.process_time() - began < 1 and tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()
    assert found == (None if "b" in wanted else 50_000)


WRONG = {
    "not UTF-8": (b"\xff{}", "is not UTF-8"),
    "not JSON": (b'{"data": [\n}', r"file.json: is not valid JSON"),
    "a list of texts": (["a"], r"file.json: expected an object with 'data', found \['a'\]\. Expected {\"data\""),
    "a number too long": (b'{"data": ' + b"1" * 5000 + b"}", "thousands of digits"),
    "a list": ([], "expected an object with 'data', found"),
    "no questions": ({"data": []}, "holds no questions"),
    "data no list": ({"data": {}}, r"file.json.data: expected a list, found \{\}"),
    "article no object": ({"data": [7]}, r"data\[0\]: expected an object with 'paragraphs', found 7"),
    "no paragraphs": ({"data": [{"title": "x"}]}, r"data\[0\]: expected an object with 'paragraphs'"),
    "context missing": ({"data": [{"paragraphs": [{"contxt": "x", "qas": []}]}]}, r"paragraphs\[0\]: expected an object with 'context'"),
    "context null": (table(entry(), context=None), r"paragraphs\[0\].context: expected a string, found None"),
    "qas missing": ({"data": [{"paragraphs": [{"context": "x"}]}]}, r"paragraphs\[0\]: expected an object with 'qas'"),
    "question missing": (table({"id": "1", "answers": []}), r"qas\[0\]: expected an object with 'question'"),
    "question blank": (table(entry(question="")), r"qas\[0\].question: is blank"),
    "id missing": (table({"question": "Who?", "answers": []}), r"expected an object with 'id'"),
    "impossible as text": (table(entry(is_impossible="False")), r"is_impossible: expected true or false, found 'False'"),
    "id a list": (table(entry(id=[5])), r"qas\[0\].id: expected a string, found \[5\]"),
    "id twice as number": (table(entry("1"), entry(id=1)), r"qas\[1\].id: '1' is also at .*qas\[0\]"),
    "id twice": (table(entry("1"), entry("1")), r"qas\[1\].id: '1' is also at .*qas\[0\]"),
    "answers of the Hub": (table(entry(answers={"text": ["chef"]})), r"answers: expected an object with 'answer_start'"),
    "a start too few": (table(entry(answers={"text": ["chef", "a"], "answer_start": [4]})), r"answers: 2 texts and 1 starts"),
    "another object": (table(entry(answers={"txt": ["chef"]})), r"answers: expected an object with 'text'"),
    "answer no object": (table(entry(answers=["chef"])), r"answers\[0\]: expected an object with 'text', found 'chef'"),
    "answer blank": (table(entry(answers=[{"text": " ", "answer_start": 3}])), r"qas\[0\]: has no answer.*--version 2"),
    "start missing": (table(entry(answers=[{"text": "chef"}])), r"answers\[0\]: expected an object with 'answer_start'"),
    "start as text": (table(entry(answers=[{"text": "chef", "answer_start": "4"}])), r"answer_start: expected a whole number, found '4'"),
    "start a fraction": (table(entry(answers=[{"text": "chef", "answer_start": 4.5}])), r"answer_start: expected a whole number, found 4.5"),
    "start true": (table(entry(answers=[{"text": "chef", "answer_start": True}])), r"answer_start: expected a whole number, found True"),
}  # fmt: skip


def lines_of(*objects: Any) -> bytes:
    return b"\n\n".join(json.dumps(one).encode() for one in objects) + b"\n"


def row(name: str | None = "1", **changes: Any) -> dict[str, Any]:
    """A question as a row of the Hub."""
    answers = {"text": ["chef"], "answer_start": [4]}
    return {"id": name, "title": "Meals", "context": CONTEXT, "question": "Who?", "answers": answers} | changes


PARAGRAPH = {"context": CONTEXT, "qas": [entry("1"), entry("2")]}
LAYOUTS: dict[str, Any] = {
    "rows, a line each": lines_of(row("1"), row("2")),
    "byte order mark": b"\xef\xbb\xbf" + lines_of(row("1"), row("2")),
    "no title": {"data": [{"document_id": 7, "paragraphs": [PARAGRAPH]}]},
    "answers of the Hub": table(entry("1"), entry("2", answers={"text": ["chef"], "answer_start": [4]})),
    "ids are numbers": table(entry(id=1), entry(id=2)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_files_as_users_have_them(tmp_path: Path, name: str) -> None:
    """Both files have two questions, for training and for prediction, without a note."""
    path = written(tmp_path, LAYOUTS[name])
    file = read_squad(path, version=1)
    assert [one.id for one in file.questions] == ["1", "2"] and file.notes == ()
    assert all(one.answers[0].start == 4 and one.context == CONTEXT for one in file.questions)
    assert [(one.id, one.question) for one in read_squad(path, version=None).questions] == [
        ("1", "Who?"),
        ("2", "Who?"),
    ]


def test_contexts_without_a_title_stay_together(tmp_path: Path) -> None:
    """So that `--split` does not train on a text that it scores on."""
    content = lines_of(row("1", title=None), row("2", title=None), row("3", title=None, context="Other."))
    first, second, third = (one.article for one in read_squad(written(tmp_path, content), version=None).questions)
    assert first == second != third


@pytest.mark.parametrize(
    "silent",
    [
        {"answers": []},
        {"answers": [], "is_impossible": True},
        {"answers": [{"text": "", "answer_start": -1}], "is_impossible": True},
        {"answers": [{"text": "", "answer_start": -1}]},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": {"text": [""], "answer_start": [-1]}, "is_impossible": True},
        {"answers": None, "is_impossible": True},
        {"plausible_answers": [{"text": "chef", "answer_start": 4}], "is_impossible": True, "answers": None},
    ],
)
def test_a_question_without_an_answer_however_it_is_written(tmp_path: Path, silent: dict[str, Any]) -> None:
    file = read_squad(written(tmp_path, table(entry("1"), entry("2") | silent)), version=2)
    assert [len(one.answers) for one in file.questions] == [1, 0] and file.notes == ()


@pytest.mark.parametrize(("content", "message"), WRONG.values(), ids=WRONG)
def test_mistakes_say_where(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_squad(written(tmp_path, content), version=1)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        read_squad(tmp_path / "none.json", version=1)


def test_the_split_is_always_the_same() -> None:
    questions = [question(name=f"q{n}", article=f"a{n % 13}") for n in range(400)]
    train, dev = split_by_article(questions, dev_share=0.5, where="x")
    assert not {one.article for one in train} & {one.article for one in dev}
    assert len(train) + len(dev) == 400 and 160 < len(dev) < 240
    assert (train, dev) == split_by_article(questions, dev_share=0.5, where="x")
    for share in (0.001, 0.999):
        train, dev = split_by_article(questions, dev_share=share, where="x")
        assert train and dev


def test_one_article_is_split_by_paragraph() -> None:
    questions = [question(name=str(n), context=f"{n % 5}") for n in range(50)]
    train, dev = split_by_article(questions, dev_share=0.4, where="x.json")
    assert len(dev) == 20 and not {one.context for one in train} & {one.context for one in dev}


def test_one_paragraph_cannot_be_split() -> None:
    with pytest.raises(DataError, match="one paragraph"):
        split_by_article([question(name="1"), question(name="2")], dev_share=0.5, where="x.json")


@pytest.mark.parametrize(("name", "version", "count"), [("dev-v1.1.json", 1, 10_570), ("dev-v2.0.json", 2, 11_873)])
def test_the_real_files(shared: Path, name: str, version: Any, count: int) -> None:
    file = read_squad(shared / "data" / "squad" / name, version=version)
    assert len(file.questions) == count
    assert file.notes == ()
    assert sum(not one.answers for one in file.questions) == (0 if version == 1 else 5_945)
