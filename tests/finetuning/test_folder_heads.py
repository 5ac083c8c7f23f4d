"""Tagging and question answering, exported: heads that transformers has are copied, the paper's own is kept beside the encoder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.finetuning.own_files import FRUIT, TOOLS, rows, write_encoder

from electra_trainer.finetuning.model_folder import Finetuned, export_finetuned, load_finetuned
from electra_trainer.finetuning.run import Job, collate, finetune_run
from electra_trainer.pretrained.source import load_source
from electra_trainer.tasks.examples import TaggedSentence
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.squad_files import Question, TrueAnswer
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import TaskData

KINDS = ("tagging", "independent", "joint")
SENTENCES = [text.split() for text, _ in rows(6)]
ASKED = [("was it old ?", "we took the hammer and the pear"), ("which shop ?", "the garden shop was on the left")]


def tagged() -> list[TaggedSentence]:
    tag = {**dict.fromkeys(FRUIT, "FRUIT"), **dict.fromkeys(TOOLS, "TOOL")}
    return [
        TaggedSentence(words=tuple(text.split()), labels=tuple(tag.get(word, "O") for word in text.split()))
        for text, _ in rows(40)
    ]


def questions() -> list[Question]:
    found = []
    for number, (text, _) in enumerate(rows(40)):
        answer = text.split()[4]
        found.append(
            Question(
                id=str(number), question=f"which {'fruit' if number % 2 else 'tool'}?", context=text,
                answers=(TrueAnswer(text=answer, start=text.index(f" {answer} ") + 1),),
            )
        )  # fmt: skip
    return found


def half_silent() -> list[Question]:
    """Every second pair of questions has no answer."""
    return [one if number % 4 < 2 else replace(one, answers=()) for number, one in enumerate(questions())]


def data_of(kind: str) -> TaskData:
    if kind == "tagging":
        return TaskData(task=Tagging(labels=("FRUIT", "O", "TOOL")), train=tagged(), dev={"dev": tagged()[:8]})
    task: Any = QuestionAnswering(head_kind=kind, width=24, beam=3, stride=8, max_query=8)  # type: ignore[arg-type]
    return TaskData(task=task, train=questions(), dev={"dev": questions()[:8]})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("heads")
    write_encoder(root / "encoder")
    for kind in KINDS:
        exported(root, kind, data_of(kind))
    return root


def exported(root: Path, kind: str, data: TaskData) -> Path:
    source = load_source(root / "encoder")
    job = Job(source=source, data=data, recipe=recipe("paper", hidden_size=32, epochs=2), seed=1)
    finetune_run(job, out=root / "runs" / kind, keep_weights=True, quiet=True, device="cpu")
    return export_finetuned(root / "runs" / kind, out=root / kind, data=data)


@pytest.fixture(scope="module")
def silent(models: Path) -> Path:
    """The folder of a run of SQuAD 2.0."""
    asked = half_silent()
    task = QuestionAnswering(version=2, name="squad-2.0", width=24, beam=3, stride=8, max_query=8)
    return exported(models, "silent", TaskData(task=task, train=asked, dev={"dev": asked[:16]}))


def test_a_model_of_2_0_answers_at_its_best_threshold(models: Path, silent: Path) -> None:
    found = json.loads((models / "runs" / "silent" / "result.json").read_text())["scores"]
    scores = {name.removeprefix("dev/"): value for name, value in found.items()}
    asked = half_silent()
    loaded = load_finetuned(silent)
    assert isinstance(loaded.task, QuestionAnswering)
    assert loaded.task.threshold == loaded.table["task"]["null_threshold"] == scores["best_f1_threshold"] != -2.75
    said = loaded.task.score(asked[:16], loaded.predict_examples(asked[:16], device="cpu"))
    assert said["f1"] == pytest.approx(scores["best_f1"]) and said["best_f1"] == pytest.approx(scores["best_f1"])
    card = (silent / "README.md").read_text()
    assert f"no-answer score is above {scores['best_f1_threshold']:.4g} (`null_threshold`)" in card
    assert f"| dev, best\\_f1\\_threshold | 1 | {scores['best_f1_threshold']:.2f} |" in card
    given = QuestionAnswering(version=2, null_threshold=-1.5)
    assert given.settled({"dev": scores}) == given, "whoever gave one keeps it"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("tagging", "Rows of up to 32 tokens; electra-trainer reads a longer sentence in several, cut between words."),
        ("joint", "Rows of up to 32 tokens; electra-trainer reads a longer context in several windows that overlap."),
    ],
)
def test_the_card_says_what_becomes_of_long_texts(models: Path, kind: str, sentence: str) -> None:
    card = (models / kind / "README.md").read_text()
    assert sentence in card and "are cut" not in card
    assert "says that there is none" not in card, "1.1 always has an answer"


def architecture(folder: Path) -> str:
    return str(json.loads((folder / "config.json").read_text())["architectures"][0])


@torch.no_grad()
def ours(loaded: Finetuned, examples: list[Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids and segments [B, T], and what the linear head says of every token [B, T, C]."""
    batch = collate(loaded.task.rows(examples, loaded.text, training=False), loaded.text.specials, torch.device("cpu"))
    return batch.ids_BT, batch.segment_BT, loaded.network.head(loaded.network(batch))


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_run_predicted_is_predicted_again(models: Path, kind: str) -> None:
    said = load_finetuned(models / kind).predict_examples(data_of(kind).dev["dev"], device="cpu")
    lines = (models / "runs" / kind / "predictions" / "dev.jsonl").read_text().splitlines()
    assert json.loads(json.dumps(said)) == [json.loads(line) for line in lines]
    if kind != "tagging":
        assert all(one["text"] in asked.context for one, asked in zip(said, questions(), strict=False))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["tagging", "independent"])
def test_predictions_are_those_of_transformers(models: Path, kind: str) -> None:
    """Tags, answers and their probabilities of 200 rows, read from transformers' logits as `predict` reads ours."""
    import transformers

    loaded = replace(load_finetuned(models / kind), precision="fp32")
    texts = [text for text, _ in rows(200)]
    asked: list[Any] = [text.split() for text in texts]
    if kind == "independent":
        asked = [(f"which {'fruit' if number % 2 else 'tool'}?", text) for number, text in enumerate(texts)]
    examples = loaded.task.examples_from(asked, pair=False)
    task_rows = loaded.task.rows(examples, loaded.text, training=False)
    batch = collate(task_rows, loaded.text.specials, torch.device("cpu"))
    theirs = getattr(transformers, architecture(models / kind)).from_pretrained(models / kind).eval()
    found = theirs(input_ids=batch.ids_BT, token_type_ids=batch.segment_BT, attention_mask=batch.real_BT.long())
    logits_BTC = found.logits if kind == "tagging" else torch.stack([found.start_logits, found.end_logits], -1)
    said = loaded.task.predict(examples, task_rows, loaded.task.read(torch.nn.Identity(), logits_BTC, batch, task_rows))
    mine = loaded.predict(asked, device="cpu")
    assert len(mine) == 200 and len({json.dumps(one.get("tags", one.get("text"))) for one in mine}) > 5
    for one, two in zip(said, mine, strict=True):
        assert one.get("tags") == two.get("tags") and one.get("text") == two.get("text")
        for first, second in zip(one.get("nbest", ()), two.get("nbest", ()), strict=True):
            assert first["probability"] == pytest.approx(second["probability"], abs=1e-5)
    if kind == "tagging":
        settings = json.loads((models / kind / "config.json").read_text())
        assert list(settings["id2label"].values()) == list(loaded.task.labels)  # type: ignore[attr-defined]
        tag = transformers.pipeline("token-classification", model=str(models / kind))
        tagged_by_it = [[word["entity"] for word in words] for words in tag(texts)]
        assert tagged_by_it == [[one for one in two["tags"] if one != "O"] for two in mine]
