"""Small tables are cross-validated, and probabilities get one temperature, which the exported head holds."""

import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.finetuning.toy import without_times

from electra_trainer.api import load_finetuned
from electra_trainer.experiments.by_class import certain_from
from electra_trainer.experiments.cell import read_result
from electra_trainer.finetuning.model_folder import Finetuned
from electra_trainer.inspection.trackers import TRACKERS, Kind, send
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.tasks.calibration import at_temperature, calibrated, fitted_temperature
from electra_trainer.tasks.examples import TextExample, folds, same_text
from electra_trainer.tasks.multi_label import MultiLabel
from electra_trainer.tasks.texts import Classification

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(400, 3))
TRUTH = np.array([RANDOM.choice(3, p=p) for p in at_temperature(np.exp(LOGITS), 1.0)])
"""Classes drawn from the softmax of `LOGITS`."""
SURE = at_temperature(np.exp(LOGITS), 0.25)
"""Distributions of `LOGITS`, four times as sure."""


def test_each_text_is_in_one_fold_and_each_fold_has_its_share_of_every_class() -> None:
    examples = [TextExample(text=f"{'A ' if n % 3 else 'a'} {n % 60}", label="xyy"[n % 60 % 3]) for n in range(100)]
    found = folds(examples)
    assert len(found) == 5 and sorted(row for held in found for row in held) == [*range(100)]
    texts = [{same_text(examples[row]) for row in held} for held in found]
    assert sum(map(len, texts)) == len(set.union(*texts))
    for held in texts:
        share = Counter(
            one.label for one in {same_text(one): one for one in examples}.values() if same_text(one) in held
        )
        assert abs(2 * share["x"] - share["y"]) <= 3
    assert folds(examples[:6]) == (), "no class has five texts"


def test_the_temperature_has_the_least_log_loss() -> None:
    found = fitted_temperature(SURE, TRUTH)
    losses = {t: -np.log(at_temperature(SURE, t)[range(400), TRUTH]).mean() for t in np.arange(1.0, 10.0, 0.05)}
    assert found == pytest.approx(min(losses, key=losses.__getitem__), rel=0.05) == pytest.approx(4, rel=0.2)
    certain = np.array([[0.999, 0.001]] * 10)
    shares = at_temperature(certain, fitted_temperature(certain, np.zeros(10, dtype=int)))
    assert shares[0, 0] == pytest.approx(11 / 12, abs=1e-3), "ten right rows make nothing certain"


def test_calibration_is_judged_on_rows_that_did_not_fit_it() -> None:
    task, fold_E = Classification(labels=("a", "b", "c")), np.arange(400) % 5
    examples = [TextExample(text="", label="abc"[number]) for number in TRUTH]
    found, report, _ = calibrated(task, examples, task.with_shares(SURE), fold_E=fold_E, fitted=None)
    expected = []
    for number, (truth, fold) in enumerate(zip(TRUTH, fold_E, strict=True)):
        others = fitted_temperature(SURE[fold_E != fold], TRUTH[fold_E != fold])
        expected.append(-np.log(at_temperature(SURE[number : number + 1], others)[0, truth]))
    assert report.log_loss == pytest.approx(np.mean(expected)) and report.temperature and report.before
    assert report.before[0] > 0.2 > 0.08 > report.calibration_error
    assert task.shares(found) == pytest.approx(at_temperature(SURE, report.temperature))
    assert f"temperature of {report.temperature:.3g}, fitted on 400 held-out rows: " in report.calibrated()
    assert report.calibrated().endswith("No row is judged at a temperature that was fitted on it.")
    _, other, _ = calibrated(task, examples[:9], task.with_shares(SURE[:9]), fold_E=fold_E[:9], fitted=(2.0, 400))
    assert (other.temperature, other.fitted_rows) == (2.0, 400)


def test_several_labels_have_one_temperature_as_well() -> None:
    task, shares = MultiLabel(labels=("a", "b"), threshold=0.5), np.array([[0.9, 0.2], [0.4, 0.99]])
    found = task.with_shares(at_temperature(task.shares(task.at_threshold(shares.tolist())), 2.0))
    expected = torch.sigmoid(torch.logit(torch.tensor(shares)) / 2).tolist()
    assert [[*one["probabilities"].values()] for one in found] == [pytest.approx(one) for one in expected]


def test_the_probability_from_which_on_a_share_is_right() -> None:
    shares = RANDOM.random(300).round(2)
    right = RANDOM.random(300) < shares
    found = certain_from(shares, right)
    for wanted in (0.5, 0.6, 0.7, 0.8, 0.9):
        able = [p for p in np.unique(shares) if right[shares >= p].mean() >= wanted and (shares >= p).sum() >= 20]
        assert next((p for p, share in found if share >= wanted), None) == (min(able) if able else None)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("folds")
    write_encoder(work / "encoder")
    write_csv(work / "train.csv", [*rows(60), *rows(4)])
    write_csv(work / "new.csv", [(text,) for text, _ in rows(90)[60:]], ("text",))
    return work


ASKED = (
    "finetune encoder --train train.csv --predict new.csv --epochs 2 --device cpu --precision fp32 --out exp".split()
)


def test_all_rows_are_scored_and_all_are_learned(work: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exported head is that of the run on all rows, divided by the temperature; and what was lost is done again."""
    monkeypatch.chdir(work)
    code, out, err = electra(*ASKED)
    assert code == 0, err
    assert "each of the 64 rows is predicted by one of 5 models, which learns from rows with other" in out
    cell = work / "exp/cells/classification/seed-1"
    result, whole = read_result(cell), read_result(cell / "run")
    assert {path.name for path in cell.parent.iterdir()} == {"seed-1"} and whole.facts["rows"] == 64
    sizes = [read_result(cell / f"fold-{number}").facts["rows"] for number in range(1, 6)]
    assert sum(64 - size for size in sizes) == 64 == result.samples["folds/accuracy"].rows
    labels = [label for _, label in (*rows(60), *rows(4))]
    said = [json.loads(line) for line in (cell / "predictions/folds.jsonl").read_text().splitlines()]
    right = [one["label"] == label for one, label in zip(said, labels, strict=True)]
    assert result.scores["folds/accuracy"] == pytest.approx(np.mean(right))
    report = result.reports["folds"]
    assert report.temperature is not None and result.scores["folds/log_loss"] == report.log_loss
    weights = checkpoint.of_step(cell / "run/weights", origin=run_folder.RunFolder(cell / "run").origin).weights
    model = load_finetuned("exp")
    for name, tensor in model.network.head.state_dict().items():
        torch.testing.assert_close(tensor * report.temperature, weights[f"head.{name}"])
    assert "Expected calibration error (10 bins)" in (work / "exp/summary.md").read_text()
    _, out, _ = electra("predict", "exp", "new.csv", "--device", "cpu")
    assert out == (work / "exp/predictions.csv").read_text()
    sent: dict[str, list[tuple[int, dict[str, float]]]] = {}
    of = lambda run: SimpleNamespace(send=sent.setdefault(run.name, []).extend, finish=list)  # noqa: E731
    monkeypatch.setitem(TRACKERS, "none", Kind(of, "json", "", ""))  # type: ignore[arg-type]
    send(work / "exp", "none")
    assert len(sent) == 6 and len({rows[-1][1]["result/folds/accuracy"] for rows in sent.values()}) > 1
    assert sent["classification-seed-1"][-1][1]["result/folds/accuracy"] == result.scores["folds/accuracy"]
    before = without_times(cell / "result.json")
    (cell / "result.json").unlink()
    shutil.rmtree(cell / "fold-3")
    code, _, err = electra(*ASKED)
    assert code == 0 and "[8/8] done" in err and "[6/8]" not in err
    assert without_times(cell / "result.json") == before


def test_changed_rows_without_a_model_are_refused(
    work: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to train on from, so the remedy is to restore them."""
    monkeypatch.chdir(work)
    shutil.copy("train.csv", "old.csv")
    words = "finetune encoder --train old.csv --epochs 1 --device cpu --out old --seeds".split()
    assert electra(*words, "1")[0] == 0
    shutil.rmtree("old/model")
    write_csv(work / "old.csv", rows(60))
    _, _, err = electra(*words, "2")
    assert "old began with other rows or columns than old.csv: " in err and "To resume, restore what it" in err


def test_unsure_rows_are_marked(work: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    table = {"reports": {"folds": {"certain": [[0.3, 0.61], [0.52, 0.8], [0.7, 0.907]]}}}
    loaded = load_finetuned("exp")
    found = Finetuned(**{**vars(loaded), "table": {**loaded.table, **table}})
    monkeypatch.setattr("electra_trainer.finetuning.model_folder.load_finetuned", lambda _: found)
    code, out, err = electra("predict", "exp", "new.csv", "--accuracy", "0.75", "--device", "cpu")
    table_ = list(csv.DictReader(out.splitlines()))
    unsure = [row["unsure"] for row in table_]
    assert code == 0 and unsure == ["yes" if float(row["probability"]) < 0.52 else "no" for row in table_]
    assert f"{unsure.count('yes')} of 30 rows are below 0.52, the probability from which on 75 % of the held-out" in err
    _, out, _ = electra("predict", "exp", "new.csv", "--accuracy", "0.5", "--json")
    assert json.loads(out.splitlines()[0])["unsure"] is False
    code, out, err = electra("predict", "exp", "new.csv", "--accuracy", "0.95", "--device", "cpu")
    assert code == 0 and "no" not in {row["unsure"] for row in csv.DictReader(out.splitlines())} and "below" not in err
    assert "from 0.70 on 91 % of the held-out rows were right. Ask for at most 0.9, or" in err
    code, _, err = electra("predict", "exp", "new.csv", "--accuracy", "90")
    assert code == 78 and "expected a share" in err
