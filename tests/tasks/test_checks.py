"""Texts that are in the training file and in the development file get a warning, and good data none."""

from collections.abc import Sequence

from tests.finetuning.own_files import rows

from electra_trainer.tasks.examples import WARNING, TextExample, contradictions, overlap

GOOD = rows(200)


def examples(table: Sequence[tuple[str, str]], *, file: str = "train.csv") -> list[TextExample]:
    return [
        TextExample(text=text, label=label, place=f"{file}:{number}") for number, (text, label) in enumerate(table, 2)
    ]


def test_good_data_has_no_warning() -> None:
    assert overlap(examples(GOOD), examples(rows(300)[200:], file="dev.csv")) == []


def test_overlap() -> None:
    dev = [GOOD[0], ("something else", "tool"), (GOOD[4][0].upper() + " ", "fruit"), GOOD[7]]
    assert overlap(examples(GOOD), examples(dev, file="data/dev.csv")) == [
        f"{WARNING}3 of 4 development rows (75 %) are in the training file too, so the scores are too good: dev.csv:2 is "
        "train.csv:2; dev.csv:4 is train.csv:6; dev.csv:5 is train.csv:9."
    ]


def test_the_same_pair_is_the_same_text_only_if_both_are() -> None:
    one, two, three = (TextExample(text="a", pair=pair, place="t:2") for pair in ("b", "c", "B "))
    assert overlap([one], [two]) == [] and len(overlap([one], [three])) == 1


def test_a_text_with_two_labels_is_reported() -> None:
    rows = [("a", "x"), ("b", "y"), ("A", "y"), ("b", "y")]
    train = [TextExample(text=text, label=label, place=f"d/train.csv:{n}") for n, (text, label) in enumerate(rows, 2)]
    assert contradictions(train[:2]) == []
    assert contradictions(train) == [
        f"{WARNING}1 of 4 training rows repeat the text of another with a different label: train.csv:4 ('y') and "
        "train.csv:2 ('x')."
    ]
