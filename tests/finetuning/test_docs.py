"""docs/finetuning.md and classify.md: their Python runs word for word, and does what the pages say."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.finetuning.toy import write_model

from electra_trainer.cli.main import main
from electra_trainer.tasks.baselines import text_baselines
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.own_files import OwnTask

DOCS = Path(__file__).resolve().parents[2] / "docs"
(FINETUNING,), (TF_IDF, SERVICE, _) = (
    re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(encoding="utf-8"), re.S)
    for name in ("finetuning.md", "classify.md")
)


@pytest.mark.slow
def test_the_service_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    from fastapi.testclient import TestClient

    assert len([line for line in SERVICE.splitlines() if line]) <= 15
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "messages.csv", rows(40))
    few = ["--seeds", "1", "--epochs", "2", "--max-length", "32", "--parallel", "1"]
    words = [write_encoder(tmp_path / "encoder", block="modern"), "--train", "messages.csv", "--out", "exp/messages"]
    assert main(["finetune", *map(str, words), *few]) == 0
    table = tmp_path / "exp/messages/model/electra_task.json"
    kept = json.loads(table.read_text())
    kept["reports"]["folds"]["certain"] = [[0.3, 0.6], [0.505, 0.93]]
    table.write_text(json.dumps(kept))
    names: dict[str, Any] = {}
    exec(compile(SERVICE, "service.py", "exec"), names)
    client = TestClient(names["app"])
    texts = ["the red apple", "we saw the old hammer"]
    answer = client.post("/classify", json=texts).json()
    for found, expected in zip(answer, names["model"].predict(texts), strict=True):
        assert found["label"] == expected["label"]
        assert found["probability"] == max(expected["probabilities"].values())
        assert found["unsure"] == (found["probability"] < 0.505)
    for refused in ([], [""], ["the red apple", " \n"], "the red apple", ["a"] * 101, ["a" * 5001], [None]):
        assert client.post("/classify", json=refused).status_code == 422, refused
    for half, where in ((b'["a", "a \\ud83d b"]', [1]), (b'"\\ud83d"', []), (b'[["\\ud83d"]]', [0])):
        (why,) = client.post("/classify", content=half, headers={"Content-Type": "application/json"}).json()["detail"]
        assert why["loc"] == ["body", *where] and "Input should be a valid " in why["msg"]


def test_tf_idf_of_the_page_is_the_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "messages.csv", rows(40), ("message", "category"))
    names: dict[str, Any] = {}
    exec(compile(TF_IDF, "tf_idf.py", "exec"), names)
    assert (tmp_path / "messages.joblib").is_file()
    train = OwnTask(train=tmp_path / "messages.csv").load().train
    texts, model = [text for text, _ in rows(140)[40:]], names["model"]
    ours = text_baselines(train, "label")["tf_idf"].predict([TextExample(text=text) for text in texts])
    assert [one["label"] for one in ours] == model.predict(texts).tolist()
    shares = model.predict_proba(texts)
    assert np.abs(shares[:, 0] - [one["probabilities"]["fruit"] for one in ours]).max() < 0.05


@pytest.mark.slow
def test_the_python_of_fine_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "runs" / "mine")
    write_csv(tmp_path / "reviews.csv", rows(80))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("electra_trainer.experiments.engine.cores", lambda: 1)  # no further processes
    short = FINETUNING.replace("seeds=3", "seeds=3, epochs=1, quiet=True")
    exec(compile(short, "finetuning.py", "exec"), {"__name__": "page"})
    assert (tmp_path / "exp" / "reviews" / "model" / "config.json").is_file()
