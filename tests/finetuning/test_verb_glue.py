"""`electra glue`: what it asks the experiment for, and what it prints and writes of what came of it."""

import json
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.command import Electra
from tests.finetuning.summaries import summary, task_summary
from tests.tasks.glue_samples import labels, write_glue

from electra_trainer.experiments import cell as folders
from electra_trainer.experiments.summary import Summary
from electra_trainer.tasks.glue_tasks import PAPER, ROWS, GlueTask


@dataclass
class Experiment:
    """An experiment that trains nothing: task k scores 0.6 + 0.01 k, and every test set is predicted with the first label."""

    plans: list[Any] = field(default_factory=list)
    unfinished: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    def run_plan(self, plan: Any, data: Any = None) -> Summary:
        self.plans.append(plan)
        found: list[Any] = []
        for k, source in enumerate(plan.tasks):
            data = source.load()
            for split, examples in data.test.items():
                said = {"value": 2.5} if source.name == "stsb" else {"label": labels(source.name)[0]}
                for seed in plan.seeds:
                    path = plan.request.out / "cells" / source.name / f"seed-{seed}/predictions" / f"{split}.jsonl"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text((json.dumps(said) + "\n") * len(examples))
            metrics = [f"{split}/{name}" for split in data.dev for name in ROWS[source.name].metrics]
            baselines = {"untrained": (0.52, "the untrained encoder"), "tf_idf": (0.61, "TF-IDF")}
            done = () if source.name in self.unfinished else plan.seeds
            found.append(
                task_summary(
                    source.name,
                    {name: dict.fromkeys(done, 0.6 + 0.01 * k) for name in metrics},
                    baselines=baselines if plan.request.baselines else {},
                    notes=(*data.notes, "TF-IDF learned from 20 of the 24 rows"),
                    doubts=("dev: collapsed.",),
                    failed={9: "no number."},
                )
            )
        seeds = (*plan.seeds, 4) if plan.request.baselines else plan.seeds
        return summary(*found, recipe=plan.request.recipe, path=plan.request.out, seeds=seeds)

    def exists(self, out: Path) -> bool:
        return bool(self.declared)

    def read(self, out: Path) -> Any:
        return SimpleNamespace(rows=dict.fromkeys(self.declared))


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    made = Experiment()
    module = ModuleType("electra_trainer.finetuning.experiment")
    vars(module).update({"Plan": SimpleNamespace, "run_plan": made.run_plan})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(folders, "exists", made.exists)
    monkeypatch.setattr(folders, "read_declared", made.read)
    return made


def test_the_papers_eight(experiment: Experiment, electra: Electra, tmp_path: Path) -> None:
    """Every flag reaches the plan; the table, the floors and the notes are printed."""
    folder = write_glue(tmp_path / "glue")
    code, out, _ = electra(
        "glue", "runs/mine", "--data", folder, "--seeds", "2", "--out", tmp_path / "exp", "--recipe", "released", "--epochs", "1",
        "--baselines", "--limit", "20", "--parallel", "2", "--device", "cpu",
    )  # fmt: skip
    assert code == 0
    [plan] = experiment.plans
    asked = plan.request
    assert plan.tasks == tuple(GlueTask(folder=str(folder), task=name, limit=20) for name in PAPER)
    assert (asked.model, asked.recipe, asked.given, plan.seeds, asked.baselines) == (
        "runs/mine",
        "released",
        {"epochs": 1.0},
        (1, 2),
        True,
    )
    assert (asked.out, asked.device, asked.parallel, asked.quiet) == (tmp_path / "exp", "cpu", 2, False)
    spaced = " ".join(out.split())
    assert "median of 2 60.0 61.0 62.0 63.0 64.0 65.0 66.0 67.0 63.5" in spaced
    assert "the untrained encoder 52.0" in spaced and "TF-IDF 61.0" in spaced
    for line in (
        "CoLA DOES NOT BEAT TF-IDF: 60.0 against 61.0.",
        "SST-2 DOES NOT BEAT TF-IDF: 61.0 against 61.0.",
        "MNLI: trained on 20 of these 24 rows (--limit).",
        "RTE: TF-IDF learned from 20 of the 24 rows",
        "RTE: FAILED: seed 9: no number.",
        "RTE: missing: seed 4.",
        "RTE: DOUBTFUL: seed 2: dev: collapsed.",
    ):
        assert f"{line}\n" in out
    assert "| median of 2 | 60.0 | 61.0 |" in (tmp_path / "exp/glue.md").read_text()
    assert out.endswith(f"{tmp_path / 'exp/glue.md'}\n") and "zip" not in out


def test_the_archive(experiment: Experiment, electra: Electra, tmp_path: Path) -> None:
    """From the best runs; notes on it are printed; the experiment's folder is where it is put."""
    folder = write_glue(tmp_path / "glue")
    code, out, _ = electra(
        "glue", "m", "--data", folder, "--seeds", "2,", "--out", tmp_path / "exp", "--predict", "--quiet"
    )
    assert code == 0 and experiment.plans[0].seeds == (2,)
    with zipfile.ZipFile(tmp_path / "exp/submission.zip") as file:
        assert len(file.namelist()) == 11 and file.read("STS-B.tsv").startswith(b"index\tprediction\n0\t2.5000\n")
    assert f"{tmp_path / 'exp/submission.zip'}: the best of each task's seeds on dev" in out
    assert f"  RTE.tsv: from {tmp_path / 'exp/cells/rte/seed-2'}" in out
    assert "  WNLI.tsv: NOT PREDICTED: '0' for every row" in out
    words = ("glue", "m", "--data", folder, "--tasks", "mnli,ax", "--out", tmp_path / "two", "--predict")
    code, _, err = electra(*words)
    assert code == 66 and "missing would be CoLA.tsv (cola is not trained), SST-2.tsv" in err and "AX.tsv" not in err
    assert len(experiment.plans) == 1  # said before anything is trained


def test_an_archive_of_what_was_trained_before(experiment: Experiment, electra: Electra, tmp_path: Path) -> None:
    """Tasks that the experiment has already are counted in; one whose seeds all failed is not."""
    folder = write_glue(tmp_path / "glue")
    experiment.declared, experiment.unfinished = tuple(name for name in PAPER if name != "rte"), ("rte",)
    code, _, err = electra("glue", "m", "--data", folder, "--tasks", "rte", "--out", tmp_path / "exp", "--predict")
    assert code == 66 and len(experiment.plans) == 1 and "RTE.tsv (rte is not trained)" in err


def test_json(experiment: Experiment, electra: Electra, tmp_path: Path) -> None:
    folder = write_glue(tmp_path / "glue", ["cola", "sst2", "wnli"])
    code, out, _ = electra(
        "glue", "m", "--data", folder, "--tasks", "cola,sst2,wnli", "--out", tmp_path / "exp", "--json"
    )
    found = json.loads(out)
    assert code == 0 and found["scores"] == pytest.approx({"glue/cola": 0.6, "glue/sst": 0.61, "glue/wnli": 0.62})
    assert found["zip"] is None and found["summary"] == str(tmp_path / "exp/summary.json")
    assert experiment.plans[0].request.json
    assert "CoLA: 24 of 8,551 training rows." in found["notes"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--tasks", "cola,mnil"], 78, "--tasks mnil: unknown. Did you mean 'mnli'?"),
        (["--tasks", "ax"], 78, "ax: has no training set; the model of mnli predicts it. Add mnli to --tasks."),
        (["--tasks", "cola,qqp"], 66, "QQP/train.tsv: no such file. "),
        (["--tasks", "cola", "--seeds", "0"], 78, "--seeds '0': expected how many seeds, from 1 to 1000"),
        (["--tasks", "cola", "--limit", "0"], 78, "--limit 0: expected at least 1 training row."),
    ],
)
def test_impossible_requests_are_refused_before_training(
    words: list[str], code: int, message: str, experiment: Experiment, electra: Electra, tmp_path: Path
) -> None:
    folder = write_glue(tmp_path / "glue", ["cola"])
    found, _, err = electra("glue", "m", "--data", folder, "--out", tmp_path / "exp", *words)
    assert found == code and message in err and not experiment.plans
