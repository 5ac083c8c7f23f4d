"""Several labels for one text get a warning; labels that merely hold a separator are left alone."""

from pathlib import Path

import pytest
from tests.finetuning.own_files import rows, write_csv

from electra_trainer.errors import DataError
from electra_trainer.finetuning.texts.own_task import OwnTask

TOPICS = ("business", "sports", "politics", "science")


def combined(separator: str) -> list[str]:
    """Eight classes of four topics and two places."""
    return [f"{topic}{separator}{place}" for topic in TOPICS for place in ("usa", "uk")]


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
    with pytest.raises(DataError, match=r"expected one label: a short text"):
        OwnTask(train=path).load()


@pytest.mark.parametrize(
    "labels", [["a;b", "c"], ["very good", "good"], ["Paris, France", "Lyon, France"], ["a|b", "b"]]
)
def test_labels_that_hold_a_separator(labels: list[str], tmp_path: Path) -> None:
    table = [(f"{text} {number}", labels[number % 2]) for number, (text, _) in enumerate(rows(80))]
    notes = OwnTask(train=write_csv(tmp_path / "a.csv", table)).load().notes
    assert any("several in one" in note for note in notes) == (labels[-1] == "b")
