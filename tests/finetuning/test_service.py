"""docs/classify.md: its service runs word for word, and answers and refuses what the page says."""

import json
import re
from pathlib import Path

import pytest
from tests.finetuning.own_files import rows, write_csv, write_encoder

from electra_trainer.cli.main import main

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "classify.md").read_text(encoding="utf-8")
SERVICE = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "FastAPI" in block)


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
    names: dict[str, object] = {}
    exec(compile(SERVICE, "service.py", "exec"), names)
    client = TestClient(names["app"])  # type: ignore[arg-type]
    answer = client.post("/classify", json=["the red apple", "we saw the old hammer"])
    assert answer.status_code == 200
    for found, expected in zip(
        answer.json(), names["model"].predict(["the red apple", "we saw the old hammer"]), strict=True
    ):  # type: ignore[attr-defined]
        assert found["label"] == expected["label"]
        assert found["probability"] == max(expected["probabilities"].values())
        assert found["unsure"] == (found["probability"] < 0.505)
    for refused in ([], [""], ["the red apple", " \n"], "the red apple", ["a"] * 101, ["a" * 5001], [None]):
        assert client.post("/classify", json=refused).status_code == 422, refused
    for half in (b'["a \\ud83d b"]', b'"\\ud83d"', b'[["\\ud83d"]]'):
        assert "\\ud83d" in client.post("/classify", content=half).json()["detail"]
