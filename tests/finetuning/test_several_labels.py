"""Several labels for one text are recognised and named; labels that merely hold a separator are left alone."""

from pathlib import Path

import pytest
from tests.finetuning.own_files import rows, write_csv

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetuning.several_labels import in_columns, in_one_column
from electra_trainer.finetuning.texts.own_task import OwnTask

TOPICS = ("business", "sports", "politics", "science")


def combined(separator: str) -> list[str]:
    """Eight classes of four topics and two places."""
    return [f"{topic}{separator}{place}" for topic in TOPICS for place in ("usa", "uk")]


@pytest.mark.parametrize("separator", [";", "; ", "|", ",", ", ", "/", "+", " & "])
def test_labels_of_several_labels(separator: str) -> None:
    said = in_one_column(combined(separator))
    assert said.startswith(
        f"8 of the 8 labels are several in one, such as 'business{separator}usa' (business and usa). One label per text"
    )
    assert "a column of yes and no for each label" in said


@pytest.mark.parametrize(
    "labels",
    [
        ["a;b", "a", "b", "c"],
        ["a;b;", "a;c;", "d;"],
        ["sport|news", "sport", "weather"],
        ["['a', 'b']", "['a']", "['c']"],
        ["art business", "art", "business", "sport"],
        ["toxic,insult", "toxic", "insult", "threat,insult"],
    ],
)
def test_some_rows_have_several(labels: list[str]) -> None:
    assert "several in one" in in_one_column(labels)


@pytest.mark.parametrize(
    "labels",
    [
        ["very good", "good", "not good", "bad", "very bad"],
        ["fruit", "tool"],
        ["Paris, France", "Lyon, France", "Nice, France", "Berlin, Germany"],
        ["TCP/IP", "hardware", "R&D", "C++"],
        ["3,5", "4,5", "5"],
        ["neutral", "very good", "very bad"],
        ["a;b", "c"],
        ["1", "2", "3.5"],
    ],
)
def test_labels_that_are_one(labels: list[str]) -> None:
    assert in_one_column(labels) == ""


def test_training_goes_on_with_a_warning(tmp_path: Path) -> None:
    labels = combined(";")
    table = [(f"{text} {number}", labels[number % 8]) for number, (text, _) in enumerate(rows(80))]
    notes = OwnTask(train=write_csv(tmp_path / "a.csv", table)).load().notes
    assert any(
        note.startswith("warning: 8 of the 8 labels are several in one, such as 'business;uk'") for note in notes
    )


def test_the_error_on_many_labels_names_them(tmp_path: Path) -> None:
    table = [(f"text {n}", f"t{n % 10};p{n // 10}") for n in range(60)]
    with pytest.raises(DataError, match=r"60 different labels in 60 rows.* 60 of the 60 labels are several in one"):
        OwnTask(train=write_csv(tmp_path / "a.csv", table)).load()
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "label": ["b", "c"]}\n')
    with pytest.raises(DataError, match=r"expected one label: .* One label per text is learned: keep one in each row"):
        OwnTask(train=path).load()


def one_hot(*, several: bool) -> list[tuple[str, ...]]:
    bare = [(text, *("1" if n % 3 == at else "0" for at in range(3))) for n, (text, _) in enumerate(rows(60))]
    return [
        (text, "1", "1", last) if several and not n % 3 else (text, a, b, last)
        for n, (text, a, b, last) in enumerate(bare)
    ]


@pytest.mark.parametrize(("several", "many"), [(True, "20 rows have several"), (False, "no row has two")])
def test_columns_of_zero_and_one(tmp_path: Path, several: bool, many: str) -> None:
    """With a remedy that works."""
    train = write_csv(tmp_path / "a.csv", one_hot(several=several), ("text", "sports", "business", "arts"))
    told = rf"'sports', 'business', 'arts' hold 0 and 1, as one label each \({many}\), and one label per text is learned.*--label sports"
    with pytest.raises(ConfigError, match=told):
        OwnTask(train=train).load()
    assert OwnTask(train=train, label="sports", text="text").load().dev["dev"]


def test_columns_that_are_no_labels() -> None:
    assert in_columns({"text": ["a", "b"], "seen": [0, 1], "id": [1, 2]}) == ""
    assert in_columns({"a": ["1", "0"], "b": [1, 1]}) == ""
    assert "hold 0 and 1" in in_columns({"a": [True, False], "b": ["1.0", "0.0"]})
