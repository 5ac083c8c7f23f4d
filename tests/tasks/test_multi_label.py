"""Several labels for one text: from a column with a separator, or columns of 0 and 1, to a folder whose probabilities transformers gives too."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.finetuning.model_folder import load_finetuned
from electra_trainer.tasks import baselines
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.multi_label import MultiLabel, MultiLabelTask, best_threshold


def labelled(count: int) -> list[tuple[str, str]]:
    """(text, labels): one for fruit or tool, one for the word "red"; some have none."""
    found = [(text, [name] * (name == "fruit") + ["red"] * ("red" in text)) for text, name in rows(count)]
    return [(text, "; ".join(labels)) for text, labels in found]


def test_from_a_file_to_transformers(electra: Electra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines too; `predict` writes the labels at the threshold, scores them as the run did, and adds no `probability`."""
    transformers = pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", labelled(80))
    write_csv(tmp_path / "test.csv", labelled(110)[80:])
    code, out, err = electra(
        "finetune", "encoder", "--train", "train.csv", "--test", "test.csv", "--label-separator", ";", "--out", "exp",
        "--seeds", "1", "--epochs", "2", "--device", "cpu", "--baselines", "--parallel", "1", "--precision", "fp32", "--pooling", "cls",
    )  # fmt: skip
    assert code == 0, err
    assert "2 labels, several a text, in 72 training rows" in out and "TF-IDF" in out
    result = json.loads((tmp_path / "exp/cells/multi-label/seed-1/result.json").read_text())
    model = load_finetuned("exp")
    assert isinstance(model.task, MultiLabel) and model.task.threshold == result["scores"]["dev/threshold"]
    assert result["reports"]["test"]["labels"] == ["fruit", "red"] and "test/threshold" not in result["scores"]
    code, out, err = electra("predict", "exp", "test.csv", "--device", "cpu")
    own = f"F1 of all labels: {100 * result['scores']['test/micro_f1']:.1f} on 30 rows of test.csv by column 'label' ("
    assert own in err
    write_csv(tmp_path / "empty.csv", [(text, "") for text, _ in labelled(30)])
    assert "not scored: column 'label' is empty." in electra("predict", "exp", "empty.csv", "--device", "cpu")[2]
    said = list(csv.DictReader(out.splitlines()))
    assert list(said[0]) == ["text", "label", "prediction", "probability_fruit", "probability_red"]
    for row in said:
        assert row["prediction"] == ";".join(
            name for name in ("fruit", "red") if float(row[f"probability_{name}"]) >= model.task.threshold
        )
    ask = transformers.pipeline("text-classification", model="exp/model", top_k=None)
    theirs = {one["label"]: one["score"] for one in ask([said[0]["text"]])[0]}
    assert theirs == pytest.approx({name: float(said[0][f"probability_{name}"]) for name in theirs}, abs=2e-6)
    assert "top_k=None" in (tmp_path / "exp/model/README.md").read_text()


def test_columns_of_0_and_1_and_what_is_wrong(tmp_path: Path) -> None:
    table = [(text, str(int("fruit" in labels)), "1.0" if "red" in labels else "0") for text, labels in labelled(60)]
    header = ("text", "fruit", "red")
    train = write_csv(tmp_path / "train.csv", table, header)
    split = write_csv(tmp_path / "split.csv", labelled(60))
    one, two = (
        MultiLabelTask(train=train, labels="fruit, red", folds=False).load(),
        MultiLabelTask(train=split, label_separator=";", folds=False).load(),
    )
    assert one.task == two.task
    for mine, other in ((one.train, two.train), (one.dev["dev"], two.dev["dev"])):
        assert [(a.text, a.labels) for a in mine] == [(b.text, b.labels) for b in other]
    kept = {label for example in one.train for label in example.labels}
    assert kept == {"fruit", "red"} and len(one.dev["dev"]) == 6
    odd = write_csv(tmp_path / "odd.csv", [*table, ("a plum", "2", "0")], header)
    listed = write_csv(tmp_path / "listed.csv", [*labelled(60), ("a plum", "['red', 'fruit']")])
    new = write_csv(tmp_path / "new.csv", [*labelled(9), ("a plum", "red;blue")])
    for said, make in (
        ("odd.csv:62: column 'fruit' holds '2', expected 0 or 1", lambda: MultiLabelTask(train=odd, labels="fruit,red").load()),
        ("--labels blue: ", lambda: MultiLabelTask(train=train, labels="fruit,blue").load()),
        ("label 'blue' in column 'label' never occurs", lambda: MultiLabelTask(train=split, dev=new, label_separator=";").load()),
        ("listed.csv:62: column 'label' holds \"['red', 'fruit']\", a printed list", lambda: MultiLabelTask(train=listed, label_separator=",").load()),
        ("in one column or in several", lambda: MultiLabelTask(train=split, labels="fruit", label_separator=";")),
    ):  # fmt: skip
        with pytest.raises((ConfigError, DataError), match=re.escape(said)):
            make()


def test_the_threshold_is_the_best_of_all() -> None:
    random = np.random.default_rng(0)
    shares = random.random((30, 3)).round(2)
    truth = shares + random.normal(0, 0.3, shares.shape) > 0.6
    found = f1_score(truth, shares >= best_threshold(truth.reshape(-1, 1), shares.reshape(-1, 1)), average="micro")
    assert found == max(f1_score(truth, shares >= at, average="micro") for at in np.arange(0, 1, 0.005))
    assert best_threshold(np.zeros((2, 2), dtype=bool), shares[:2, :2]) == 0.5
    assert best_threshold(np.zeros((4, 1), dtype=bool), shares[:2, :2].reshape(-1, 1)) == 0.5
    macro = f1_score(truth, shares >= best_threshold(truth, shares), average="macro")
    assert macro == max(f1_score(truth, shares >= at, average="macro") for at in np.arange(0, 1.01, 0.005))
    task = MultiLabel(labels=("a", "b", "c"))
    examples = [TextExample(text="x", labels=tuple(np.array(list("abc"))[row])) for row in truth]
    raw = shares.tolist()
    scores = task.score(examples, task.at_threshold(raw))
    settled = task.settled({"dev": scores})
    again = settled.score(examples, settled.at_threshold(raw))
    assert again == {name: scores[name] for name in ("micro_f1", "macro_f1")} and scores["micro_f1"] == found
    assert replace(settled, threshold=1.1).at_threshold(raw)[0]["labels"] == []
    assert replace(task, metrics=("macro_f1", "micro_f1")).score(examples, task.at_threshold(raw))["macro_f1"] == macro


def test_one_label_alone_is_scored_where_it_is_true() -> None:
    """Not the texts without it; and a label that every text has is predicted for every text."""
    task = MultiLabel(labels=("toxic",), threshold=0.5)
    examples = [TextExample(text=f"text {row}", labels=("toxic",) * (row < 2)) for row in range(20)]
    found = task.at_threshold([[0.9]] + [[0.1]] * 19)
    assert task.score(examples, found) == {"micro_f1": pytest.approx(2 / 3), "macro_f1": pytest.approx(2 / 3)}
    report = task.report(examples, found)
    assert (report.support, report.precision, report.recall) == ((2,), (1.0,), (0.5,))
    assert task.report(examples[2:], found[2:]).f1 == (0.0,) and task.score(examples[2:], found[2:])["micro_f1"] == 0
    all_toxic = task.baselines(examples[:2])["tf_idf"].predict(examples[2:4])
    assert [one["labels"] for one in all_toxic] == [["toxic"]] * 2
    assert task.shares([{"probabilities": {"toxic": 1.0}}]).min() == 2.0**-24  # a sigmoid that fp32 rounds to 1


def test_the_baseline_s_penalty_is_chosen_on_training_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weakest where a word decides on a label, a stronger one where the labels are noise."""
    random = np.random.default_rng(0)
    used: list[float] = []
    fit = LogisticRegression.fit
    monkeypatch.setattr(LogisticRegression, "fit", lambda model, *data: (used.append(model.C), fit(model, *data))[1])
    penalties = []
    for noise in (True, False):
        truth = random.random((60, 2)) < 0.5
        shown = random.random((60, 2)) < 0.5 if noise else truth
        texts = [f"{'red' if red else 'blue'} {'big' if big else 'small'} {n}" for n, (red, big) in enumerate(shown)]
        train = [
            TextExample(text=text, labels=tuple(np.array(["a", "b"])[row]))
            for text, row in zip(texts, truth, strict=True)
        ]
        found = MultiLabel(labels=("a", "b"), threshold=0.5).baselines(train)["tf_idf"].predict(train)
        penalties.append(used[-1])
    assert penalties[0] < penalties[1] == 100.0
    assert [set(one["labels"]) for one in found] == [set(one.labels or ()) for one in train]
    monkeypatch.setattr(baselines, "LEARNED_ROWS", 20)
    sizes: list[int] = []
    monkeypatch.setattr(
        LogisticRegression, "fit", lambda model, *data: (sizes.append(len(data[1])), fit(model, *data))[1]
    )
    MultiLabel(labels=("a", "b"), threshold=0.5).baselines(train)["tf_idf"].predict(train)
    assert max(sizes) == 20
