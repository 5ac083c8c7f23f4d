"""`electra squad` and `electra answer`: what they hand on, what they print, and what they refuse."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.finetune import squad_small
from tests.finetune.test_question_answering import squad_file

from electra_trainer.cli import main
from electra_trainer.finetune.classification import Classification
from electra_trainer.finetune.network import build_network
from electra_trainer.finetune.predict import predict
from electra_trainer.finetune.question_answering import QuestionAnswering
from electra_trainer.finetune.recipe import Recipe
from electra_trainer.finetune.squad import Squad
from electra_trainer.train.device import choose_device


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is handed to the experiment, which does nothing here."""
    plans: list[Any] = []

    @dataclass(frozen=True, kw_only=True)
    class Plan:
        model: str
        tasks: tuple[Any, ...]
        recipe: str
        changes: dict[str, object]
        seeds: tuple[int, ...]
        floors: bool
        keep: str

    def run_plan(plan: Plan, *, out: Path, device: str, parallel: int | None, quiet: bool) -> None:
        plans.append(plan)
        out.mkdir()
        (out / "summary.md").write_text("the table\n")

    module = types.ModuleType("electra_trainer.finetune.experiment")
    vars(module).update(Plan=Plan, run_plan=run_plan)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def hand_on_best(source: Any, data: Any, *, model: str, out: Path) -> Any:
        return types.SimpleNamespace(model=out / "model")

    handing = types.ModuleType("electra_trainer.finetune.hand_on")
    vars(handing).update(hand_on_best=hand_on_best)
    monkeypatch.setitem(sys.modules, handing.__name__, handing)
    return plans


def test_squad_plans_what_was_asked(tmp_path: Path, planned: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    train, dev = squad_file(tmp_path, "train.json", 4), squad_file(tmp_path, "dev.json", 2, start=7)
    words = ["--train", str(train), "--dev", str(dev), "--version", "1", "--out", str(tmp_path / "exp"), "--seeds", "3"]
    assert main(["squad", "runs/x", *words, "--limit", "7", "--floors", "--learning-rate", "1e-3"]) == 0
    (plan,) = planned
    assert plan.tasks == (Squad(train=train, dev=dev, limit=7),)
    assert (plan.model, plan.recipe, plan.seeds, plan.floors, plan.keep) == ("runs/x", "paper", (1, 2, 3), True, "best")
    assert plan.changes == {"max_length": 512, "learning_rate": 1e-3}
    printed = capsys.readouterr().out
    assert "the table" in printed and "7 of 12 training questions." in printed
    assert f"electra answer {tmp_path / 'exp' / 'model'}" in printed
    assert (
        "most words of the question, dev: f1 40.0, exact_match 0.0" in printed
    )  # "page 7 says abc." has 5 words, 1 is right


def test_squad_released_and_split(tmp_path: Path, planned: list[Any]) -> None:
    train = squad_file(tmp_path, "train.json", 4)
    words = ["--train", str(train), "--split", "0.5", "--version", "2", "--out", str(tmp_path / "exp")]
    assert main(["squad", "runs/x", *words, "--recipe", "released", "--head", "independent", "--max-length", "64"]) == 0
    (plan,) = planned
    assert plan.tasks == (Squad(train=train, split=0.5, version=2, head="independent", follow="released"),)
    assert plan.changes == {"max_length": 64} and plan.seeds == (1,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--version", "1"], "--dev FILE or --split"),
        (["--version", "1", "--split", "2"], "split = 2.0"),
        (["--version", "1", "--split", "0.5", "--seeds", "x"], "--seeds 'x'"),
    ],
)
def test_squad_refuses(
    tmp_path: Path, planned: list[Any], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    train = squad_file(tmp_path, "train.json", 4)
    assert main(["squad", "runs/x", "--train", str(train), "--out", str(tmp_path / "exp"), *words]) == 78
    assert message in capsys.readouterr().err
    assert not planned


CONTEXT = "The chef cooked the meal. A guest ate it at noon, and nobody else was there."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that reads back as a network which has learned nothing; its name says the task."""
    source = squad_small.source()

    def load_finetuned(path: Path) -> Any:
        task = Classification(labels=("a", "b")) if path.name == "labels" else QuestionAnswering(version=2, width=8)
        network = build_network(source, task, Recipe(), seed=1)

        def predict_examples(examples: Any, *, device: str) -> Any:
            return predict(
                network, task, examples, text=source.text(48), device=choose_device(device), precision="fp32"
            )

        return types.SimpleNamespace(task=task, predict_examples=predict_examples)

    module = types.ModuleType("electra_trainer.finetune.folder")
    vars(module).update(load_finetuned=load_finetuned)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return tmp_path / "model"


def test_answer_in_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["answer", str(folder), "--question", "Who ate?", "--json", "--top", "3"]
    assert main([*words, "--context", CONTEXT]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["nbest"]) == 3
    assert all(CONTEXT[one["start"] : one["end"]] == one["text"] for one in said["nbest"])
    (folder.parent / "page.txt").write_text(CONTEXT)
    assert main([*words, "--context", f"@{folder.parent / 'page.txt'}"]) == 0
    assert json.loads(capsys.readouterr().out) == said


def test_answer_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer", str(folder), "--context", CONTEXT, "--question", "Who ate?", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if "%" in line]
    assert len(shown) == 2 and all("[" in line for line in shown)
    assert len(lines) == 2 or lines[0].startswith("no answer in this text")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"context": "@none.txt"}, 66, "none.txt: no such file"),
        ({"context": "  "}, 65, "holds no text"),
        ({"context": "a\udcffb"}, 65, "no UTF-8"),
        ({"question": " "}, 65, "--question ' ': expected one line of text"),
        ({"question": "who\udcff?"}, 65, "expected one line of text"),
        ({"top": "0"}, 78, "--top 0"),
        ({"folder": "labels"}, 78, "not to answer questions"),
    ],
)
def test_answer_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], code: int, message: str
) -> None:
    given = {"context": CONTEXT, "question": "Who?", "top": "1"} | {k: v for k, v in changes.items() if k != "folder"}
    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    assert main(["answer", str(folder.with_name(changes.get("folder", "model"))), *flags]) == code
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "page.txt").write_bytes(b"ab\xff")
    assert main(["answer", str(folder), "--context", f"@{folder.parent / 'page.txt'}", "--question", "Who?"]) == 65
    assert "is not UTF-8 (byte 2)" in capsys.readouterr().err


def test_sources_are_plain_values() -> None:
    assert asdict(Squad(train=Path("t"), split=0.5))["split"] == 0.5
