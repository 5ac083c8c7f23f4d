"""GLUE's table of tasks, the data that come from a folder or the Hub, and every way that a file can be wrong."""

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.tasks.glue_samples import FOLDERS, labelled, tsv, unlabelled, write_glue

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.rows import read_rows
from electra_trainer.files.tables import Table
from electra_trainer.tasks import glue_tasks
from electra_trainer.tasks.glue_tasks import PAPER, ROWS, GlueTask, parse, parse_tasks, tasks_in
from electra_trainer.tasks.texts import Classification, Regression

GLUE = Path(__file__).resolve().parents[3] / "shared" / "data" / "glue"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"))


def task(folder: Path | str, name: str, **more: Any) -> GlueTask:
    return GlueTask(folder=str(folder), task=name, **more)


def test_the_paper_in_rows() -> None:
    """§3.1 and Table 6: metrics, epochs; the released code's unordered pairs."""
    assert {name: row.metrics[0] for name, row in ROWS.items() if name in PAPER} == {
        "cola": "matthews", "sst2": "accuracy", "mrpc": "accuracy", "stsb": "spearman", "qqp": "accuracy", "mnli": "accuracy",
        "qnli": "accuracy", "rte": "accuracy",
    }  # fmt: skip
    assert {name for name, row in ROWS.items() if row.epochs == 10} == {"rte", "stsb"}
    assert {row.epochs for row in ROWS.values()} == {3, 10}
    assert {name for name, row in ROWS.items() if row.unordered} == {"mrpc", "stsb"}
    assert {name for name, row in ROWS.items() if "f1" in row.metrics} == {"mrpc", "qqp"}
    assert ROWS["stsb"].metrics[1] == "pearson" and list(ROWS["mnli"].dev) == ["dev_matched", "dev_mismatched"]


@pytest.mark.parametrize("name", list(FOLDERS))
def test_what_a_task_loads(folder: Path, name: str) -> None:
    """Task, splits by name, and notes that say which counts are not GLUE's."""
    source = task(folder, name)
    data = source.load()
    row = ROWS[name]
    assert (source.name, source.epochs) == (name, row.epochs) and data.task.name == name
    assert data.task.metric == row.metrics[0]
    if name == "stsb":  # learned in fifths, as released
        assert isinstance(data.task, Regression) and (data.task.shift, data.task.scale) == (0.0, 5.0)
    else:
        assert isinstance(data.task, Classification)
    assert len(data.train) == 24 and {split: len(rows) for split, rows in data.dev.items()} == dict.fromkeys(row.dev, 9)
    assert list(data.test) == [*row.test, *(["ax"] if name == "mnli" else [])]
    assert data.unordered_pairs == row.unordered
    assert data.notes[0] == f"24 of {row.train:,} training rows." and len(data.notes) == 1 + len(row.dev)
    assert task(folder, name, test=False).load().test == {}


def test_counts_that_are_nearly_glues(folder: Path, tmp_path: Path) -> None:
    """A file with one row less is not GLUE's own."""
    write_glue(tmp_path, ["wnli"], train=634, dev=71)
    assert task(tmp_path, "wnli").load().notes == ("634 of 635 training rows.",)
    (tmp_path / "WNLI/train.tsv").write_text(labelled("wnli", 635))
    assert task(tmp_path, "wnli").load().notes == ()


def test_rows_that_stand_twice_are_told(tmp_path: Path) -> None:
    """GLUE's own files have some; whoever reads the scores is to know, and nobody is asked to change the files."""
    write_glue(tmp_path, ["rte", "mnli"])
    for name in ("RTE", "MNLI"):
        train = (tmp_path / name / "train.tsv").read_text().splitlines()
        turned = train[1].replace("entailment", "not_entailment" if name == "RTE" else "neutral")
        for file, rows in (
            ("train.tsv", [turned]),
            *(((f"{part}.tsv"), [turned, *train[2:4]]) for part in ROWS[name.lower()].dev),
        ):
            with (tmp_path / name / file).open("a") as more:
                more.write("\n".join([*rows, ""]))
    (overlap,) = task(tmp_path, "rte").load().notes[2:]
    assert overlap == (
        "warning: 3 of 12 development rows (25 %) are in the training file too, so the scores are too good: dev.tsv:11 is "
        "train.tsv:2."
    )
    assert [note.split(": dev_")[1][:10] for note in task(tmp_path, "mnli").load().notes[3:]] == [
        "matched.ts",
        "mismatched",
    ]


def test_limit_takes_the_same_rows_always_and_says_so(folder: Path) -> None:
    whole, some = task(folder, "rte").load(), task(folder, "rte", limit=7).load()
    assert [one.place for one in some.train] == [one.place for one in task(folder, "rte", limit=7).load().train]
    assert [one.place for one in some.train] == [one.place for one in task(folder, "rte", limit=9).load().train][:7]
    assert [one.place for one in some.train] != [one.place for one in whole.train][:7]
    assert len({one.place for one in some.train}) == 7 and set(some.train) <= set(whole.train)
    assert "trained on 7 of these 24 rows (--limit)." in some.notes
    assert task(folder, "rte", limit=24).load() == whole  # as if there were no limit
    assert len({whole.sha256, some.sha256, task(folder, "rte", limit=9).load().sha256}) == 3


def test_the_hash_follows_the_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_glue(tmp_path / name, ["rte"])
    first = task(tmp_path / "one", "rte").load().sha256
    assert first == task(tmp_path / "two", "rte").load().sha256
    changed = tmp_path / "two/RTE/dev.tsv"
    changed.write_text(changed.read_text().replace("\tentailment", "\tnot_entailment", 1))
    assert first != task(tmp_path / "two", "rte").load().sha256


def test_a_source_travels_between_processes(folder: Path) -> None:
    source = task(folder, "cola", limit=5)
    assert pickle.loads(pickle.dumps(source)) == source
    assert json.loads(json.dumps(vars(source))) == vars(source)


def test_folders_by_other_names(folder: Path, tmp_path: Path) -> None:
    """The Hub's names of folders and splits, the old name of the diagnostics."""
    write_glue(tmp_path, ["sst2", "mnli"])
    (tmp_path / "SST-2").rename(tmp_path / "sst2")
    (tmp_path / "AX").rename(tmp_path / "diagnostic")
    (tmp_path / "sst2/dev.tsv").rename(tmp_path / "sst2/validation.tsv")
    assert tasks_in(tmp_path) == ("sst2", "mnli") and tasks_in(folder) == tuple(FOLDERS)
    assert len(task(tmp_path, "sst2").load().dev["dev"]) == 9
    assert list(task(tmp_path, "mnli").load().test) == ["test_matched", "test_mismatched", "ax"]


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    write_glue(tmp_path, ["rte", "mnli"], test=0)
    with pytest.raises(
        MissingInputError, match=r"CoLA/train.tsv: no such file.* has MNLI, RTE. Name the tasks that exist with --tasks"
    ):
        task(tmp_path, "cola").load()
    (tmp_path / "RTE/dev.tsv").rename(tmp_path / "RTE/devel.tsv")
    for check in (task(tmp_path, "rte").load, task(tmp_path, "rte").require_files):
        with pytest.raises(MissingInputError, match=r"RTE/dev.tsv: no such file"):
            check()
    task(tmp_path, "mnli").require_files()
    assert task(tmp_path, "mnli").load().test == {}
    (tmp_path / "MNLI/train.tsv").unlink()
    (tmp_path / "MNLI/train.tsv").mkdir()
    with pytest.raises(MissingInputError, match=r"MNLI/train.tsv: no such file"):
        task(tmp_path, "mnli").load()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("CoLA", "--tasks CoLA: unknown. Did you mean 'cola'"),
        ("cola,rte,cola", "--tasks: cola is given twice"),
        (" , ", "expected names between commas"),
    ],
)
def test_names_that_are_none(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_tasks(words)


def test_names_of_tasks() -> None:
    assert parse_tasks("paper") == PAPER and parse_tasks("all") == (*PAPER, "wnli")
    assert parse_tasks(" rte, ax") == ("rte", "ax")
    with pytest.raises(ConfigError, match=r"GLUE has no task 'sts'. Known: cola"):
        task("x", "sts")


class Hub:
    """The splits of the Hub by (configuration, split), and the names that were asked for."""

    def __init__(self, rows: dict[tuple[str, str], list[dict[str, Any]]], patch: pytest.MonkeyPatch) -> None:
        self.rows, self.asked = rows, set[str]()
        patch.setattr(glue_tasks, "read_rows", self.read)

    def read(self, name: str) -> Table:
        self.asked.add(name)
        _, config, split = name.split(":")
        return replace(read_rows(self.rows[config, split]), path=Path(name))


def test_the_hub_gives_what_the_files_give(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are equal, labels are in the files' words, and AX among MNLI's test sets."""
    ours = task(folder, "mnli").load()

    def split(examples: Any, *, hidden: bool = False) -> list[dict[str, Any]]:
        numbers = {label: n for n, label in enumerate(ROWS["mnli"].layout.labels)}
        return [
            {"premise": one.text, "hypothesis": one.pair, "label": -1 if hidden else numbers[one.label], "idx": n}
            for n, one in enumerate(examples)
        ]

    there = {("mnli", "train"): split(ours.train), ("ax", "test"): split(ours.test["ax"], hidden=True)}
    for part in ("matched", "mismatched"):
        there["mnli", f"validation_{part}"] = split(ours.dev[f"dev_{part}"])
        there["mnli", f"test_{part}"] = split(ours.test[f"test_{part}"], hidden=True)
    hub = Hub(there, monkeypatch)
    found = task("hub", "mnli").load()
    assert hub.asked == {f"nyu-mll/glue:{config}:{split}" for config, split in there}

    def plain(examples: Any) -> list[tuple[Any, ...]]:
        return [(one.text, one.pair, one.label) for one in examples]

    assert plain(found.train) == plain(ours.train) and found.notes == ours.notes
    for name in ours.dev:
        assert plain(found.dev[name]) == plain(ours.dev[name])
    for name in ours.test:
        assert plain(found.test[name]) == plain(ours.test[name])
        assert [one.id for one in found.test[name]] == [one.id for one in ours.test[name]]
    there["mnli", "train"][3]["label"] = 3
    with pytest.raises(DataError, match="nyu-mll/glue:mnli:train:4: unknown label '3'"):
        task("hub", "mnli").load()
    task("hub", "mnli").require_files()


def test_numbers_and_empty_texts_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"sentence1": "a", "sentence2": "b", "label": 3.799999952316284, "idx": 0}]
    Hub({("stsb", "train"): rows, ("stsb", "validation"): rows}, monkeypatch)
    assert task("hub", "stsb", test=False).load().train[0].value == pytest.approx(3.8)
    rows[0].pop("sentence2")
    with pytest.raises(DataError, match=r"stsb:train:1: no column 'sentence2'.*The repository has changed"):
        task("hub", "stsb", test=False).load()


@pytest.mark.slow
@pytest.mark.skipif(not GLUE.is_dir(), reason="GLUE is not here")
def test_the_real_files() -> None:
    """All load; notes name what is incomplete, and development rows that are in training."""
    loaded = {name: task(GLUE, name).load() for name in FOLDERS}
    assert [name for name, data in loaded.items() if not data.notes] == ["sst2", "mrpc", "rte", "wnli"]
    assert loaded["cola"].notes[-1].startswith("warning: 16 of 1,043 development rows")
    assert loaded["stsb"].notes[-1].startswith("warning: 6 of 1,500 development rows")
    assert loaded["mnli"].notes == ("22,664 of 392,702 training rows.", "4,916 of 9,832 dev_mismatched rows.")
    assert loaded["qqp"].notes == ("10,000 of 363,846 training rows.", "20,215 of 40,430 dev rows.")
    assert loaded["qnli"].notes[0] == "104,742 of 104,743 training rows."
    for name, data in loaded.items():
        assert all(
            len(rows) == (ROWS["ax"] if split == "ax" else ROWS[name]).test[split] for split, rows in data.test.items()
        )
        assert all(one.text.strip() and (one.pair is None or one.pair.strip()) for one in data.train)
    assert Counter(one.label for one in loaded["cola"].dev["dev"]) == {"1": 721, "0": 322}
    assert max(one.value for one in loaded["stsb"].train) == 5.0


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
    ("sst2", "sentence\tlabel\na\tb\t1\n", "F.tsv:2: expected 2 fields between tabs .sentence, label., found 3.* Mend"),
    ("sst2", "sentence\tlabel\na\t1\n\nb\t0\n", "F.tsv:3: expected 2 fields .* found 1"),
    ("sst2", "sentence,label\na,1\n", "F.tsv:1: no column 'sentence'.* 'sentence,label'.* with tabs between them"),
    ("sst2", "sentense\tlabel\na\t1\n", "F.tsv:1: no column 'sentence'."),
    ("mnli", "premise\thypotesis\tlabel\na\tb\t0\n", "no column 'sentence2' or 'hypothesis'."),
    ("qqp", "question1\tquestion2\na\tb\n", "F.tsv:1: no column 'is_duplicate' or 'label'"),
    ("rte", "a sentence\tanother\tentailment\n", "no column 'sentence1'.*Name the columns in the first line"),
    ("cola", "gj04\t1\tOne.\n", "F.tsv:1: expected 4 fields between tabs .source, label, mark, sentence., found 3"),
    ("cola", "gj04\t1\t\tOne.\ngj04\t2\t\tTwo.\n", "F.tsv:2: unknown label '2'. Expected one of: 0, 1. Mend"),
    ("cola", "gj04\t1\t\t \n", "F.tsv:1: sentence is empty"),
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
    ("sst2", "\n\r\n", "F.tsv: is empty"),
    ("sst2", "sentence\tlabel\n", "F.tsv: holds no rows"),
    ("sst2", b"sentence\tlabel\na\t1\ncaf\xe9\t1\n", "F.tsv:3: not UTF-8 at byte 4 of the line"),
    ("sst2", "sentence\tlabel\ra\t1\r", "F.tsv:1: no column 'label'"),
]


@pytest.mark.parametrize(("task", "text", "message"), WRONG, ids=[message[:50] for _, _, message in WRONG])
def test_faults_are_reported(task: str, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(task, text)
