"""Question answering through the engine: it learns, reads long contexts, and says when there is no answer."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from tests.tasks import squad_small
from tests.tasks.squad_small import question

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.tasks.examples import Prediction
from electra_trainer.tasks.questions import QuestionAnswering, SquadTask
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.squad_files import Question
from electra_trainer.tasks.squad_score import Spans, most_alike, spread
from electra_trainer.tasks.task import TaskData

MEAL = "the chef cooked the meal. a guest ate it at noon."
LEARNED = [
    question(MEAL, "who cooked?", "chef", name="1"),
    question(MEAL, "who ate?", "guest", name="2"),
    question(MEAL, "when?", "noon", name="3"),
    question("rain fell on monday in paris.", "where?", "paris", name="4"),
]
RECIPE = Recipe(
    learning_rate=3e-3, layer_decay=1.0, epochs=60, batch_size=4, dropout=0.0, attention_dropout=0.0, max_length=48
)


def job(task: QuestionAnswering, examples) -> Job:
    data = TaskData(task=task, train=examples, dev={"dev": examples}, sha256="x")
    return Job(source=squad_small.source(), data=data, recipe=RECIPE, seed=1)


@pytest.mark.parametrize("kind", ["joint", "independent"])
def test_learns_four_questions(tmp_path: Path, kind: str) -> None:
    task = QuestionAnswering(head_kind=kind, width=32)  # type: ignore[arg-type]
    result = finetune_run(job(task, LEARNED), out=tmp_path / "run", device="cpu", quiet=True)
    assert result.facts["rows"] == 6, "some contexts are longer than a row"
    assert result.by_split["dev"] == {"f1": 1.0, "exact_match": 1.0}
    said = [json.loads(line) for line in (tmp_path / "run/predictions/dev.jsonl").read_text().splitlines()]
    assert [one["id"] for one in said] == ["1", "2", "3", "4"]
    assert [one["text"] for one in said] == ["chef", "guest", "noon", "paris"]
    assert all(
        asked.context[one["nbest"][0]["start"] :].startswith(one["text"])
        for one, asked in zip(said, LEARNED, strict=True)
    )


@pytest.mark.parametrize("kind", ["joint", "independent"])
def test_learns_what_has_no_answer(tmp_path: Path, kind: str) -> None:
    examples = [*LEARNED[:2], question(MEAL, "how much?", None, name="3"), question(MEAL, "is it red?", None, name="4")]
    task = QuestionAnswering(version=2, head_kind=kind, width=32, name="squad-2.0")  # type: ignore[arg-type]
    result = finetune_run(job(task, examples), out=tmp_path / "run", device="cpu", quiet=True)
    assert set(result.by_split["dev"]) == {
        "f1", "exact_match", "best_f1", "best_exact_match", "has_answer_f1", "has_answer_exact_match", "no_answer_accuracy",
        "threshold", "best_f1_threshold", "best_exact_match_threshold",
    }  # fmt: skip
    assert result.by_split["dev"]["best_exact_match"] == 1.0
    assert result.by_split["dev"]["no_answer_accuracy"] == 1.0
    said = [json.loads(line) for line in (tmp_path / "run/predictions/dev.jsonl").read_text().splitlines()]
    assert [one["text"] for one in said][2:] == ["", ""]
    assert max(one["no_answer_score"] for one in said[:2]) < min(one["no_answer_score"] for one in said[2:])


def test_the_threshold_is_the_head_s_own_unless_given() -> None:
    tasks = (
        QuestionAnswering(version=2, null_threshold=-1.5),
        QuestionAnswering(),
        QuestionAnswering(head_kind="independent"),
    )
    assert [task.threshold for task in tasks] == [-1.5, -2.75, 0.0]


def said_of(
    examples: list[Question], texts: list[str], scores: list[float], task: QuestionAnswering
) -> list[Prediction]:
    """Predictions with those answers and "no answer" scores."""
    return [
        {
            "text": "" if score > task.threshold else text,
            "no_answer_score": score,
            "nbest": [{"text": text, "start": 3}],
        }
        for _, text, score in zip(examples, texts, scores, strict=True)
    ]


def test_the_main_score_of_2_0_is_at_the_best_threshold() -> None:
    """Two encoders that say nothing at -2.75 tie with silence there; one of them knows who cooked."""
    assert (QuestionAnswering().metric, QuestionAnswering(version=2).metric) == ("f1", "best_f1")
    task = QuestionAnswering(version=2)
    examples = [*LEARNED[:2], question(MEAL, "how much?", None, name="3")]
    knows = said_of(examples, ["chef", "guest", "noon"], [-1.5, -1.0, 2.0], task)
    guesses = said_of(examples, ["meal", "noon", "noon"], [-1.5, -1.0, 2.0], task)
    assert task.score(examples, knows)["f1"] == task.score(examples, guesses)["f1"] == pytest.approx(1 / 3)
    assert task.score(examples, knows)[task.metric] == 1.0
    assert task.score(examples, guesses)[task.metric] == pytest.approx(1 / 3)
    assert task.doubts(examples, knows) == []
    (collapsed,) = task.doubts(examples, guesses)
    assert collapsed.startswith("collapsed: at every threshold")
    open_minded = QuestionAnswering(version=2, null_threshold=0.0)
    said = said_of(examples, ["chef", "guest", "noon"], [-1.5, -1.0, 2.0], open_minded)
    assert open_minded.doubts(examples, said) == []


def squad_file(folder: Path, name: str, articles: int, *, start: int = 0) -> Path:
    data = [
        {
            "title": f"t{number}",
            "paragraphs": [{"context": f"page {number} says abc.", "qas": [
                {"id": f"{number}-{n}", "question": "what?", "answers": [{"text": "abc", "answer_start": 0}]} for n in range(3)
            ]}],
        }
        for number in range(start, start + articles)
    ]  # fmt: skip
    path = folder / name
    path.write_text(json.dumps({"data": data}))
    return path


def test_source_of_two_files(tmp_path: Path) -> None:
    train, dev = squad_file(tmp_path, "train.json", 6), squad_file(tmp_path, "dev.json", 3, start=4)
    source = SquadTask(train=train, dev=dev)
    assert pickle.loads(pickle.dumps(source)) == source
    assert (source.name, source.epochs) == ("squad-1.1", 2.0)
    data = source.load()
    moved = "answers were not at their answer_start; the nearest place was taken."
    assert (len(data.train), {split: len(some) for split, some in data.dev.items()}) == (18, {"dev": 9})
    assert data.notes == (
        f"train.json: 18 {moved}",
        f"dev.json: 9 {moved}",
        "warning: 6 of 9 questions in dev.json are in training too, so the scores are too good.",
    )
    other = SquadTask(train=str(train), dev=str(squad_file(tmp_path, "other.json", 2, start=9))).load()
    assert len(data.sha256) == 64 and other.sha256 != data.sha256 and other.notes[-1].startswith("other.json")


def test_source_of_one_file(tmp_path: Path) -> None:
    data = SquadTask(train=str(squad_file(tmp_path, "train.json", 10)), split=0.3).load()
    (dev,) = data.dev.values()
    assert len(data.train) + len(dev) == 30 and 6 <= len(dev) <= 12
    assert not {one.article for one in dev} & {one.article for one in data.train}
    assert any("train.json is split by article" in note for note in data.notes)
    assert not any("in training too" in note for note in data.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({}, "--dev FILE or --split"), ({"dev": Path("x"), "split": 0.5}, "--dev FILE or --split"), ({"split": 1.5}, "split")],
)  # fmt: skip
def test_source_that_cannot_be(changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SquadTask(train=Path("t"), **changes)


def test_paper_and_released_differ_in_the_classifier() -> None:
    paper, released = (SquadTask(train=Path("t"), split=0.5, follow=follow).task for follow in ("paper", "released"))  # type: ignore[arg-type]
    assert (paper.answerability, paper.answerability_of) == ("2.0", "window")
    assert (released.answerability, released.answerability_of) == ("always", "question")


def test_the_floor_is_the_sentence_most_alike() -> None:
    context = "It rained. The chef cooked the evening meal! The chef slept.\nNobody else, e.g. guests, came"
    (said,) = most_alike([question(context, "Which meal did the chef cook? The evening meal?", "x")])
    assert said["text"] == "The chef cooked the evening meal!"
    other = most_alike([question(context, "Did the chef sleep?", "x"), question("word", "other?", "x")])
    assert [one["text"] for one in other] == ["The chef slept.", "word"]


def test_a_long_context_gives_one_prediction() -> None:
    task, text = QuestionAnswering(), squad_small.text(24)
    asked = [question(squad_small.passage(n, seed=n), "who?", None, name=str(n)) for n in (1, 8, 40)]
    rows = task.rows(asked, text, training=False)
    letters = [len(one.context.replace(" ", "")) for one in asked]
    windows = [len(spread(count, room=24 - 3 - 4, stride=128)) for count in letters]
    assert [sum(row.example == n for row in rows) for n in range(3)] == windows
    assert windows[0] == 1 < windows[1] < windows[2]
    said = [Spans([row.place.before], [row.place.before], [float(n)], 0.0) for n, row in enumerate(rows)]
    predictions = task.predict(asked, rows, said)
    assert [one["id"] for one in predictions] == ["1", "8", "40"]
    assert len(predictions[0]["nbest"]) == 1
    first_of_last_window = rows[-1].place.characters(rows[-1].place.before, rows[-1].place.before)
    assert (predictions[2]["nbest"][0]["start"], predictions[2]["nbest"][0]["end"]) == first_of_last_window
