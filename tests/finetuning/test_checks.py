"""What may be wrong with data that can be read is told, and told only then."""

import time
from collections.abc import Sequence

import numpy as np
import pytest
from tests.finetuning.own_files import rows

from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.texts.splits import WARNING, warnings


def examples(table: Sequence[tuple[str, str]], *, file: str = "train.csv") -> list[TextExample]:
    return [
        TextExample(text=text, label=label, place=f"{file}:{number}") for number, (text, label) in enumerate(table, 2)
    ]


def told(train: Sequence[tuple[str, str]], dev: Sequence[tuple[str, str]] = (), *, held_out: bool = False) -> list[str]:
    found = warnings(examples(train), examples(dev, file="dev.csv"), held_out=held_out)
    assert all(sentence.startswith(WARNING) for sentence in found)
    return [sentence.removeprefix(WARNING) for sentence in found]


GOOD = rows(200)


def test_good_data_has_no_warning() -> None:
    assert told(GOOD, rows(300)[200:]) == []


def test_overlap() -> None:
    dev = [GOOD[0], ("something else", "tool"), (GOOD[4][0].upper() + " ", "fruit"), GOOD[7]]
    (sentence,) = told(GOOD, dev)
    assert sentence.startswith(
        "3 of 4 development rows (75 %) are in the training file too, so the scores are too good: "
    )
    assert "dev.csv:2 is train.csv:2; dev.csv:4 is train.csv:6; dev.csv:5 is train.csv:9." in sentence
    assert "Of these, 1 with another label there" in sentence
    assert told(GOOD, dev, held_out=True) == []


def test_contradictions() -> None:
    (sentence,) = told([*GOOD, (GOOD[1][0], "tool")])
    assert sentence.startswith(
        "1 training row with the text of another and a different label, for example train.csv:202 ('tool') and train.csv:3 ('fruit')"
    )


def test_repeated_rows() -> None:
    (sentence,) = told([*GOOD, *GOOD[:50]])
    assert sentence == "50 of 250 training rows (20 %) repeat the text of another."


def test_the_same_pair_is_the_same_text_only_if_both_are() -> None:
    one = TextExample(text="a", pair="b", label="x", place="t:2")
    two = TextExample(text="a", pair="c", label="y", place="t:3")
    assert not any("text of another" in sentence for sentence in warnings([one, two], [], held_out=True))
    assert any(
        "text of another" in sentence
        for sentence in warnings([one, TextExample(text="A", pair="b ", label="y")], [], held_out=True)
    )


def test_label_in_the_text() -> None:
    train = [(f"{text} [{label.upper()}]", label) for text, label in GOOD]
    found = told(train)
    assert (
        found[0]
        == "the text of 100 % of the rows labelled 'tool' says 'tool' itself, and of 0 % of the others: the label has leaked into the text."
    )
    assert len(found) == 2


def test_a_label_that_texts_mention_is_no_leak() -> None:
    train = [(f"{text} tool" if number % 3 else text, label) for number, (text, label) in enumerate(GOOD)]
    assert told(train) == []


RULES = {
    "the first word of the text alone": lambda text, label: f"{'see' if label == 'tool' else 'look'} {text}",
    "the last word of the text alone": lambda text, label: f"{text} {'x' if label == 'tool' else 'y'}",
    "the word 'zz' alone": lambda text, label: text.replace(" ", " zz ", 2) if label == "tool" else text,
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_know_no_language(rule: str) -> None:
    (sentence,) = told([(RULES[rule](text, label), label) for text, label in GOOD])
    assert sentence.startswith(rule + " predicts the label in 100 % of the rows. Is that intended?")


def test_length_tells_the_label() -> None:
    train = [(("short and " + "abcdefghij"[n % 10]) * (1 + n % 2) + f" {n:03}", str(n % 2)) for n in range(100)]
    assert told(train) == ["the length of the text alone predicts the label in 100 % of the rows. Is that intended?"]


def test_the_same_text_twice_tells_the_label() -> None:
    train = [TextExample(text=text, pair=text if label == "tool" else "another", label=label) for text, label in GOOD]
    found = warnings(train, [], held_out=True)
    assert any("whether the two texts are the same alone predicts the label" in sentence for sentence in found)


TEXTS = {
    "the same": (["hello there" for n in range(30)], "the text is the same in all rows ('hello there'). Is it the right column?"),
    "numbers": ([f"{n} - {n}" for n in range(30)], "the text holds no letters, for example '0 - 0': numbers or ids?"),
    "ids": ([f"user{n}" for n in range(30)], "the text is one word with digits, another one in each row ('user0'): are these ids?"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_columns_that_are_no_text(case: str) -> None:
    texts, words = TEXTS[case]
    found = told([(text, "ab"[number % 3 == 0]) for number, text in enumerate(texts)])
    assert any(sentence.startswith(words) for sentence in found), found


def test_imbalance() -> None:
    train = [(text, "tool" if number % 20 else "fruit") for number, (text, _) in enumerate(GOOD)]
    assert told(train) == [
        "95 % of the rows are 'tool', so always saying that is as accurate. Read macro_f1 and matthews."
    ]


def test_rare_and_single_classes() -> None:
    many = rows(400)
    assert told([*many, ("one nut", "nut"), ("two nuts", "nut")]) == [
        "'nut' has 2 of 402 training rows. Read macro_f1, which weights all classes equally."
    ]
    assert told([*many, ("one nut", "nut")]) == ["1 class with a single training row ('nut'): too few to learn from."]


def test_labels_that_are_the_same_number() -> None:
    """0 and 0.0 are two classes; that two numbers are two is no news."""
    texts = [text for text, _ in GOOD]
    assert told([(text, str(number % 4)) for number, text in enumerate(texts)]) == []
    (sentence,) = told([(text, ("0", "1", "0.0", "1.0")[number % 4]) for number, text in enumerate(texts)])
    assert sentence == (
        "the labels '0', '0.0', '1', '1.0' are numbers written in several ways, each a separate class. Write a number in one way."
    )
    (sentence,) = told([(text, ("2", "no", "+2")[number % 3]) for number, text in enumerate(texts)])
    assert sentence.startswith("the labels '+2', '2' are numbers written in several ways")


def test_labels_that_differ_in_capitals() -> None:
    assert told([*GOOD, ("a nut", "Fruit"), ("some nuts", "Fruit"), ("nuts again", "Fruit")]) == [
        "the labels 'Fruit', 'fruit' differ in capitals only. Are they the same class?"
    ]


def test_regression_has_its_own() -> None:
    train = [TextExample(text=text, value=float(n), place=f"t:{n}") for n, (text, _) in enumerate(GOOD)]
    assert warnings(train, [], held_out=True) == []
    again = TextExample(text=train[0].text, value=5.5, place="t:999")
    (sentence,) = warnings([*train, again], [], held_out=True)
    assert "t:999 (5.5) and t:0 (0.0)" in sentence


def test_a_large_file_takes_seconds() -> None:
    random = np.random.default_rng(0)
    words = np.array([f"w{n}" for n in range(2000)])
    train = examples([(" ".join(row), str(row[0])) for row in random.choice(words, (30_000, 8))])
    began = time.process_time()
    found = warnings(train, [], held_out=True)
    assert time.process_time() - began < 5
    assert sum("leaked" in sentence for sentence in found) == 3
