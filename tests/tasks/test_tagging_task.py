"""Files become a task, with notes on what is odd in them, or an error that says where."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.tasks.tagging import Tagging, TaggingTask

TRAIN = "the DET\ndog NOUN\nruns VERB\n\na DET\ncat NOUN\n"
ENTITIES = "Ann B-PER\nLee I-PER\nsaw O\nBonn B-LOC\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def task(folder: Path, train: str = TRAIN, dev: str = TRAIN, **fields: object) -> TaggingTask:
    """Files that are the same differ in blank lines at the end."""
    dev = dev + "\n\n" if dev == train else dev
    return TaggingTask(train=write(folder / "train", train), dev=write(folder / "dev", dev), **fields)  # type: ignore[arg-type]


def test_tags(tmp_path: Path) -> None:
    made = task(tmp_path, dev="a DET\ndog NOUN\n", predict=write(tmp_path / "new", "the\nbird\n"))
    assert pickle.loads(pickle.dumps(made)) == made
    data = made.load()
    assert data.task == Tagging(labels=("DET", "NOUN", "VERB")) and data.task.metric == "accuracy"
    assert (len(data.train), len(data.dev["dev"])) == (2, 1)
    assert data.test["predict"][0].words == ("the", "bird") and data.test["predict"][0].labels == (None, None)
    assert (
        data.notes
        == (
            "labels: 3 without spans, scored by accuracy. Types of spans: --scheme io.",
            "train: 5 words in 2 sentences; dev: 2 words in 1 sentence.",
        )
        and len(data.sha256) == 64
    )


def test_the_scheme_can_be_set(tmp_path: Path) -> None:
    found = task(tmp_path, ENTITIES, ENTITIES, scheme="none").load().task
    assert isinstance(found, Tagging) and found.metrics == ("accuracy",)
    with pytest.raises(
        DataError, match=r"train:1: label 'DET' is none of BIO: .* For labels without spans: --scheme plain"
    ):
        task(tmp_path, scheme="bio").load()


def test_what_a_reader_of_the_scores_must_know(tmp_path: Path) -> None:
    train = ENTITIES * 40 + "\nWe _\nlike O\n"
    dev = "\nWe O\nlike O\n\nJo B-PRE\n\n" + "x O\n\n" * 20
    assert task(tmp_path, train, dev).load().notes == (
        "labels: BIO of LOC, PER. Spans are scored by seqeval's definition (conlleval's): same words, same type.",
        "train: 162 words in 2 sentences, 1 without a label; dev: 23 words in 22 sentences.",
        "1 of 23 labels do not occur in training (first at dev:5): never right.",
        "1 of 22 sentences in dev are in training too.",
    )


def test_without_a_development_file_sentences_are_held_out(tmp_path: Path) -> None:
    """A tenth of them, copies on one side, whatever their order in the file; every label stays to be learned."""
    random = np.random.default_rng(4)
    lines = [[f"w{random.integers(30)} {'AB'[random.integers(2)]}" for _ in range(4)] for _ in range(60)]
    lines += [[word.upper().replace(" A", " B") for word in sentence] for sentence in lines[:30]]
    lines.append(["only C", "w1 A"])
    held = []
    for name in ("one", "other"):
        path = write(tmp_path / name, "\n\n".join("\n".join(sentence) for sentence in lines) + "\n")
        data = TaggingTask(train=path).load()
        sides = [{tuple(word.lower() for word in one.words) for one in rows} for rows in (data.train, data.dev["dev"])]
        assert not sides[0] & sides[1] and len(sides[1]) == 6 and len(data.train) + len(data.dev["dev"]) == len(lines)
        assert isinstance(data.task, Tagging) and data.task.labels == ("A", "B", "C")
        assert {label for one in data.train for label in one.labels} == {"A", "B", "C"}
        assert data.notes == (
            "labels: 3 without spans, scored by accuracy. Types of spans: --scheme io.",
            f"{name}: 362 words in 91 sentences.",
            f"no development file: {len(data.dev['dev'])} of 91 sentences were held out, chosen by a hash of their words; no sentence "
            "is on both sides.",
        )
        held.append(sides[1])
        random.shuffle(lines)
    assert held[0] == held[1]
    with pytest.raises(
        DataError, match=r"few: has too few sentences to hold some out. Add sentences, or give a --dev file"
    ):
        TaggingTask(train=write(tmp_path / "few", "a A\n\nb B\n")).load()


def test_limit_and_hash(tmp_path: Path) -> None:
    train = "".join(f"w{number} {'A' if number % 2 else 'B'}\n\n" for number in range(10))
    made = task(tmp_path, train, train, limit=4)
    data = made.load()
    assert [example.words for example in data.train] == [("w0",), ("w2",), ("w5",), ("w7",)]
    assert "4 of 10 training sentences were used." in data.notes
    others = [task(tmp_path, train, train), task(tmp_path, train, train, limit=4, words=2, column=1)]
    write(tmp_path / "more", train + "w A\n")
    others.append(TaggingTask(train=tmp_path / "train", dev=tmp_path / "more", limit=4))
    hashes = {data.sha256, *(other.load().sha256 for other in others)}
    assert len(hashes) == 4 and made.load().sha256 == data.sha256


def test_the_folder_of_a_treebank(tmp_path: Path) -> None:
    for split, tag in (("train", "X"), ("dev", "NOUN"), ("test", "X")):
        words = [f"{number}\t{split}\t_\t{tag if number == 2 else 'NOUN'}\t_\t_\t0\troot\t_\t_\n" for number in (1, 2)]
        write(tmp_path / f"xx-ud-{split}.conllu", "".join(words) + "\n")
    data = TaggingTask(train=tmp_path).load()
    assert isinstance(data.task, Tagging) and data.task.labels == ("NOUN", "X") and not data.test
    assert (data.train[0].words[0], data.dev["dev"][0].words[0]) == ("train", "dev")
    assert TaggingTask(train=tmp_path, predict=tmp_path).load().test["predict"][0].words == ("test", "test")
    assert TaggingTask(train=tmp_path, dev=tmp_path / "xx-ud-test.conllu").load().dev["dev"][0].words[0] == "test"
    (tmp_path / "xx-ud-dev.conllu").unlink()
    with pytest.raises(MissingInputError, match="holds no dev file"):
        TaggingTask(train=tmp_path).load()


WRONG: dict[str, tuple[str, str, str]] = {
    "no prefix": (ENTITIES, ENTITIES + "x LOC\n", r"dev:5: label 'LOC' is none of BIO: expected O, B-TYPE, I-TYPE"),
    "BIOES in dev": (ENTITIES, ENTITIES + "\nx S-LOC\n", r"dev:6: label 'S-LOC' is none of BIO"),
    "no type": (ENTITIES + "x B-\n", ENTITIES, r"train:5: label 'B-' is none of BIO"),
    "another tag set": (
        TRAIN,
        "the DT\ndog NN\n",
        r"dev:1: 2 of 2 labels do not occur in training\. Expected those of the training file",
    ),
    "one label": ("a X\nb X\n", TRAIN, r"train: every word has the label 'X', so there is nothing to learn"),
    "no labels": ("a _\nb _\n", TRAIN, r"train: no word has a label"),
    "no labels in dev": (TRAIN, "a _\n", r"dev: 0 of 0 labels do not occur in training"),
    "ragged": (TRAIN, TRAIN + "x\n", r"dev:7: expected 2 columns"),
    "empty": (TRAIN, "", r"dev: holds no sentences"),
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong_and_where(name: str, tmp_path: Path) -> None:
    train, dev, message = WRONG[name]
    with pytest.raises(DataError, match=message):
        task(tmp_path, train, dev).load()


def test_files_and_fields_that_cannot_be(tmp_path: Path) -> None:
    write(tmp_path / "train", TRAIN)
    cases: list[tuple[type[ElectraError], str, dict[str, object]]] = [
        (MissingInputError, "none: no such file", {"dev": tmp_path / "none"}),
        (MissingInputError, "none: no such file", {"predict": tmp_path / "none"}),
        (ConfigError, "expected a number counted from 1. Names are for .conllu", {"column": "upos"}),
        (DataError, "has 2 columns; expected on each line the word in column 1 and its label in 3", {"column": 3}),
        (DataError, "has 2 columns; expected on each line the word in column 3 and its label in 2", {"words": 3}),
    ]
    for kind, message, fields in cases:
        with pytest.raises(kind, match=message):
            TaggingTask(train=tmp_path / "train", **fields).load()  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="limit = 0"):
        TaggingTask(train="train", limit=0)
