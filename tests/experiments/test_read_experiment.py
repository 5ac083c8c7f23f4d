"""Reading experiment folders: what is done, what is not, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.paper.experiments import write_cell, write_experiment

from electra_trainer.errors import DataError, ElectraError, MissingInputError
from electra_trainer.experiments.results import read_experiment
from electra_trainer.experiments.statistics import spread_of


def test_done_and_not_done(tmp_path: Path) -> None:
    path = write_experiment(tmp_path / "e")
    write_cell(path, "electra", 1, {"a": 1.0, "b": None, "c": float("nan")})
    write_cell(path, "electra", 3, {"a": 2.0})
    found = read_experiment(path)
    assert [cell.seed for cell in found.cells["electra"]] == [1, 3]
    assert found.cells["mlm"] == []
    assert [list(cell.metrics) for cell in found.cells["electra"]] == [["a"], ["a"]]  # null and nan are no measurements
    assert found.notes == ("e: electra: not done: seed 2.", "e: mlm: not done: seed 1, 2, 3.")
    result = spread_of([cell.metrics["a"] for cell in found.cells["electra"]])
    assert result is not None
    assert (result.mean, result.n) == (1.5, 2)
    assert result.sd == pytest.approx(0.5**0.5)
    assert spread_of([cell.metrics["a"] for cell in found.cells["mlm"]]) is None


def test_one_seed_has_no_spread() -> None:
    one = spread_of([3.0])
    assert one is not None and one.sd is None
    assert spread_of([]) is None


def test_a_seed_that_was_added_later_is_found(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, seeds=(1,))
    write_cell(path, "electra", 1)
    write_cell(path, "electra", 10)
    assert [cell.seed for cell in read_experiment(path).cells["electra"]] == [1, 10]


def test_the_configuration_that_ran_wins(tmp_path: Path) -> None:
    path = write_experiment(tmp_path)
    run = write_cell(path, "electra", 1)
    settings = json.loads((path / "experiment.json").read_text())["arms"]["electra"]
    settings["model"]["vocab_size"] = 777
    (run / "config.json").write_text(json.dumps(settings))
    config = read_experiment(path).configs["electra"]
    assert config is not None and config.model.vocab_size == 777


def test_a_foreign_configuration_is_a_note(tmp_path: Path) -> None:
    path = write_experiment(tmp_path)
    table = json.loads((path / "experiment.json").read_text())
    table["arms"]["electra"]["objective"] = {"kind": "of-somebody-else"}
    (path / "experiment.json").write_text(json.dumps(table))
    write_cell(path, "electra", 1)
    found = read_experiment(path)
    assert found.configs["electra"] is None
    assert any("of-somebody-else" in note for note in found.notes)
    assert len(found.cells["electra"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"arm": "mlm"}, {"seed": 2}, {"seed": "1"}, {"run": "../../elsewhere"}, {"run": 3}, {"metrics": []},
        {"metrics": {"a": "high"}}, {"metrics": {"a": True}}, {"flops_paper": None}, {"seconds": "long"}, {"steps": 10**400},
    ],
    ids=str,
)  # fmt: skip
def test_tampered_results_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_experiment(tmp_path)
    write_cell(path, "electra", 1, **({"metrics": change["metrics"]} if "metrics" in change else {}))
    file = path / "cells/electra/seed-1/result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=r"result\.json"):
        read_experiment(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"], ids=repr)
@pytest.mark.parametrize("name", ["experiment.json", "cells/electra/seed-1/result.json"])
def test_broken_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    path = write_experiment(tmp_path)
    write_cell(path, "electra", 1)
    (path / name).write_text(text)
    with pytest.raises(DataError, match=Path(name).name):
        read_experiment(path)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"arms": []}, {"arms": {"../x": {}}}, {"seeds": 3}, {"preset": None}, {"amount": "much"}],
    ids=str,
)
def test_wrong_experiments_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_experiment(tmp_path)
    table = json.loads((path / "experiment.json").read_text())
    (path / "experiment.json").write_text(json.dumps(table | change))
    with pytest.raises(DataError, match="experiment"):
        read_experiment(path)


def test_what_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        read_experiment(tmp_path / "nowhere")
    with pytest.raises(MissingInputError, match="electra compare"):
        read_experiment(tmp_path)
    assert issubclass(MissingInputError, ElectraError)


def test_a_failed_cell_is_no_finished_one(tmp_path: Path) -> None:
    """A run that diverged has a result.json too; counted as a seed it would lower the arm's mean cost."""
    path = write_experiment(tmp_path / "e", arms=("electra",), seeds=(1, 2))
    write_cell(path, "electra", 1, flops=1e12)
    write_cell(path, "electra", 2, {}, flops=1e10, failed="the gradient was not a finite number")
    found = read_experiment(path)
    assert [cell.seed for cell in found.cells["electra"]] == [1]
    assert found.notes == ("e: electra: seed 2 failed, and is left out: the gradient was not a finite number",)
