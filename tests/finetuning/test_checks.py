"""Doubtful data that can be read get warnings, and good data none."""

from collections.abc import Sequence

from tests.finetuning.own_files import rows

from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.texts.splits import WARNING, warnings


def examples(table: Sequence[tuple[str, str]], *, file: str = "train.csv") -> list[TextExample]:
    return [
        TextExample(text=text, label=label, place=f"{file}:{number}") for number, (text, label) in enumerate(table, 2)
    ]


def warned(
    train: Sequence[tuple[str, str]], dev: Sequence[tuple[str, str]] = (), *, held_out: bool = False
) -> list[str]:
    found = warnings(examples(train), examples(dev, file="dev.csv"), held_out=held_out)
    assert all(sentence.startswith(WARNING) for sentence in found)
    return [sentence.removeprefix(WARNING) for sentence in found]


GOOD = rows(200)


def test_good_data_has_no_warning() -> None:
    assert warned(GOOD, rows(300)[200:]) == []


def test_overlap() -> None:
    dev = [GOOD[0], ("something else", "tool"), (GOOD[4][0].upper() + " ", "fruit"), GOOD[7]]
    (sentence,) = warned(GOOD, dev)
    assert sentence.startswith(
        "3 of 4 development rows (75 %) are in the training file too, so the scores are too good: "
    )
    assert "dev.csv:2 is train.csv:2; dev.csv:4 is train.csv:6; dev.csv:5 is train.csv:9." in sentence
    assert "Of these, 1 with another label there" in sentence
    assert warned(GOOD, dev, held_out=True) == []


def test_contradictions() -> None:
    (sentence,) = warned([*GOOD, (GOOD[1][0], "tool")])
    assert sentence.startswith(
        "1 training row with the text of another and a different label, for example train.csv:202 ('tool') and train.csv:3 ('fruit')"
    )


def test_repeated_rows() -> None:
    (sentence,) = warned([*GOOD, *GOOD[:50]])
    assert sentence == "50 of 250 training rows (20 %) repeat the text of another."


def test_the_same_pair_is_the_same_text_only_if_both_are() -> None:
    one = TextExample(text="a", pair="b", label="x", place="t:2")
    two = TextExample(text="a", pair="c", label="y", place="t:3")
    assert not any("text of another" in sentence for sentence in warnings([one, two], [], held_out=True))
    assert any(
        "text of another" in sentence
        for sentence in warnings([one, TextExample(text="A", pair="b ", label="y")], [], held_out=True)
    )


def test_imbalance() -> None:
    train = [(text, "tool" if number % 20 else "fruit") for number, (text, _) in enumerate(GOOD)]
    assert warned(train) == [
        "95 % of the rows are 'tool', so always saying that is as accurate. Read macro_f1 and matthews."
    ]


def test_rare_and_single_classes() -> None:
    many = rows(400)
    assert warned([*many, ("one nut", "nut"), ("two nuts", "nut")]) == [
        "'nut' has 2 of 402 training rows. Read macro_f1, which weights all classes equally."
    ]
    assert warned([*many, ("one nut", "nut")]) == ["1 class with a single training row ('nut'): too few to learn from."]


def test_regression_has_its_own() -> None:
    train = [TextExample(text=text, value=float(n), place=f"t:{n}") for n, (text, _) in enumerate(GOOD)]
    assert warnings(train, [], held_out=True) == []
    again = TextExample(text=train[0].text, value=5.5, place="t:999")
    (sentence,) = warnings([*train, again], [], held_out=True)
    assert "t:999 (5.5) and t:0 (0.0)" in sentence
