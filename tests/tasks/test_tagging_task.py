"""Files become a task, in every usual notation of spans, with notes on what is odd in them, or an error that says where."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.tasks.tagged_files import Scheme, read_tag, scheme_of, spans_of
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
            "labels: 3 without spans, scored by accuracy. Types of spans: --scheme io; marks alone: --scheme bio or bioes.",
            "train: 5 words in 2 sentences; dev: 2 words in 1 sentence.",
        )
        and len(data.sha256) == 64
    )


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
            "labels: 3 without spans, scored by accuracy. Types of spans: --scheme io; marks alone: --scheme bio or bioes.",
            f"{name}: 362 words in 91 sentences.",
            f"{len(data.dev['dev'])} of 91 sentences were held out to be scored; no text is on both sides.",
        )
        held.append(sides[1])
        random.shuffle(lines)
    assert held[0] == held[1]
    with pytest.raises(
        DataError, match=r"few: has too few sentences to hold some out. Add sentences, or give a --dev file"
    ):
        TaggingTask(train=write(tmp_path / "few", "a A\n\nb B\n")).load()


def test_what_counts_is_in_the_hash(tmp_path: Path) -> None:
    train = "".join(f"w{number} {'A' if number % 2 else 'B'}\n\n" for number in range(10))
    made = [task(tmp_path, train, train), task(tmp_path, train, train, words=2, label=1)]
    made.append(TaggingTask(train=tmp_path / "train", dev=write(tmp_path / "more", train + "w A\n")))
    assert len({one.load().sha256 for one in (*made, *made)}) == 3


WRONG: dict[str, tuple[str, str, str]] = {
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
}


@pytest.mark.parametrize("name", WRONG)
def test_says_what_is_wrong_and_where(name: str, tmp_path: Path) -> None:
    train, dev, message = WRONG[name]
    with pytest.raises(DataError, match=message):
        task(tmp_path, train, dev).load()


def test_what_is_missing(tmp_path: Path) -> None:
    for name in ("dev", "predict"):
        with pytest.raises(MissingInputError, match="none: no such file"):
            TaggingTask(train=write(tmp_path / "train", TRAIN), **{name: tmp_path / "none"}).load()  # type: ignore[arg-type]


BIO = "B-PER I-PER I-PER O B-LOC O B-LOC B-PER".split()
"""Spans of three words, one and one, and two that touch."""
WRITTEN: dict[str, tuple[str, Scheme, str]] = {
    "BIO": ("B-PER I-PER I-PER O B-LOC O B-LOC B-PER", "bio", "BIO"),
    "IOB1": ("I-PER I-PER I-PER O I-LOC O I-LOC I-PER", "bio", "BIO"),
    "BIOES": ("B-PER I-PER E-PER O S-LOC O S-LOC S-PER", "bioes", "BIOES"),
    "BILOU": ("B-PER I-PER L-PER O U-LOC O U-LOC U-PER", "bioes", "BIOES"),
    "BMES": ("B-PER M-PER E-PER O S-LOC O S-LOC S-PER", "bioes", "BIOES"),
    "BMEWO": ("B-PER M-PER E-PER O W-LOC O W-LOC W-PER", "bioes", "BIOES"),
    "IOE": ("I-PER I-PER E-PER O E-LOC O E-LOC E-PER", "bioes", "BIOES"),
    "underscores": ("B_PER I_PER I_PER O B_LOC O B_LOC B_PER", "bio", "BIO"),
    "colons": ("B:PER I:PER I:PER O B:LOC O B:LOC B:PER", "bio", "BIO"),
    "slashes": ("B/PER M/PER E/PER O S/LOC O S/LOC S/PER", "bioes", "BIOES"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_usual_notations(name: str, tmp_path: Path) -> None:
    """Reported in the notes, scored by spans, perfect for the truth, and less where the last span has another type."""
    written, scheme, title = WRITTEN[name]
    labels = written.split()
    # more words outside, as texts have them
    text = "".join(f"w{at} {label}\n" for at, label in enumerate([*labels, *[labels[3]] * 3]))
    data = task(tmp_path, text, text).load()
    found = data.task
    assert isinstance(found, Tagging) and (found.scheme, found.metric) == (scheme, "f1")
    assert data.notes[0].startswith(f"labels: {title} of LOC, PER. Spans are scored by seqeval")
    truth = list(data.dev["dev"][0].labels)
    assert spans_of([str(read_tag(str(label), found.scheme)) for label in truth])[:4] == spans_of(BIO)
    wrong = [*truth[:7], truth[6], *truth[8:]]  # the touching PER as LOC
    never = [truth[3]] * len(truth)
    scores = [found.score(data.dev["dev"], [{"tags": tags}])["f1"] for tags in (truth, wrong, never)]
    assert scores[0] == 1.0 > scores[1] > 0.4 and scores[2] == 0.0


SCHEMES: dict[Scheme, tuple[str, ...]] = {
    "bio": ("O B-PER I-PER", "O I-PER", "B-NP I-NP B-VP", "O B-PER I-PER b-PER"),
    "bioes": ("O B-PER I-PER E-PER S-PER", "O S-PER", "O B-PER I-PER L-PER U-PER"),
    "none": (
        "O B I", "B M E S", "O O O PER LOC", "NOUN VERB ADJ", "O", "O X", "O PER PER", "NN B-x VB JJ O", "NN-S VB-S JJ", "B-x C-x",
        "N O ^ S Z V A R ! D P & T X Y # @ ~ U E $ , G L M", "0 0 0 1 2", "_ _ _ Case=Nom Number=Sing", "nsubj obl:tmod acl:relcl", "",
    ),
}  # fmt: skip


def test_the_scheme_is_found() -> None:
    for scheme, examples in SCHEMES.items():
        assert {scheme_of({*labels.split()}) for labels in examples} == {scheme}


MARKED = "train: '{}' looks like a span's label{}. Expected O, B-TYPE and I-TYPE, or E-TYPE and S-TYPE too. Write them"
OTHERWISE: dict[str, str] = {  # labels: what is said
    **{f"B-PER I-PER {out} {out}": MARKED.format("B-PER", f" and '{out}' does not") for out in ("0", "o", "None", "OUT", "-", "\u2013")},
    "b-PER i-PER o o": MARKED.format("b-PER", " and 'o' does not"),
    "PER-B PER-I O O": MARKED.format("PER-B", ""),
    "PER_b PER_i 0 0": MARKED.format("PER_b", " and '0' does not"),
    "PER(B) PER(I) O O": MARKED.format("PER(B)", ""),
    "B.PER I.PER O O": MARKED.format("B.PER", ""),
    "BPER IPER O O": MARKED.format("BPER", ""),
    "BEGINNING-PER INSIDE-PER O O": MARKED.format("BEGINNING-PER", ""),
    "[B-PER] [I-PER] O O": MARKED.format("[B-PER]", ""),
    "B-PER I-PER X X": MARKED.format("B-PER", " and 'X' does not"),
    "B-PER I-PER _ _": "train: 2 of 4 words have no label, and none is O. Label the words outside of spans O.",
    "B-PER I-PER -100 -100": "train: 2 of 4 words have no label, and none is O.",
    "B_PER I_PER O O": "labels: BIO of PER.",
    "START_DATE END_DATE O O": "labels: 3 without spans",
    "BRAND ITEM O O": "labels: 3 without spans",
    "NN-S VB-I JJ O": "labels: 4 without spans",
    "B I O O": "labels: 3 without spans, scored by accuracy. Types of spans: --scheme io; marks alone: --scheme bio or bioes.",
    "B-PER I-PER B-PER B-LOC": "warning: no label is O, so every word is predicted to be in a span",
}  # fmt: skip


@pytest.mark.parametrize("written", OTHERWISE)
def test_other_notations_are_refused(written: str, tmp_path: Path) -> None:
    """Also with --scheme io; with --scheme plain they are labels like any others."""
    text, said = "".join(f"w{at} {label}\n" for at, label in enumerate(written.split())), OTHERWISE[written]
    if said.startswith("train: "):
        with pytest.raises(DataError, match=re.escape(said.removeprefix("train: "))):
            task(tmp_path, text, text).load()
        assert task(tmp_path, text, text, scheme="plain").load().task.metric == "accuracy"
        if "looks like" in said:
            with pytest.raises(DataError, match="looks like a span's label"):
                task(tmp_path, text, text, scheme="io").load()
    else:
        assert any(said in note for note in task(tmp_path, text, text).load().notes)


NEAR, MIXED = "a O\nb P\nc Q\nd O\ne O\n", "a B-X\nb CC\nc DT\nd JJ\ne VB\n"
PLAIN = "labels: {} without spans, scored by accuracy."
ASKED: list[tuple[str, str | None, str]] = [
    # text, scheme, how a note begins or what an error says
    (NEAR, None, PLAIN.format(3)),
    (NEAR, "io", "labels: IO of P, Q."),
    (MIXED, None, PLAIN.format(5)),
    (MIXED, "bio", "train:2: label 'CC' is none of BIO"),
    (ENTITIES, "plain", PLAIN.format(4)),
    (TRAIN, "bio", "train:1: label 'DET' is none of BIO: .* For labels without spans: --scheme plain"),
    ("a B-PER\nb I-PER\nc O\n", "io", "train: 'B-PER' looks like a span's label"),
    ("a PER\nb LOC\nc 0\n", "io", "warning: no label is O"),
    ("a PER\nb O\n", "bioes", "expected O, B-TYPE, I-TYPE, E-TYPE, S-TYPE"),
    *((f"a {wrong}\nb O\n", "bio", f"train:1: label '{wrong}' is none of BIO: expected O, B-TYPE, I-TYPE") for wrong in ("S-X", "b-PER", "PER-B", "o")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "scheme", "said"), ASKED)
def test_the_scheme_can_be_set(text: str, scheme: str | None, said: str, tmp_path: Path) -> None:
    asked = task(tmp_path, text, text, **({} if scheme is None else {"scheme": scheme}))
    if said.startswith(("labels", "warning")):
        assert any(re.match(said, note) for note in asked.load().notes)
    else:
        with pytest.raises(DataError, match=said):
            asked.load()
