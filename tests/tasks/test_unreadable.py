"""Texts that an encoder cannot read, or of which it reads the beginning only, are reported wherever they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.command import Electra
from tests.finetuning.own_files import WORDS, rows, write_csv, write_encoder

from electra_trainer.data.legibility import Legibility
from electra_trainer.data.tokenizer import Text, load_tokenizer
from electra_trainer.tasks.examples import TaggedSentence, TextExample
from electra_trainer.tasks.squad_files import Question
from electra_trainer.tasks.squad_score import window_rows
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import READ, legibility_of
from electra_trainer.tasks.texts import Classification

RUN = ("--seeds", "1", "--epochs", "1", "--parallel", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("unreadable") / "encoder")


@pytest.fixture
def text(encoder: Path) -> Text:
    return Text.of(load_tokenizer(encoder), length=10)


def test_a_language_that_the_encoder_does_not_know(electra: Electra, encoder: Path, tmp_path: Path) -> None:
    """All rows look alike to it."""
    table = [(f"этот фильм {'плохой' if number % 2 else 'хороший'} no {number}", f"c{number % 2}") for number in range(80)]  # fmt: skip
    write_csv(tmp_path / "train.csv", table)
    out = tmp_path / "exp"
    code, said, err = electra("finetune", encoder, "--train", tmp_path / "train.csv", "--out", out, *RUN)
    warning = "% of the letters are unreadable ([UNK]), for example 'этот' ("
    assert code == 0 and "classification: warning: " in err and warning in err and warning not in said
    assert f"the vocabulary of {encoder} is not made for them. Use an encoder of this language" in err
    assert warning in (out / "summary.md").read_text(encoding="utf-8")
    (tmp_path / "new.csv").write_text("text\nхороший фильм\n", encoding="utf-8")
    code, _, err = electra("predict", out / "model", tmp_path / "new.csv")
    assert code == 0 and "100.0 % of the letters are unreadable" in err


def test_texts_that_are_cut(electra: Electra, encoder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The remedy that is named removes the warning; where it cannot, another one is named."""
    write_csv(tmp_path / "train.csv", rows(80))
    words = ("finetune", encoder, "--train", tmp_path / "train.csv", *RUN)
    code, _, err = electra(*words, "--max-length", 8, "--out", tmp_path / "short")
    assert "100.0 % of the texts are longer than 6 tokens and are cut: " in err
    assert "of all tokens are not read. Read more with --max-length 32, or all with --windows." in err and code == 0
    code, _, err = electra("predict", tmp_path / "short/model", tmp_path / "train.csv", "--out", tmp_path / "p.csv")
    assert code == 0 and "longer than 6 tokens and are cut" in err
    assert "Fine-tune with a longer --max-length or, for single texts, --windows; or put first" in err
    code, _, err = electra(*words, "--max-length", 32, "--out", tmp_path / "long")
    assert code == 0 and "cut" not in err and "warning" not in err
    write_csv(tmp_path / "train.csv", [(text + " box" * 30, label) for text, label in rows(80)])
    code, _, err = electra(*words, "--out", tmp_path / "longest")
    assert code == 0 and "The encoder was trained on rows of 32 tokens: read all with --windows" in err


def test_every_kind_of_task_is_counted(text: Text) -> None:
    """Pairs are cut as a whole, a question at its own limit, a sentence of words only within a word."""
    pair = Classification(labels=("a", "b"))
    found = legibility_of(
        pair, [TextExample(text="apple", pair="pear " * 7), TextExample(text="я pear", pair="saw")], text
    )
    assert (found.rows, found.cut, found.unread, found.unreadable, found.letters) == (2, 1, 1, 1, 5 + 28 + 8)
    tags = Tagging(labels=("O", "B-X"), scheme="bio")
    sentence = TaggedSentence(words=("q" * 12, "pear", "яя"), labels=(None, "O", "O"))
    found = legibility_of(tags, [sentence], text)
    assert (found.cut, found.rows, found.unread, found.unreadable, found.letters) == (1, 3, 4, 2, 18)
    assert found.cut_line().startswith("33.3 % of the words are longer than 8 tokens")
    tally = Legibility()
    asked = [
        Question(id="1", question="pear " * 9, context="apple ц " * 9),
        Question(id="2", question="saw", context="pear"),
    ]
    window_rows(asked, replace(text, length=20, tally=tally), max_query=4, stride=4, training=False)
    assert (tally.rows, tally.cut, tally.unread, tally.kind, tally.unreadable) == (2, 1, 5, "questions", 9)
    assert not tally.findings(reader="x", longer="longer")[1].endswith("longer")


def test_many_examples_are_sampled(text: Text) -> None:
    found = legibility_of(Classification(labels=("a", "b")), [TextExample(text="pear")] * (3 * READ + 1), text)
    assert 0.7 * READ < found.rows <= READ
    assert legibility_of(Classification(labels=("a", "b")), [], text).findings(reader="x", longer="") == []


def test_a_language_in_pieces(text: Text) -> None:
    """Letters that are all known make no words that are."""
    task, reads = Classification(labels=("a", "b")), replace(text, length=64)
    for animal, says in (
        ("pear", []),
        ("zebra", ["warning: 25.0 % of the words are read in three pieces or more, so "]),
    ):
        found = legibility_of(task, [TextExample(text=f"the {animal} {animal} was left in 2026, new box")] * 9, reads)
        assert [one[:66] for one in found.findings(reader="x", longer="")] == says


@pytest.mark.parametrize(
    ("form", "alike"),
    [("the {word} was {}", True), ("the pear no {number} was {}", False)],
    ids=["the same ids", "other words too"],
)
def test_classes_that_symbols_alone_tell_apart(
    electra: Electra, encoder: Path, tmp_path: Path, form: str, alike: bool
) -> None:
    table = [
        (form.format("🎉↑"[number % 2], number=number, word=WORDS[number // 2 % 20]), ("good", "bad")[number % 2])
        for number in range(80)
    ]
    write_csv(tmp_path / "train.csv", table)
    out = tmp_path / "exp"
    code, said, err = electra("finetune", encoder, "--train", tmp_path / "train.csv", "--out", out, *RUN)
    lost = "warning: 0.0 % of the letters and 100.0 % of the symbols and punctuation marks are unreadable ([UNK])"
    assert code == 0 and lost in err and "'🎉' (" in err
    assert "'↑' (" in err and "Write those that matter as words." in err
    pair = "training rows have the token ids of another with a different text and different label: "
    assert (pair in err) == (pair in (out / "summary.md").read_text(encoding="utf-8")) == alike and pair not in said
    (tmp_path / "new.csv").write_text("text\nthe pear was 🎉\n", encoding="utf-8")
    code, _, err = electra("predict", out / "model", tmp_path / "new.csv")
    assert code == 0 and lost in err


def test_what_is_next_to_nothing_is_not_said(text: Text) -> None:
    for last, is_said in (("я", False), ("я ☃", True)):
        tally = Legibility()
        replace(text, tally=tally).ids(["pear " * 300, last, "pear."])
        assert bool(tally.findings(reader="x", longer="")) == is_said
    tally = Legibility()
    replace(text, tally=tally).ids(['pear! (apple), "saw"', "so nice \u2764\ufe0f", "1\ufe0f\u20e3"])
    assert (tally.unreadable, tally.unreadable_symbols, tally.symbols) == (1, 3, 7), "marks of emoji are not letters"


def test_texts_with_the_same_ids(text: Text) -> None:
    """Words that differ in accents alone are the same here; with one label, or rarely, there is no warning."""
    task = Classification(labels=("a", "b"))
    pairs = [
        TextExample(text=f"{one} {number}", label=label)
        for number in range(190)
        for one, label in (("üs", "a"), ("us", "b"))
    ]
    assert legibility_of(task, pairs, text).notes[0].startswith("warning: 190 of 380 training rows have the token ids")
    assert not legibility_of(task, [replace(one, label="a") for one in pairs], text).notes
    assert not legibility_of(task, [one for one in pairs if one.label == "a" or one.text == "us 3"], text).notes
    assert not legibility_of(task, [replace(one, text=one.text.replace("ü", "u")) for one in pairs], text).notes, (
        "said elsewhere"
    )
