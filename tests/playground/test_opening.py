"""The page opens with a sentence in which one word was exchanged: a held-out one of the run, or a built-in one."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from electra_trainer.data.store import Store
from electra_trainer.playground import PAGE
from electra_trainer.playground.answers import FinetunedModel, PretrainedModel, open_model
from electra_trainer.pretrained.pretrained import export_run, load
from electra_trainer.runs.run_folder import EXAMPLES
from electra_trainer.tasks.multi_label import MultiLabel
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.texts import Classification, Regression


def held_out(data: Path) -> str:
    store = Store.open(data)
    return " ".join(store.tokenizer().decode(list(map(int, row))) for row in store.rows("valid"))


def test_with_a_held_out_sentence(run: Path) -> None:
    first = PretrainedModel(str(run)).facts()["examples"][0]
    written, read = first["written"].split(), first["read"].split()
    assert len(written) == len(read) > 5 and sum(one != two for one, two in zip(written, read, strict=True)) == 1
    assert first["written"] in held_out(run.parent / "data")


def test_without_the_rows_of_the_run(run: Path, tmp_path: Path) -> None:
    """Its examples.jsonl has sentences; a row may be cut in the middle of one."""
    model = PretrainedModel(str(run))
    moved = Path(shutil.move(run.parent / "data", tmp_path / "data"))
    examples, words = (run / EXAMPLES).read_bytes(), "the chef cook ##ed the meal for a guest .".split()
    row = {"original": ["[CLS]", "a", ".", *words, "the", "[SEP]"], "masked": [False] * 15}
    read = {"input": [word.replace("chef", "class") for word in row["original"]], "replaced": [False] * 15}
    try:
        assert all(sum(map(str.isalpha, one["written"].split())) <= 20 for one in model.facts()["examples"])
        (run / EXAMPLES).write_text(json.dumps({"step": 99, "rows": [row | read | {"probability": [0.5] * 15}]}))
        written = "the chef cooked the meal for a guest."
        assert model.facts()["examples"] == [{"written": written, "read": written.replace("chef", "class")}]
        (run / EXAMPLES).unlink()
        assert model.facts()["examples"] == []
    finally:
        (run / EXAMPLES).write_bytes(examples)
        shutil.move(moved, run.parent / "data")


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
        (Classification(labels=("bad", "good")), False, "Type a text. The bars are the probabilities of bad, good."),
        (Classification(labels=("a", "b")), True, "Type two texts. The bars are the probabilities of a, b."),
        (MultiLabel(labels=tuple("abcdefghijk")), False, "of a, b, c, d, e, f, g, h, i, j and others."),
        (Regression(), False, "Type a text. The model answers with a number."),
        (Tagging(labels=("DET", "NOUN"), scheme="none"), False, "Type a text. Each word gets a tag."),
        (QuestionAnswering(name="squad", version=1), False, "a text and a question. The answer is a part of the text."),
    ],
)
def test_a_fine_tuned_model(
    task: Any, pair: bool, said: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page names what it answers, and opens with a sentence of its encoder's run where it reads one text."""
    words = "the chef cook ##ed the meal for a guest .".split()
    row = {"original": ["[CLS]", *words, "[SEP]"], "input": ["[CLS]", *words, "[SEP]"], "masked": [False] * 12}
    (tmp_path / EXAMPLES).write_text(json.dumps({"step": 9, "rows": [row]}))
    loaded = SimpleNamespace(task=task, pair=pair, table={"source": {"model": str(tmp_path)}}, text=load(run))
    monkeypatch.setattr("electra_trainer.playground.answers.load_finetuned", lambda name: loaded)
    facts = FinetunedModel("exp/model").facts()
    assert facts["how"].endswith(said)
    sentence = "the chef cooked the meal for a guest."
    opening = [] if pair or isinstance(task, QuestionAnswering) else [{"written": sentence, "read": sentence}]
    assert facts["examples"] == opening


def test_with_a_sentence_of_ours(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "export")
    model = PretrainedModel(str(tmp_path / "export"))
    facts = model.facts()
    assert facts["examples"] == [] and "flew" in facts["opening"] and model.score(facts["opening"])["words"]
