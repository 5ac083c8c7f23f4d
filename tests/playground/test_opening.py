"""The page opens with a sentence in which one word was exchanged: a held-out one of the run, or a built-in one."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from electra_trainer.data.store import Store
from electra_trainer.playground.answers import FinetunedModel, PretrainedModel, open_model
from electra_trainer.playground.server import PAGE
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.texts import Classification


def held_out(data: Path) -> str:
    store = Store.open(data)
    return " ".join(store.tokenizer().decode(list(map(int, row))) for row in store.rows("valid"))


def test_with_a_held_out_sentence(run: Path) -> None:
    first = PretrainedModel(str(run)).facts()["examples"][0]
    assert first["written"] != first["read"] and first["written"] in held_out(run.parent / "data")


def test_with_a_sentence_of_ours(run: Path, tmp_path: Path) -> None:
    """Used for an export, and for a run whose examples are damaged."""
    export_run(run, tmp_path / "export")
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run/examples.jsonl").write_text('{"step": 1, "rows": [{"original": ["[CLS]", 5]}]}\n')
    for name in ("run", "export"):
        model = PretrainedModel(str(tmp_path / name))
        facts = model.facts()
        assert facts["examples"] == [] and "flew" in facts["opening"] and model.score(facts["opening"])["words"]


def test_the_page_says_what_a_model_scores_and_fills(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path)
    number, choose = "The number under a word is the probability", "Choose a word to see"
    for path, said in (
        (run, [True, True]), (tmp_path / "discriminator", [True, False]), (tmp_path / "generator", [False, True])
    ):  # fmt: skip
        how = open_model(path).facts()["how"]
        assert [part in how for part in (number, choose)] == said, path
    page = (PAGE / "index.html").read_text()
    assert "replaced" not in page.partition("<template")[0] and 'id="how"' in page


@pytest.mark.parametrize(
    "task, pair, said",
    [
        (Classification(labels=("bad", "good")), False, "Type a text."),
        (Classification(labels=("a", "b")), True, "Type two texts."),
        (QuestionAnswering(name="squad", version=1), False, "Type a text and a question."),
    ],
)
def test_a_fine_tuned_model(task: Any, pair: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page names what it answers."""
    loaded = SimpleNamespace(task=task, pair=pair, table={"source": {"model": "runs/mine"}})
    monkeypatch.setattr("electra_trainer.playground.answers.load_finetuned", lambda name: loaded)
    facts = FinetunedModel("exp/model").facts()
    assert facts["how"].endswith(said) and facts["about"].endswith("fine-tuned from mine")
