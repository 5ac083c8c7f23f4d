"""Every usual notation of spans is read, and scored as the same spans in BIO."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from electra_trainer.errors import DataError
from electra_trainer.finetuning.examples import TaggedSentence
from electra_trainer.finetuning.tagging.notation import Notation, Scheme, described, notation_of, scheme_of
from electra_trainer.finetuning.tagging.spans import spans_of
from electra_trainer.finetuning.tagging.tagging import Tagging, TaggingTask

BIO = "B-PER I-PER I-PER O B-LOC O B-LOC B-PER".split()
"""Spans of three words, one and one, and two that touch."""
WRITTEN: dict[str, tuple[str, Scheme, str]] = {
    "BIO": ("B-PER I-PER I-PER O B-LOC O B-LOC B-PER", "bio", "BIO (IOB2)"),
    "IOB1": ("I-PER I-PER I-PER O I-LOC O I-LOC I-PER", "bio", "IO"),
    "BIOES": ("B-PER I-PER E-PER O S-LOC O S-LOC S-PER", "bioes", "BIOES"),
    "BILOU": ("B-PER I-PER L-PER O U-LOC O U-LOC U-PER", "bioes", "BILOU"),
    "BMES": ("B-PER M-PER E-PER O S-LOC O S-LOC S-PER", "bioes", "BMES"),
    "BMEWO": ("B-PER M-PER E-PER O W-LOC O W-LOC W-PER", "bioes", "BMEWO"),
    "IOE": ("I-PER I-PER E-PER O E-LOC O E-LOC E-PER", "bioes", "IOE"),
    "underscores": ("B_PER I_PER I_PER O B_LOC O B_LOC B_PER", "bio", "BIO (IOB2)"),
    "colons": ("B:PER I:PER I:PER O B:LOC O B:LOC B:PER", "bio", "BIO (IOB2)"),
    "slashes": ("B/PER M/PER E/PER O S/LOC O S/LOC S/PER", "bioes", "BMES"),
    "after the type": ("PER-B PER-I PER-I O LOC-B O LOC-B PER-B", "bio", "BIO (IOB2)"),
    "after it, BILOU": ("PER_B PER_I PER_L O LOC_U O LOC_U PER_U", "bioes", "BILOU"),
    "small letters": ("b-PER i-PER i-PER o b-LOC o b-LOC b-PER", "bio", "BIO (IOB2)"),
    "small letters, BMES": ("b-PER m-PER e-PER O s-LOC O s-LOC s-PER", "bioes", "BMES"),
    "IO": ("PER PER PER O LOC O LOC PER", "io", "IO"),
    "IO with OTHER": ("PER PER PER OTHER LOC OTHER LOC PER OTHER", "io", "IO"),
    "BIO with 0": ("B-PER I-PER I-PER 0 B-LOC 0 B-LOC B-PER", "bio", "BIO (IOB2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_usual_notations(name: str, tmp_path: Path) -> None:
    """Named in the notes, scored by spans, perfect for the truth, and 2/3 where the last span has another type."""
    written, scheme, title = WRITTEN[name]
    labels = written.split()
    # more words outside, as texts have them
    lines = [f"w{at} {label}\n" for at, label in enumerate(labels)] + [f"v {labels[3]}\n"] * 3
    for split in ("train", "dev"):
        (tmp_path / split).write_text("".join(lines) + "\n" * (split == "dev"))
    data = TaggingTask(train=tmp_path / "train", dev=tmp_path / "dev").load()
    task = data.task
    assert isinstance(task, Tagging) and (task.scheme, task.metric) == (scheme, "f1")
    assert (
        data.notes[0].startswith(f"labels: {title}, such as ")
        and "2 types: LOC, PER. Spans are scored by seqeval" in data.notes[0]
    )
    truth = list(data.dev["dev"][0].labels)
    assert task.score(data.dev["dev"], [{"tags": truth}])["f1"] == 1.0
    notation = notation_of(task.labels, task.scheme)
    assert [notation.read(str(label)) for label in truth].count(None) == 0
    assert spans_of([str(notation.read(str(label))) for label in truth])[:4] == spans_of(BIO)
    wrong = [*truth[:7], truth[6], *truth[8:]]  # the touching PER as LOC
    assert 0.4 < task.score(data.dev["dev"], [{"tags": wrong}])["f1"] < 1.0
    assert task.score(data.dev["dev"], [{"tags": [truth[3]] * len(truth)}])["f1"] == 0.0, "always O finds nothing"


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("O B-PER I-PER", "bio"),
        ("O I-PER", "bio"),
        ("B-NP I-NP B-VP", "bio"),
        ("O B I", "bio"),
        ("o b i", "bio"),
        ("O B-PER I-PER E-PER S-PER", "bioes"),
        ("O S-PER", "bioes"),
        ("O B-PER I-PER b-PER", "bio"),
        ("O B-PER I-PER L-PER U-PER", "bioes"),
        ("B M E S", "bioes"),
        ("O O O PER LOC", "io"),
        ("NOUN VERB ADJ", "none"),
        ("O", "none"),
        ("O X", "none"),
        ("O PER PER", "none"),
        ("N O ^ S Z V A R ! D P & T X Y # @ ~ U E $ , G L M", "none"),
        ("NN B-x VB JJ O", "none"),
        ("NN-S VB-S JJ", "none"),
        ("B-x C-x", "none"),
        ("0 0 0 1 2", "none"),
        ("_ _ B-PER I-PER", "bio"),
        ("- - B-PER I-PER", "bio"),
        ("_ _ _ Case=Nom Number=Sing", "none"),
        ("nsubj obl:tmod acl:relcl", "none"),
        ("", "none"),
    ],
)
def test_the_scheme_is_found(labels: str, scheme: str) -> None:
    assert scheme_of(Counter(labels.split())) == scheme


def found(labels: str, scheme: Scheme) -> Notation:
    return notation_of(tuple(labels.split()), scheme)


def test_a_wrong_label_is_explained() -> None:
    bio = found("O B-PER I-PER", "bio")
    assert found("NOUN", "none").fault("anything") == bio.fault("B-X") == bio.fault("O") == ""
    assert found("O B-PER E-PER", "bioes").fault("S-X") == ""
    assert bio.fault("S-X") == "label 'S-X' is none of BIO: expected O, B-TYPE, I-TYPE."
    for wrong in ("b_PER", "b-PER", "B:PER", "PER-B"):
        assert bio.fault(wrong).endswith("Did you mean 'B-PER'?"), wrong
    assert bio.fault("o").endswith("Did you mean 'O'?")
    assert "expected O, TYPE_B, TYPE_I, TYPE_L, TYPE_U." in found("O PER_B PER_L PER_U", "bioes").fault("PER")


def notes_of(folder: Path, text: str, **fields: str) -> tuple[str, ...]:
    (folder / "train").write_text(text)
    (folder / "dev").write_text(text + "\n")
    return TaggingTask(train=folder / "train", dev=folder / "dev", **fields).load().notes  # type: ignore[arg-type]


def test_where_none_fits_the_nearest_is_named_and_its_remedy_works(tmp_path: Path) -> None:
    near = "a O\nb P\nc Q\nd O\ne O\n"
    assert notes_of(tmp_path, near)[0] == (
        "labels: 3 without spans, scored by accuracy. If they are types of spans, and O is outside, the nearest notation is IO: --scheme io."
    )
    assert notes_of(tmp_path, near, scheme="io")[0].startswith("labels: IO, such as 'P'; 2 types: P, Q.")
    mixed = "a B-X\nb CC\nc DT\nd JJ\ne VB\n"
    assert (
        "The nearest notation of spans is BIO, and 4 labels such as 'CC' do not fit it: correct them"
        in notes_of(tmp_path, mixed)[0]
    )
    with pytest.raises(DataError, match="train:2: label 'CC' is none of BIO"):
        notes_of(tmp_path, mixed, scheme="bio")
    assert notes_of(tmp_path, near, scheme="none")[0] == "labels: 3 without spans, scored by accuracy."


@pytest.mark.parametrize(
    "labels", ["BEGIN-{0} INSIDE-{0}", "[B-{0}] [I-{0}]", "B{0} I{0}", "{0}_start {0}_middle", "b.{0} i.{0}"]
)
def test_marks_that_are_read_as_types_are_named(labels: str) -> None:
    counts = Counter({"O": 9, **dict.fromkeys(f"{labels.format('PER')} {labels.format('LOC')}".split(), 1)})
    assert scheme_of(counts) == "io"
    said = described(counts, notation_of(tuple(counts), "io"), begun=0, parted=False, asked=False)
    assert "the nearest notation is BIO, so write B-LOC and I-LOC." in said or "write B-PER and I-PER." in said
    types = Counter({"O": 9, "BIRD": 1, "ITEM": 1, "INSECT": 1, "B2B": 1})
    assert "nearest" not in described(types, notation_of(tuple(types), "io"), begun=0, parted=False, asked=False)


def test_iob1_is_named(tmp_path: Path) -> None:
    notes = notes_of(tmp_path, "a I-X\nb B-X\nc O\nd I-X\n\ne I-Y\n")
    assert notes[0].startswith("labels: IOB1, such as")


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
