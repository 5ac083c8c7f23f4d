"""`electra squad`, `electra answer` and `electra predict` of questions: what they hand on, what they print, and what they refuse."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tests.command import Electra
from tests.tasks import squad_small
from tests.tasks.test_question_answering import squad_file

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
        text = {"text": lambda *after: "\n".join(["the table", *after]), "as_json": lambda: {"version": 1}}
        return types.SimpleNamespace(path=plan.request.out, classes={}, answer=(), **text)

    def export_best(source: Any, data: Any, *, summary: Any, model: str) -> tuple[Path, None]:
        return summary.path / "model", None

    module = types.ModuleType("electra_trainer.finetuning.experiment")
    vars(module).update(Plan=types.SimpleNamespace, run_plan=run_plan, export_best=export_best)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("electra_trainer.pretrained.located.located", Path)  # the model is nowhere
    return plans


def squad(electra: Electra, folder: Path, *words: object) -> tuple[int, str, str]:
    """The verb for a file of four articles."""
    train = squad_file(folder, "train.json", 4)
    return electra("squad", "runs/x", "--train", train, "--out", folder / "exp", *words)


def test_squad_plans_what_was_asked(tmp_path: Path, planned: list[Any], electra: Electra) -> None:
    dev = squad_file(tmp_path, "dev.json", 2, start=7)
    more = ("--baselines", "--learning-rate", "1e-3")
    code, out, _ = squad(electra, tmp_path, "--dev", dev, "--version", 1, "--seeds", 3, *more)
    (plan,) = planned
    asked = plan.request
    assert code == 0 and plan.tasks == (SquadTask(train=tmp_path / "train.json", dev=dev),)
    assert (asked.model, asked.recipe, plan.seeds) == ("runs/x", "auto", (1, 2, 3))
    assert asked.baselines and plan.keep_weights and plan.tasks[0].max_length == 512
    assert asked.given == {"learning_rate": 1e-3}
    assert "the table" in out
    assert f"electra answer {tmp_path / 'exp' / 'model'}" in out


def test_squad_released_and_split(tmp_path: Path, planned: list[Any], electra: Electra) -> None:
    words = ("--split", 0.5, "--version", 2, "--max-length", 64, "--null-threshold", -1.5)
    assert squad(electra, tmp_path, *words, "--recipe", "released", "--head", "independent")[0] == 0
    (plan,) = planned
    asked = SquadTask(
        train=tmp_path / "train.json", split=0.5, version=2, head="independent", follow="released", null_threshold=-1.5
    )
    assert plan.tasks == (asked,) and asked.task.threshold == -1.5
    assert plan.request.given == {"max_length": 64} and plan.seeds == (1,)


def test_squad_in_json(tmp_path: Path, planned: list[Any], electra: Electra) -> None:
    code, out, _ = squad(electra, tmp_path, "--split", 0.5, "--version", 1, "--json")
    said = json.loads(out)
    assert (code, said["model"], said["summary"]) == (0, str(tmp_path / "exp" / "model"), {"version": 1})
    assert any("split by article" in note for note in said["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--version 1", "--dev FILE or --split"),
        ("--version 1 --split 2", "split = 2.0"),
        ("--version 1 --split 0.5 --null-threshold 0", "--null-threshold: SQuAD 1.1 always"),
        ("--version 2 --split 0.5 --null-threshold inf", "null_threshold = inf"),
        ("--version 1 --split 0.5 --seeds x", "--seeds 'x'"),
    ],
)
def test_squad_refuses(tmp_path: Path, planned: list[Any], electra: Electra, words: str, message: str) -> None:
    code, _, err = squad(electra, tmp_path, *words.split())
    assert code == 78 and message in err and not planned


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


def asked_of(electra: Electra, folder: Path, *words: object, context: str = CONTEXT) -> tuple[int, str, str]:
    return electra("answer", folder, "--context", context, "--question", "Who ate?", *words)


def test_answer_in_json(folder: Path, electra: Electra) -> None:
    code, out, _ = asked_of(electra, folder, "--json", "--top", 3)
    said = json.loads(out)
    assert code == 0 and len(said["nbest"]) == 3
    assert all(CONTEXT[one["start"] : one["end"]] == one["text"] for one in said["nbest"])
    (folder.parent / "page.txt").write_text(CONTEXT)
    assert asked_of(electra, folder, "--json", "--top", 3, context=f"@{folder.parent / 'page.txt'}")[1] == out


def test_answer_in_words(folder: Path, electra: Electra) -> None:
    code, out, _ = asked_of(electra, folder, "--top", 2)
    lines = out.splitlines()
    assert code == 0 and sum("%" in line for line in lines) == 2
    assert len(lines) == 2 or lines[0].startswith("no answer in this text")
    code, _, err = asked_of(electra, folder, context="Шеф варил ужин")
    assert code == 0 and "of the letters are unreadable ([UNK]), for example 'Шеф', 'варил', 'ужин'" in err


def test_the_threshold_decides_whether_there_is_an_answer(folder: Path, electra: Electra) -> None:
    score = json.loads(asked_of(electra, folder, "--json")[1])["no_answer_score"]
    for threshold, answered in ((score, True), (score - 0.01, False)):
        said = json.loads(asked_of(electra, folder, "--json", "--null-threshold", threshold)[1])
        assert said["text"] == (said["nbest"][0]["text"] if answered else "")
        assert (said["no_answer_score"], said["null_threshold"]) == (score, threshold)
    out = asked_of(electra, folder, "--null-threshold", -1000)[1]
    assert f"no answer in this text (its score is {score:.2f}, the threshold -1000.00)" in out


def test_predict_writes_what_the_official_scripts_read(folder: Path, electra: Electra) -> None:
    asked = squad_file(folder.parent, "asked.json", 2)
    table = json.loads(asked.read_text())
    for entry in [one for article in table["data"] for page in article["paragraphs"] for one in page["qas"]]:
        del entry["answers"]  # as in a test set
    asked.write_text(json.dumps(table))
    out, beside = folder.parent / "said.json", folder.parent / "said-no-answer.json"
    code, printed, _ = electra("predict", folder, asked, "--out", out)
    assert code == 0 and printed.split() == [str(out), str(beside)]
    texts, scores = json.loads(out.read_text()), json.loads(beside.read_text())
    assert list(texts) == list(scores) == [f"{article}-{number}" for article in (0, 1) for number in range(3)]
    _, printed, _ = electra("predict", folder, asked, "--json")
    lines = [json.loads(line) for line in printed.splitlines()]
    assert {one["id"]: one["no_answer_score"] for one in lines} == scores
    at = TASKS["model"].threshold
    best = {one["id"]: one["nbest"][0]["text"] for one in lines}
    assert all(text and text in f"page {name[0]} says abc." for name, text in best.items())
    assert texts == {name: text if scores[name] <= at else "" for name, text in best.items()}


def test_predict_reads_rows_of_the_hub(folder: Path, electra: Electra) -> None:
    rows = [{"id": 7, "context": CONTEXT, "question": "Who?"}]
    rows.append({**rows[0], "id": "b", "answers": None})
    (folder.parent / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = electra("predict", folder.with_name("always"), folder.parent / "rows.jsonl")
    assert code == 0 and list(json.loads(out)) == ["7", "b"]


def test_predict_where_every_question_is_answered(folder: Path, electra: Electra) -> None:
    asked, said = squad_file(folder.parent, "asked.json", 1), folder.parent / "said.json"
    code, out, _ = electra("predict", folder.with_name("always"), asked)
    assert code == 0 and electra("predict", folder.with_name("always"), asked, "--out", said)[0] == 0
    assert json.loads(said.read_text()) == json.loads(out) and all(json.loads(out).values())
    assert not (folder.parent / "said-no-answer.json").exists(), "1.1 has no such scores"


ANSWER = {"--context": CONTEXT, "--question": "Who?", "--top": "1"}


@pytest.mark.parametrize(
    ("name", "verb", "more", "code", "message"),
    [
        ("always", "answer", {"--null-threshold": "0"}, 78, "--null-threshold 0: squad"),
        ("labels", "predict", {"--accuracy": "0.9"}, 78, "accuracy 0.9: this model keeps no probabilities"),
        ("model", "predict", {"--out": "said.csv"}, 78, "expected a name that ends in .json or .jsonl"),
        ("model", "predict", {"--text": "body"}, 78, "--text body"),
        ("model", "answer", {"--context": "@none.txt"}, 66, "none.txt: no such file"),
        ("model", "answer", {"--context": "  "}, 65, "holds no text"),
        ("model", "answer", {"--context": "a\udcffb"}, 65, "--context holds half of a surrogate pair"),
        ("model", "answer", {"--context": "@latin.txt"}, 65, "not UTF-8 at byte 3 of the line"),
        ("model", "answer", {"--question": " "}, 65, "--question ' ': expected one line of text"),
        ("model", "answer", {"--question": "who\udcff?"}, 65, "expected one line of text"),
        ("model", "answer", {"--top": "0"}, 78, "--top 0"),
        ("labels", "answer", {}, 78, "not to answer questions"),
    ],
)
def test_requests_that_are_refused(
    folder: Path, electra: Electra, monkeypatch: pytest.MonkeyPatch, name: str, verb: str, more: dict[str, str], code: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder.parent)
    Path("latin.txt").write_bytes(b"ab\xff")
    files = [squad_file(folder.parent, "asked.json", 1)] if verb == "predict" else []
    flags = more if files else ANSWER | more
    found, _, err = electra(verb, folder.with_name(name), *files, *(word for both in flags.items() for word in both))
    assert found == code and message in err
