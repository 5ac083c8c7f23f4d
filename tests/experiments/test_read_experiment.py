"""Reading experiment folders: what is done, what is not, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.paper.experiments import write_cell, write_experiment

from electra_trainer.errors import DataError, ElectraError, MissingInputError
from electra_trainer.experiments.summary import summarize
from electra_trainer.paper.paper_tables import build_table, entries


def test_done_and_not_done(tmp_path: Path) -> None:
    path = write_experiment(tmp_path / "e")
    write_cell(path, "electra", 1, {"a/x": 1.0})
    write_cell(path, "electra", 3, {"a/x": 2.0})
    found = summarize(path)
    assert list(found.results["electra"]) == [1, 3] and found.results["mlm"] == {}
    assert build_table(4, [found]).notes == ("e: electra: missing: seed 2.", "e: mlm: missing: seed 1, 2, 3.")
    result = found.rows["electra"]["a/x"]
    assert (result.mean, result.n) == (1.5, 2) and result.sd == pytest.approx(0.5**0.5)
    assert found.rows["mlm"] == {}


def test_a_foreign_configuration_leaves_its_results(tmp_path: Path) -> None:
    path = write_experiment(tmp_path)
    table = json.loads((path / "experiment.json").read_text())
    table["rows"]["electra"]["settings"]["objective"] = {"kind": "of-somebody-else"}
    (path / "experiment.json").write_text(json.dumps(table))
    write_cell(path, "electra", 1)
    found = summarize(path)
    assert [entry.config for entry in entries([found])] == [None]
    assert len(found.results["electra"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"key": "mlm"}, {"seed": 2}, {"seed": "1"}, {"scores": []}, {"scores": {"a": "high"}}, {"scores": {"a": True}},
        {"scores": {"a": None}}, {"scores": {"a": float("nan")}}, {"facts": {"flops_paper": None}},
        {"facts": {"seconds": "long"}}, {"facts": {"steps": 10**400}},
    ],
    ids=str,
)  # fmt: skip
def test_tampered_results_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_experiment(tmp_path)
    write_cell(path, "electra", 1)
    file = path / "cells/electra/seed-1/result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=r"result\.json"):
        summarize(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"], ids=repr)
@pytest.mark.parametrize("name", ["experiment.json", "cells/electra/seed-1/result.json"])
def test_broken_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    path = write_experiment(tmp_path)
    write_cell(path, "electra", 1)
    (path / name).write_text(text)
    with pytest.raises(DataError, match=Path(name).name):
        summarize(path)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"rows": []}, {"rows": {}}, {"rows": {"../x": {}}}, {"seeds": 3}, {"seeds": []}, {"verb": None}],
    ids=str,
)
def test_wrong_experiments_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_experiment(tmp_path)
    table = json.loads((path / "experiment.json").read_text())
    (path / "experiment.json").write_text(json.dumps(table | change))
    with pytest.raises(DataError, match="experiment"):
        summarize(path)


def test_what_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        summarize(tmp_path / "nowhere")
    with pytest.raises(MissingInputError, match="electra compare"):
        summarize(tmp_path)
    assert issubclass(MissingInputError, ElectraError)


def test_a_failed_cell_is_no_finished_one(tmp_path: Path) -> None:
    """A run that diverged has a result.json too; counted as a seed it would lower the arm's mean cost."""
    path = write_experiment(tmp_path / "e", arms=("electra",), seeds=(1, 2))
    write_cell(path, "electra", 1, flops=1e12)
    write_cell(path, "electra", 2, {}, flops=1e10, failed="the gradient was not a finite number")
    found = summarize(path)
    assert found.rows["electra"]["flops_paper"].by_seed == {1: 1e12}
    assert build_table(4, [found]).notes == ("e: electra: FAILED: seed 2: the gradient was not a finite number",)
