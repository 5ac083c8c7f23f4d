"""The archive for gluebenchmark.com: every table, header, label and count."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from tests.tasks.glue_samples import labels, tsv, write_glue

from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.finetuning.glue_table import PARTS, require_tables, write_submission
from electra_trainer.tasks.glue_tasks import GlueTask

GLUE = Path(__file__).resolve().parents[3] / "shared" / "data" / "glue"
FILES = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
TRAINED = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


def predicted(task: str, number: int) -> dict[str, object]:
    if task == "stsb":
        return {"value": (3.14159265, -0.2, 5.7, 2.0)[number % 4]}
    label = labels(task)[number % len(labels(task))]
    return {"label": label, "probabilities": {label: 1.0}}


def write_runs(root: Path, folder: Path, tasks: tuple[str, ...] = TRAINED) -> dict[str, Path]:
    """A run folder a task, with the predictions of every test set that is there."""
    runs = {}
    for task in tasks:
        runs[task] = root / task
        (runs[task] / "predictions").mkdir(parents=True)
        for split, examples in GlueTask(folder=str(folder), task=task).tests().items():
            lines = [json.dumps(predicted(task, n)) + "\n" for n in range(len(examples))]
            (runs[task] / "predictions" / f"{split}.jsonl").write_text("".join(lines))
    return runs


def read(archive: Path) -> dict[str, list[list[str]]]:
    """Rows of each table; the header is checked."""
    tables = {}
    with zipfile.ZipFile(archive) as file:
        assert file.testzip() is None
        for name in file.namelist():
            text = file.read(name).decode("ascii")
            assert text.startswith("index\tprediction\n") and text.endswith("\n")
            tables[name] = [line.split("\t") for line in text.splitlines()[1:]]
    return tables


def test_all_the_tables(tmp_path: Path) -> None:
    """Names, indices and rows of the test files, labels as the server writes them, STS-B within 0 and 5; WNLI is its majority class."""
    folder = write_glue(tmp_path / "glue", test=5)
    runs = write_runs(tmp_path / "runs", folder)
    said = write_submission(tmp_path / "all.zip", folder=str(folder), runs=runs)
    tables = read(tmp_path / "all.zip")
    assert list(tables) == [f"{name}.tsv" for name in FILES] == [part.file for part in PARTS]
    assert all([index for index, _ in rows] == ["0", "1", "2", "3", "4"] for rows in tables.values())
    column = {name: [one for _, one in rows] for name, rows in tables.items()}
    for name in ("CoLA", "SST-2", "MRPC", "QQP"):
        assert column[f"{name}.tsv"] == ["1", "0", "1", "0", "1"]
    for name in ("MNLI-m", "MNLI-mm", "AX"):
        assert column[f"{name}.tsv"] == ["entailment", "neutral", "contradiction", "entailment", "neutral"]
    for name in ("QNLI", "RTE"):
        assert column[f"{name}.tsv"] == ["entailment", "not_entailment", "entailment", "not_entailment", "entailment"]
    assert column["STS-B.tsv"] == ["3.1416", "0.0000", "5.0000", "2.0000", "3.1416"]
    assert column["WNLI.tsv"] == ["0"] * 5  # as many of each label; the first of equals
    assert "WNLI.tsv: NOT PREDICTED: '0' for every row, the training set's majority." in said
    assert f"CoLA.tsv: from {runs['cola']}" in said
    assert "CoLA.tsv: 5 rows, GLUE has 1,063: the server will not take it." in said
    assert [part.rows for part in PARTS] == [1063, 1821, 1725, 1379, 390_965, 9796, 9847, 5463, 3000, 146, 1104]


def test_a_model_of_wnli_is_used_where_there_is_one(tmp_path: Path) -> None:
    folder = write_glue(tmp_path / "glue", test=146)
    runs = write_runs(tmp_path / "runs", folder, (*TRAINED, "wnli"))
    said = write_submission(tmp_path / "all.zip", folder=str(folder), runs=runs)
    assert [one for _, one in read(tmp_path / "all.zip")["WNLI.tsv"][:3]] == ["1", "0", "1"]
    assert not [line for line in said if "NOT PREDICTED" in line]
    assert not [line for line in said if line.startswith("WNLI.tsv: 146")]  # GLUE's own count


def test_indices_are_the_files(tmp_path: Path) -> None:
    """In the file's order, whatever it is; counted where the file has none."""
    folder = write_glue(tmp_path / "glue", test=3)
    (folder / "RTE/test.tsv").write_text(
        tsv(("sentence2", "sentence1", "index"), ("a", "b", 20), ("c", "d", 3), ("e", "f", 11))
    )
    (folder / "CoLA/test.tsv").write_text(tsv(("sentence",), ("a",), ("c",), ("e",)))
    runs = write_runs(tmp_path / "runs", folder)
    write_submission(tmp_path / "all.zip", folder=str(folder), runs=runs)
    tables = read(tmp_path / "all.zip")
    assert [index for index, _ in tables["RTE.tsv"]] == ["20", "3", "11"]
    assert [index for index, _ in tables["CoLA.tsv"]] == ["0", "1", "2"]
    for bad in ("3", "x"):
        (folder / "RTE/test.tsv").write_text(
            tsv(("sentence1", "sentence2", "index"), ("a", "b", 3), ("c", "d", bad), ("e", "f", 1))
        )
        with pytest.raises(DataError, match=rf"RTE/test.tsv:[23]: index '{bad}': expected a unique number"):
            write_submission(tmp_path / "all.zip", folder=str(folder), runs=runs)


def test_the_same_bytes(tmp_path: Path) -> None:
    """Whenever and wherever it is written."""
    folder = write_glue(tmp_path / "glue")
    runs = write_runs(tmp_path / "runs", folder)
    for name in ("one.zip", "two.zip"):
        write_submission(tmp_path / name, folder=str(folder), runs=runs)
    content = (tmp_path / "one.zip").read_bytes()
    assert content == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.external_attr >> 16 for entry in file.infolist()} == {0o644}
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}  # zlibs differ


def test_what_is_missing_is_listed_at_once(tmp_path: Path) -> None:
    """Tests that are not there, tasks that are not trained, predictions that a run did not make: before training, and after."""
    folder = write_glue(tmp_path / "glue")
    for name in ("QQP/test.tsv", "MNLI/test_mismatched.tsv", "AX/diagnostic.tsv", "WNLI/test.tsv"):
        (folder / name).unlink()
    expected = (
        r"missing would be MRPC.tsv \(mrpc is not trained\), QQP.tsv \(no test set of qqp is there\), "
        r"MNLI-mm.tsv \(no test set of mnli is there\), WNLI.tsv \(no test set of wnli is there\), AX.tsv \(no test set of ax is there\)\. "
        r"Train what is missing"
    )
    archive, trained = tmp_path / "all.zip", tuple(task for task in TRAINED if task != "mrpc")
    with pytest.raises(MissingInputError, match=expected):
        require_tables(folder=str(folder), tasks=trained)
    runs = write_runs(tmp_path / "runs", folder, trained)
    with pytest.raises(MissingInputError, match=expected):
        write_submission(archive, folder=str(folder), runs=runs)
    assert not archive.exists()
    whole = write_glue(tmp_path / "whole")
    runs = write_runs(tmp_path / "others", whole)
    (runs["rte"] / "predictions/test.jsonl").unlink()
    with pytest.raises(MissingInputError, match=r"others/rte/predictions/test.jsonl: no such file"):
        write_submission(archive, folder=str(whole), runs=runs)
    assert not archive.exists()


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        ("rte", ['{"label": "entailment"}'] * 4),
        ("rte", ['{"label": "yes"}'] * 5),
        ("rte", ['{"value": 1}'] * 5),
        ("rte", ["{"] * 5),
        ("stsb", ['{"value": NaN}'] * 5),
        ("stsb", ['{"value": 1}'] * 4 + ['{"value": "x"}']),
    ],
)
def test_predictions_that_do_not_fit(tmp_path: Path, task: str, lines: list[str]) -> None:
    folder = write_glue(tmp_path / "glue")
    runs = write_runs(tmp_path / "runs", folder)
    (runs[task] / "predictions/test.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"test.jsonl: expected 5 lines, each with .*, found \d\. Remove the run's"):
        write_submission(tmp_path / "all.zip", folder=str(folder), runs=runs)


@pytest.mark.slow
@pytest.mark.skipif(not GLUE.is_dir(), reason="GLUE is not here")
def test_the_real_test_sets(tmp_path: Path) -> None:
    """Files that are here have GLUE's counts and indices 0, 1, 2 ...; what is not here is named."""
    with pytest.raises(
        MissingInputError,
        match=r"missing would be QQP.tsv \(no .*\), MNLI-m.tsv \(no .*\), MNLI-mm.tsv \(no [^)]*\)\. Train",
    ):
        require_tables(folder=str(GLUE), tasks=TRAINED)
