"""`electra squad`, `electra answer` and `electra predict` of questions: what they hand on, what they print, and what they refuse."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import squad_small
from tests.tasks.test_question_answering import squad_file

from electra_trainer.cli.main import main
from electra_trainer.finetuning.model_folder import Finetuned
from electra_trainer.finetuning.run import build_network
from electra_trainer.tasks.questions import QuestionAnswering, SquadTask
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.texts import Classification


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of the experiment, which does nothing here."""
    plans: list[Any] = []

    def run_plan(plan: Any, *, data: Any) -> object:
        plans.append(plan)
        plan.request.out.mkdir()
        return types.SimpleNamespace(
            text=lambda *after: "\n".join(["the table", *after]), as_json=lambda: {"version": 1}
        )

    def export_best(source: Any, data: Any, *, model: str, out: Path) -> Any:
        return types.SimpleNamespace(model=out / "model", confusion={}, predictions=None)

    module = types.ModuleType("electra_trainer.finetuning.experiment")
    vars(module).update(Plan=types.SimpleNamespace, run_plan=run_plan, export_best=export_best)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("electra_trainer.pretrained.source.located", Path)  # the model is nowhere
    return plans


def test_squad_plans_what_was_asked(tmp_path: Path, planned: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    train, dev = squad_file(tmp_path, "train.json", 4), squad_file(tmp_path, "dev.json", 2, start=7)
    words = ["--train", str(train), "--dev", str(dev), "--version", "1", "--out", str(tmp_path / "exp"), "--seeds", "3"]
    assert main(["squad", "runs/x", *words, "--limit", "7", "--baselines", "--learning-rate", "1e-3"]) == 0
    (plan,) = planned
    assert plan.tasks == (SquadTask(train=train, dev=dev, limit=7),)
    assert (plan.request.model, plan.request.recipe, plan.seeds, plan.request.baselines, plan.keep_weights) == (
        "runs/x",
        "auto",
        (1, 2, 3),
        True,
        True,
    )
    assert plan.request.given == {"learning_rate": 1e-3} and plan.tasks[0].max_length == 512
    printed = capsys.readouterr().out
    assert "the table" in printed and "7 of 12 training questions." in printed
    assert f"electra answer {tmp_path / 'exp' / 'model'}" in printed


def test_squad_released_and_split(tmp_path: Path, planned: list[Any]) -> None:
    train = squad_file(tmp_path, "train.json", 4)
    words = ["--train", str(train), "--split", "0.5", "--version", "2", "--out", str(tmp_path / "exp")]
    more = ["--max-length", "64", "--null-threshold", "-1.5"]
    assert main(["squad", "runs/x", *words, "--recipe", "released", "--head", "independent", *more]) == 0
    (plan,) = planned
    asked = SquadTask(train=train, split=0.5, version=2, head="independent", follow="released", null_threshold=-1.5)
    assert plan.tasks == (asked,) and asked.task.threshold == -1.5
    assert plan.request.given == {"max_length": 64} and plan.seeds == (1,)


def test_squad_in_json(tmp_path: Path, planned: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    train = squad_file(tmp_path, "train.json", 4)
    words = ["--train", str(train), "--split", "0.5", "--version", "1", "--out", str(tmp_path / "exp"), "--json"]
    assert main(["squad", "runs/x", *words]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["model"], said["summary"]) == (str(tmp_path / "exp" / "model"), {"version": 1})
    assert any("split by article" in note for note in said["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--version", "1"], "--dev FILE or --split"),
        (["--version", "1", "--split", "2"], "split = 2.0"),
        (["--version", "1", "--split", "0.5", "--null-threshold", "0"], "--null-threshold: SQuAD 1.1 always"),
        (["--version", "2", "--split", "0.5", "--null-threshold", "inf"], "null_threshold = inf"),
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


TASKS = {"model": QuestionAnswering(version=2, width=8), "always": QuestionAnswering(version=1, width=8)}
CONTEXT = "The chef cooked the meal. A guest ate it at noon, and nobody else was there."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that reads back as a network which has learned nothing; its name says the task."""
    source = squad_small.source()

    def load_finetuned(path: Path) -> Finetuned:
        task = Classification(labels=("a", "b")) if path.name == "labels" else TASKS[path.name]
        network = build_network(source, task, Recipe(), seed=1)
        return Finetuned(network=network, task=task, text=source.text(48), columns=None, pair=False, table={})

    monkeypatch.setattr("electra_trainer.finetuning.model_folder.load_finetuned", load_finetuned)
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
    assert len(shown) == 2
    assert len(lines) == 2 or lines[0].startswith("no answer in this text")


def test_an_answer_from_a_text_that_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["answer", str(folder), "--context", "Шеф варил ужин", "--question", "Who ate?"]) == 0
    assert "of the letters are unreadable ([UNK]), for example 'Шеф', 'варил', 'ужин'" in capsys.readouterr().err


def test_the_threshold_decides_whether_there_is_an_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["answer", str(folder), "--context", CONTEXT, "--question", "Who ate?"]
    assert main([*words, "--json"]) == 0
    score = json.loads(capsys.readouterr().out)["no_answer_score"]
    for threshold, answered in ((score, True), (score - 0.01, False)):
        assert main([*words, "--json", "--null-threshold", str(threshold)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["text"] == (said["nbest"][0]["text"] if answered else "")
        assert (said["no_answer_score"], said["null_threshold"]) == (score, threshold)
    assert main([*words, "--null-threshold", "-1000"]) == 0
    assert f"no answer in this text (its score is {score:.2f}, the threshold -1000.00)" in capsys.readouterr().out


def test_predict_writes_what_the_official_scripts_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = squad_file(folder.parent, "asked.json", 2)
    table = json.loads(asked.read_text())
    for entry in [one for article in table["data"] for page in article["paragraphs"] for one in page["qas"]]:
        del entry["answers"]  # as in a test set
    asked.write_text(json.dumps(table))
    out = folder.parent / "said.json"
    assert main(["predict", str(folder), str(asked), "--out", str(out), "--null-threshold", "1000"]) == 0
    beside = folder.parent / "said-no-answer.json"
    assert capsys.readouterr().out.split() == [str(out), str(beside)]
    texts, scores = json.loads(out.read_text()), json.loads(beside.read_text())
    assert list(texts) == list(scores) == [f"{article}-{number}" for article in (0, 1) for number in range(3)]
    assert all(text and text in f"page {name[0]} says abc." for name, text in texts.items())
    between = sorted(scores.values())[2]
    assert main(["predict", str(folder), str(asked), "--null-threshold", str(between), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["id"]: one["no_answer_score"] for one in lines} == scores
    assert [one["text"] for one in lines] == [text if scores[name] <= between else "" for name, text in texts.items()]


def test_predict_reads_rows_of_the_hub(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": 7, "context": CONTEXT, "question": "Who?"},
        {"id": "b", "context": CONTEXT, "question": "Who?", "answers": None},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(["predict", str(folder.with_name("always")), str(tmp_path / "rows.jsonl")]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["7", "b"]


def test_predict_where_every_question_is_answered(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked, always = squad_file(folder.parent, "asked.json", 1), folder.with_name("always")
    assert main(["predict", str(always), str(asked)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert main(["predict", str(always), str(asked), "--out", str(folder.parent / "said.json")]) == 0
    assert json.loads((folder.parent / "said.json").read_text()) == printed and all(printed.values())
    assert not (folder.parent / "said-no-answer.json").exists(), "1.1 has no such scores"


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("always", ["--null-threshold", "0"], "--null-threshold 0: squad"),
        ("labels", ["--null-threshold", "0"], "--null-threshold 0: classification"),
        ("model", ["--out", "said.csv"], "predictions are not written as .csv. Name it said.json"),
        ("model", ["--text", "body"], "--text body"),
    ],
)
def test_predict_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, more: list[str], message: str
) -> None:
    asked = squad_file(folder.parent, "asked.json", 1)
    assert main(["predict", str(folder.with_name(name)), str(asked), *more]) == 78
    assert message in capsys.readouterr().err


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
