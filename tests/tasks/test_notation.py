"""Every usual notation of spans is read, and scored as the same spans in BIO."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_trainer.errors import DataError
from electra_trainer.tasks.examples import TaggedSentence
from electra_trainer.tasks.tagged_files import Scheme, read_tag, scheme_of, spans_of
from electra_trainer.tasks.tagging import Tagging, TaggingTask

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
    """Reported in the notes, scored by spans, perfect for the truth, and 2/3 where the last span has another type."""
    written, scheme, title = WRITTEN[name]
    labels = written.split()
    # more words outside, as texts have them
    lines = [f"w{at} {label}\n" for at, label in enumerate(labels)] + [f"v {labels[3]}\n"] * 3
    for split in ("train", "dev"):
        (tmp_path / split).write_text("".join(lines) + "\n" * (split == "dev"))
    data = TaggingTask(train=tmp_path / "train", dev=tmp_path / "dev").load()
    task = data.task
    assert isinstance(task, Tagging) and (task.scheme, task.metric) == (scheme, "f1")
    assert data.notes[0].startswith(f"labels: {title} of LOC, PER. Spans are scored by seqeval")
    truth = list(data.dev["dev"][0].labels)
    assert task.score(data.dev["dev"], [{"tags": truth}])["f1"] == 1.0
    assert spans_of([str(read_tag(str(label), task.scheme)) for label in truth])[:4] == spans_of(BIO)
    wrong = [*truth[:7], truth[6], *truth[8:]]  # the touching PER as LOC
    assert 0.4 < task.score(data.dev["dev"], [{"tags": wrong}])["f1"] < 1.0
    assert task.score(data.dev["dev"], [{"tags": [truth[3]] * len(truth)}])["f1"] == 0.0, "always O finds nothing"


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("O B-PER I-PER", "bio"),
        ("O I-PER", "bio"),
        ("B-NP I-NP B-VP", "bio"),
        ("O B I", "none"),
        ("O B-PER I-PER E-PER S-PER", "bioes"),
        ("O S-PER", "bioes"),
        ("O B-PER I-PER b-PER", "bio"),
        ("O B-PER I-PER L-PER U-PER", "bioes"),
        ("B M E S", "none"),
        ("O O O PER LOC", "none"),
        ("NOUN VERB ADJ", "none"),
        ("O", "none"),
        ("O X", "none"),
        ("O PER PER", "none"),
        ("N O ^ S Z V A R ! D P & T X Y # @ ~ U E $ , G L M", "none"),
        ("NN B-x VB JJ O", "none"),
        ("NN-S VB-S JJ", "none"),
        ("B-x C-x", "none"),
        ("0 0 0 1 2", "none"),
        ("_ _ _ Case=Nom Number=Sing", "none"),
        ("nsubj obl:tmod acl:relcl", "none"),
        ("", "none"),
    ],
)
def test_the_scheme_is_found(labels: str, scheme: str) -> None:
    assert scheme_of({*labels.split()}) == scheme


def test_a_wrong_label_is_explained(tmp_path: Path) -> None:
    assert read_tag("B-X", "bio") == "B-X" and read_tag("O", "bio") == "O" and read_tag("U_X", "bioes") == "S-X"
    for wrong in ("S-X", "b-PER", "PER-B", "o"):
        with pytest.raises(DataError, match=f"train:1: label '{wrong}' is none of BIO: expected O, B-TYPE, I-TYPE"):
            notes_of(tmp_path, f"a {wrong}\nb O\n", scheme="bio")
    with pytest.raises(DataError, match="expected O, B-TYPE, I-TYPE, E-TYPE, S-TYPE"):
        notes_of(tmp_path, "a PER\nb O\n", scheme="bioes")


OTHERWISE: dict[str, tuple[str, str, str]] = {
    "outside 0": ("B-PER I-PER 0 0", "bio", "'0' as 'O'"),
    "outside o": ("B-PER I-PER o o", "bio", "'o' as 'O'"),
    "outside None": ("S-PER B-PER E-PER None None", "bioes", "'None' as 'O'"),
    "outside OUT": ("B-PER I-PER OUT OUT", "bio", "'OUT' as 'O'"),
    "outside -": ("B-PER I-PER - -", "bio", "'-' as 'O'"),
    "outside en dash": ("B-PER I-PER \u2013 \u2013", "bio", "'\u2013' as 'O'"),
    "outside _": ("B-PER I-PER _ _", "bio", "warning: labels are read and predicted in the usual notation: words without a label as 'O'"),
    "outside -100": ("B-PER I-PER -100 -100", "bio", "words without a label as 'O'"),
    "small letters": ("b-PER i-PER o o", "bio", "'b-PER' as 'B-PER'"),
    "behind": ("PER-B PER-I O O", "bio", "'PER-B' as 'B-PER'"),
    "behind, small": ("PER_b PER_i 0 0", "bio", "'PER_b' as 'B-PER'"),
    "behind, BIOES": ("PER-B PER-I PER-E O PER-S", "bioes", "'PER-B' as 'B-PER'"),
    "in brackets": ("PER(B) PER(I) O O", "bio", "'PER(B)' as 'B-PER'"),
    "dot": ("B.PER I.PER O O", "bio", "'B.PER' as 'B-PER'"),
    "at": ("B@PER I@PER O O", "bio", "'B@PER' as 'B-PER'"),
    "together": ("BPER IPER O O", "bio", "'BPER' as 'B-PER'"),
    "words": ("BEGIN-PER INSIDE-PER O O", "bio", "'BEGIN-PER' as 'B-PER'"),
    "long words": ("BEGINNING-PER INSIDE-PER O O", "bio", "'BEGINNING-PER' as 'B-PER'"),
    "all in brackets": ("[B-PER] [I-PER] O O", "none", "'[B-PER]' looks like a span's label; --scheme bio names"),
    "marks alone": ("B I O O", "none", "Marks of spans: --scheme bio."),
    "marks alone, BMES": ("B M E S", "none", "Marks of spans: --scheme bioes."),
    "as usual": ("B_PER I_PER O O", "bio", ""),
    "types of IO": ("START_DATE END_DATE O O", "none", "Types of spans: --scheme io"),
    "types that begin with B and I": ("BRAND ITEM O O", "none", "Types of spans: --scheme io"),
    "parts of speech": ("NN-S VB-I JJ O", "none", "'VB-I' looks like a span's label, 'JJ' does not; --scheme bio names"),
    "one is other": ("B-PER I-PER X X", "none", "'B-PER' looks like a span's label, 'X' does not; --scheme bio names"),
    "no outside": ("B-PER I-PER B-PER B-LOC", "bio", "warning: no label is O, so every word is predicted to be in a span"),
    "case": ("B-PER I-per O O", "bio", "warning: types differ in case alone: 'PER', 'per'."),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_notations_are_read_or_named(name: str, tmp_path: Path) -> None:
    """Outside and marks as annotators write them: the labels of the task are the usual ones, and a note says so.
    --scheme io is not recommended where labels carry marks.
    """
    written, scheme, note = OTHERWISE[name]
    text = "".join(f"w{at} {label}\n" for at, label in enumerate(written.split()))
    notes = notes_of(tmp_path, text)
    task = TaggingTask(train=tmp_path / "train", dev=tmp_path / "dev").load().task
    assert isinstance(task, Tagging) and task.scheme == scheme
    assert any(note in one for one in notes)
    assert any("--scheme io" in one for one in notes) == ("--scheme io" in note)
    if "as '" in note:
        assert {*task.labels} <= {"O", "B-PER", "I-PER", "E-PER", "S-PER"}
        (tmp_path / "new").write_text(text + "w0 " + written.split()[0] + "\n")
        data = TaggingTask(train=tmp_path / "train", dev=tmp_path / "dev").load()
        again = task.examples_in(tmp_path / "new", like=data.columns, text=None, as_json=False)
        assert [len(one.words) for one in again.examples] == [len(written.split()) + 1]
        assert {*again.answers[0].labels} == {*task.labels}


def test_io_of_marked_labels_is_questioned(tmp_path: Path) -> None:
    for marked in ("a PER-B\nb PER-I\nc O\n", "a B-PER\nb I-PER\nc O\n"):
        assert any("--scheme io takes" in one for one in notes_of(tmp_path, marked, scheme="io"))
    assert any("'0' as 'O'" in one for one in notes_of(tmp_path, "a PER\nb LOC\nc 0\n", scheme="io"))


def notes_of(folder: Path, text: str, **fields: str) -> tuple[str, ...]:
    (folder / "train").write_text(text)
    (folder / "dev").write_text(text + "\n")
    return TaggingTask(train=folder / "train", dev=folder / "dev", **fields).load().notes  # type: ignore[arg-type]


def test_types_without_marks_can_be_asked_for(tmp_path: Path) -> None:
    near = "a O\nb P\nc Q\nd O\ne O\n"
    assert notes_of(tmp_path, near)[0] == ("labels: 3 without spans, scored by accuracy. Types of spans: --scheme io.")
    assert notes_of(tmp_path, near, scheme="io")[0].startswith("labels: IO of P, Q.")
    mixed = "a B-X\nb CC\nc DT\nd JJ\ne VB\n"
    assert notes_of(tmp_path, mixed)[0].startswith("labels: 5 without spans, scored by accuracy.")
    with pytest.raises(DataError, match="train:2: label 'CC' is none of BIO"):
        notes_of(tmp_path, mixed, scheme="bio")


TAGS = st.sampled_from(["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-X"))])


@given(st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_scores_are_those_of_seqeval(both: list[list[tuple[str, str]]]) -> None:
    """The library's default mode, which is conlleval's: the same spans, so the same counts and scores."""
    library = pytest.importorskip("seqeval.metrics.sequence_labeling", reason="needs the package seqeval")
    truth, said = ([[pair[at] for pair in sentence] for sentence in both] for at in (0, 1))
    task = Tagging(labels=("O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("PER", "LOC-X"))), scheme="bioes")
    examples = [TaggedSentence(words=("w",) * len(tags), labels=tuple(tags)) for tags in truth]
    scores = task.score(examples, [{"tags": tags} for tags in said])
    true, found = set(library.get_entities(truth)), set(library.get_entities(said))
    assert scores["precision"] == pytest.approx(len(true & found) / max(len(found), 1))
    assert scores["recall"] == pytest.approx(len(true & found) / max(len(true), 1))
    assert scores["f1"] == pytest.approx(2 * len(true & found) / max(len(true) + len(found), 1))
