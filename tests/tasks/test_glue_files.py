"""GLUE's tables: what is read from them, and every way that one can be wrong."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tasks.glue_samples import labelled, tsv, unlabelled

from electra_trainer.errors import DataError
from electra_trainer.tasks.glue_tasks import ROWS, parse

GLUE = Path(__file__).resolve().parents[3] / "shared" / "data" / "glue"
TRAINED = [name for name, row in ROWS.items() if row.train]


def read(task: str, text: str | bytes, *, labelled: bool = True):
    content = text if isinstance(text, bytes) else text.encode()
    return parse(content, ROWS[task].layout, path="F.tsv", labelled=labelled)


@pytest.mark.parametrize("task", TRAINED)
def test_official_files(task: str) -> None:
    """Texts, labels in the file's words, line numbers, indices; the same with "\\r\\n", a byte order mark, and without a last line end."""
    text = labelled(task, 6)
    rows = read(task, text)
    assert len(rows) == 6
    header = 0 if task == "cola" else 1
    assert [one.place for one in rows] == [f"F.tsv:{n + 1 + header}" for n in range(6)]
    fields = text.split("\n")[header].split("\t")
    assert rows[0].text in fields and (rows[0].pair is None or rows[0].pair in fields)
    if task == "stsb":
        assert [one.value for one in rows[:3]] == [5.0, 0.0, 2.5] and rows[0].label is None
    else:
        assert rows[0].label in fields and rows[0].value is None
        assert {one.label for one in rows} == set(ROWS[task].layout.labels)
    for changed in ("\ufeff" + text, text.replace("\n", "\r\n"), text.rstrip("\n"), text + "\n\r\n"):
        assert read(task, changed) == rows


@pytest.mark.parametrize("task", list(ROWS))
def test_official_test_files(task: str) -> None:
    rows = read(task, unlabelled(task, 4), labelled=False)
    assert [one.id for one in rows] == ["0", "1", "2", "3"]
    assert all(one.label is None and one.value is None for one in rows)
    assert all((one.pair is None) == (task in ("cola", "sst2")) for one in rows)


def test_text_is_left_alone() -> None:
    """Quotes, U+2028, U+0085, a form feed and a bare carriage return are characters of a text; a tab is none."""
    text = 'he said " the \u2028 first \x85 word\x0c of \r the day'
    [row] = read("sst2", tsv(("label", "sentence"), ("1", text)))
    assert row.text == text and row.label == "1"


def test_columns_in_any_order_and_the_hubs_names() -> None:
    """Columns are found by name, with others between; labels as words or as the Hub's numbers."""
    expected = [("a b", "c d", "neutral"), ("e", "f", "contradiction")]
    for text in (
        tsv(
            ("gold_label", "x", "sentence2", "sentence1"),
            ("neutral", "", "c d", "a b"),
            ("contradiction", "", "f", "e"),
        ),
        tsv(("premise", "hypothesis", "label", "idx"), ("a b", "c d", "1", "0"), ("e", "f", "2", "1")),
    ):
        assert [(one.text, one.pair, one.label) for one in read("mnli", text)] == expected
    hub = tsv(("sentence1", "sentence2", "label", "idx"), ("a", "b", "0", "0"), ("c", "d", "1", "1"))
    assert [one.label for one in read("rte", hub)] == ["entailment", "not_entailment"]
    assert [one.label for one in read("mrpc", hub)] == ["0", "1"]
    assert [one.value for one in read("stsb", hub)] == [0.0, 1.0]
    assert [(one.text, one.label) for one in read("cola", tsv(("sentence", "label"), ("a", "1")))] == [("a", "1")]


def test_hidden_labels_of_a_test_file_are_not_read() -> None:
    text = tsv(("sentence", "label", "idx"), ("a", "-1", "7"))
    [row] = read("sst2", text, labelled=False)
    assert (row.label, row.id) == (None, "7")


def test_one_question_may_be_empty_but_not_both() -> None:
    head = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
    [row] = read("qqp", tsv(head, (1, 2, 3, "how?", "", 0)))
    assert row.pair == ""
    with pytest.raises(DataError, match=r"F.tsv:2: question1 is empty"):
        read("qqp", tsv(head, (1, 2, 3, "", " ", 0)))


WRONG = [
    (
        "sst2",
        "sentence\tlabel\na\t1\nb\n",
        "F.tsv:3: expected 2 fields between tabs .sentence, label., found 1. Mend or remove",
    ),
    ("sst2", "sentence\tlabel\na\tb\t1\n", "F.tsv:2: expected 2 fields .* found 3.* Mend or remove"),
    ("sst2", "sentence\tlabel\na\t1\n\nb\t0\n", "F.tsv:3: expected 2 fields .* found 1"),
    (
        "sst2",
        "sentence,label\na,1\n",
        "F.tsv:1: the header has no column 'sentence'.* 'sentence,label'.* with tabs between them",
    ),
    ("sst2", "sentense\tlabel\na\t1\n", "F.tsv:1: the header has no column 'sentence'."),
    ("mnli", "premise\thypotesis\tlabel\na\tb\t0\n", "no column 'sentence2' or 'hypothesis'."),
    ("qqp", "question1\tquestion2\na\tb\n", "F.tsv:1: the header has no column 'is_duplicate' or 'label'"),
    ("rte", "a sentence\tanother\tentailment\n", "no column 'sentence1'.*Name the columns in the first line"),
    ("cola", "gj04\t1\tOne.\n", "F.tsv:1: expected 4 fields between tabs .source, label, mark, sentence., found 3"),
    ("cola", "gj04\t1\t\tOne.\ngj04\t2\t\tTwo.\n", "F.tsv:2: unknown label '2'. Expected one of: 0, 1. Mend"),
    ("cola", "gj04\t1\t\t \n", "F.tsv:1: sentence is empty"),
    ("cola", "gj04\t1\t\tOne.\ngj04\t1\t\n", "F.tsv:2: expected 4 fields .* found 3"),
    ("rte", "sentence1\tsentence2\tlabel\na\tb\tnot entailment\n", "F.tsv:2: unknown label 'not entailment'."),
    (
        "rte",
        "sentence1\tsentence2\tlabel\na\tb\t\n",
        "F.tsv:2: unknown label ''. Expected one of: entailment, not_entailment .or 0, 1",
    ),
    ("rte", "sentence1\tsentence2\tlabel\na\tb\t2\n", "F.tsv:2: unknown label '2'"),
    ("mnli", "sentence1\tsentence2\tgold_label\na\tb\t-\n", "F.tsv:2: unknown label '-'. Expected one of"),
    ("mrpc", "Quality\t#1 String\t#2 String\n-1\ta\tb\n", "F.tsv:2: unknown label '-1'. Expected one of"),
    ("mrpc", "Quality\t#1 String\t#2 String\n1\ta\t\n", "F.tsv:2: #2 String is empty"),
    ("stsb", "sentence1\tsentence2\tscore\na\tb\t5.01\n", "F.tsv:2: score '5.01': expected a number from 0 to 5"),
    ("stsb", "sentence1\tsentence2\tscore\na\tb\t-1\n", "F.tsv:2: score '-1'"),
    ("stsb", "sentence1\tsentence2\tscore\na\tb\tnan\n", "F.tsv:2: score 'nan'"),
    ("stsb", "sentence1\tsentence2\tscore\na\tb\t3,8\n", "F.tsv:2: score '3,8'"),
    ("stsb", "sentence1\tsentence2\tscore\na\tb\t\n", "F.tsv:2: score ''"),
    ("sst2", "", "F.tsv: is empty"),
    ("sst2", "\n\r\n", "F.tsv: is empty"),
    ("sst2", "sentence\tlabel\n", "F.tsv: holds no rows"),
    ("sst2", b"sentence\tlabel\na\t1\ncaf\xe9\t1\n", "F.tsv:3: not UTF-8 at byte 4 of the line"),
    ("sst2", "sentence\tlabel\na\t1\n".encode("utf-16"), "F.tsv: is UTF-16. Save it as UTF-8"),
    ("sst2", "sentence\tlabel\ra\t1\r", "F.tsv:1: the header has no column 'label'"),
]


@pytest.mark.parametrize(("task", "text", "message"), WRONG, ids=[message[:50] for _, _, message in WRONG])
def test_faults_are_reported(task: str, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(task, text)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TRAINED), st.binary(max_size=60), st.integers(0, 400), st.integers(0, 40), st.booleans())
def test_damaged_files_give_rows_or_a_typed_error(task: str, junk: bytes, at: int, cut: int, with_labels: bool) -> None:
    """Bytes put into a good file, or cut out of it: whatever is read has texts and known labels."""
    good = (labelled(task, 5) if with_labels else unlabelled(task, 5)).encode()
    try:
        rows = read(task, good[:at] + junk + good[at + cut :], labelled=with_labels)
    except DataError as error:
        assert str(error).startswith("F.tsv")
        return
    assert rows and all(one.text or task == "qqp" for one in rows)
    if with_labels and task != "stsb":
        assert {one.label for one in rows} <= set(ROWS[task].layout.labels)


@pytest.mark.skipif(not GLUE.is_dir(), reason="GLUE is not here")
@pytest.mark.parametrize("task", ["cola", "mrpc", "stsb", "rte", "wnli"])
def test_the_same_as_csv_reads(task: str) -> None:
    """The csv module without quoting, on the real dev and test files."""
    for name in ("dev", "test"):
        content = (GLUE / ROWS[task].folder / f"{name}.tsv").read_bytes()
        ours = parse(content, ROWS[task].layout, path=name, labelled=name == "dev")
        theirs = list(
            csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="\n"), delimiter="\t", quoting=csv.QUOTE_NONE)
        )
        theirs = theirs[0 if task == "cola" and name == "dev" else 1 :]
        assert len(ours) == len(theirs)
        for one, fields in zip(ours, theirs, strict=True):
            assert one.text in fields and (one.pair is None or one.pair in fields)
            assert one.label is None or one.label in fields
            assert one.value is None or one.value == float(fields[-1])
