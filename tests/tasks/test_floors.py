"""Floors: majority, mean and most frequent tags by hand, and words that are counted, the same every time."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.finetuning.toy import Toy
from tests.tasks.squad_small import question

from electra_trainer.tasks import baselines
from electra_trainer.tasks.baselines import learn, overlap_features, terms, tf_idf
from electra_trainer.tasks.examples import TaggedSentence, TextExample
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import Task, TaskData
from electra_trainer.tasks.texts import Classification, Regression


def measure_baselines(data: TaskData) -> dict[str, Any]:
    """Scores of the baselines by name and split."""
    known = data.task.baselines(data.train)
    found: dict[str, Any] = {"majority": None}
    for name, one in known.items():
        found[name] = {split: data.task.score(rows, one.predict(rows)) for split, rows in data.dev.items()}
    return found


def classified(labels: Sequence[str], dev: Sequence[str]) -> TaskData:
    return TaskData(
        task=Classification(labels=("a", "b", "c")),
        train=[TextExample(text=f"text {label}", label=label) for label in labels],
        dev={"dev": [TextExample(text="text", label=label) for label in dev]},
    )


def test_majority_by_hand() -> None:
    assert measure_baselines(classified("abbcb", "abbb"))["majority"] == {"dev": {"accuracy": 0.75}}
    assert measure_baselines(classified("aabb", "bb"))["majority"] == {
        "dev": {"accuracy": 0.0}
    }  # the first by name of equals
    data = Toy(rows=200).load()
    counts = Counter(example.label for example in data.train)
    share = sum(example.label == counts.most_common(1)[0][0] for example in data.dev["dev"]) / len(data.dev["dev"])
    assert measure_baselines(data)["majority"]["dev"] == {"accuracy": share, "matthews": 0.0}


def test_the_mean_value_ranks_nothing() -> None:
    found = measure_baselines(Toy(rows=100, kind="regression").load())
    assert found["majority"]["dev"] == {"spearman": 0.0, "pearson": 0.0}


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize("paired", [False, True])
def test_counted_words_learn_what_words_tell(kind: str, paired: bool) -> None:
    data = Toy(rows=800, dev=200, kind=kind, paired=paired).load()
    found = measure_baselines(data)
    metric = data.task.metric
    assert found["tf_idf"]["dev"][metric] > 0.85 > found["majority"]["dev"][metric]
    assert set(found["tf_idf"]) == {"dev", "other"}


def alike(count: int, *, seed: int, words: int) -> list[TextExample]:
    """Pairs that are the same words in another order, or not: no word says which."""
    random, made = np.random.default_rng(seed), []
    for number in range(count):
        first = random.choice(words, 6, replace=False)
        second = random.permutation(first) if number % 2 else random.choice(words, 6, replace=False)
        texts = [" ".join(f"word{one}" for one in side) for side in (first, second)]
        made.append(TextExample(text=texts[0], pair=texts[1], label="same" if number % 2 else "other"))
    return made


def test_what_a_pair_shares_is_seen() -> None:
    data = TaskData(
        task=Classification(labels=("other", "same")),
        train=alike(400, seed=0, words=500),
        dev={"dev": alike(100, seed=1, words=500)},
    )
    found = measure_baselines(data)
    assert found["tf_idf"]["dev"]["accuracy"] > 0.97 and found["word_overlap"]["dev"]["accuracy"] == 1.0


def test_forms_of_a_word_are_alike_and_rare_words_count_more() -> None:
    """No word of dev is in the training texts, so only its letters can say which two are forms of one word."""
    random, made = np.random.default_rng(0), []
    for number in range(400):
        stems = ["".join(random.choice(list("abcdefghijklmnop"), 9)) for _ in range(2)]
        pair = stems[number % 2] + "ing"
        made.append(TextExample(text=f"the {stems[0]} of it", pair=f"the {pair}", value=float(number % 2 == 0)))
    data = TaskData(task=Regression(), train=made[:200], dev={"dev": made[200:]})
    assert measure_baselines(data)["word_overlap"]["dev"]["pearson"] > 0.9
    matrix, read = overlap_features(made[:200])
    the, rare = TextExample(text="the qrs", pair="the xyz"), TextExample(text="xyz qrs", pair="xyz the")
    common, seldom = read([the, rare])
    assert seldom[0] > common[0] + 1 and seldom[5] > common[5] + 1  # weighted by idf
    assert abs(seldom[4] - common[4]) < 0.2 and abs(seldom[6] - common[6]) < 0.2  # and not
    assert np.allclose(matrix.mean(0), 0, atol=1e-4) and np.allclose(read(made[:200]), matrix)


def test_sides_of_a_pair_are_not_mixed_up() -> None:
    """The label is whether the first text is the one with the word; both texts together hold it always."""

    def examples(count: int, seed: int) -> list[TextExample]:
        random, made = np.random.default_rng(seed), []
        for _ in range(count):
            words = [" ".join(f"w{one}" for one in random.choice(50, 4)) for _ in range(2)]
            first = bool(random.integers(2))
            words[0 if first else 1] += " key"
            made.append(TextExample(text=words[0], pair=words[1], label="first" if first else "second"))
        return made

    task = Classification(labels=("first", "second"))
    data = TaskData(task=task, train=examples(300, 0), dev={"dev": examples(100, 1)})
    assert measure_baselines(data)["tf_idf"]["dev"]["accuracy"] == 1.0


def test_the_same_every_time_with_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from threadpoolctl import threadpool_limits

    data = Toy(rows=200, paired=True, kind="regression").load()
    found = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            found.append(json.dumps(measure_baselines(data)))
    assert len(set(found)) == 1


def test_terms() -> None:
    assert terms("It is,  it IS") == ["it", "is", ",", "it", "is", "it is", "is ,", ", it", "it is"]
    assert terms("") == terms(" \t") == [" "] and terms("x") == ["x"]


def test_texts_and_labels_that_say_nothing() -> None:
    empty = TextExample(text="", pair=None, label="a")
    pairs = [replace(empty, pair=""), replace(empty, pair="", label="b")]
    for train, features in (([empty, replace(empty, label="b")], tf_idf), (pairs, overlap_features)):
        said = learn(train, np.array(["a", "b"]), features)([train[0], replace(train[0], text="never seen")])
        assert {one["label"] for one in said} <= {"a", "b"}
    assert measure_baselines(classified("aaa", "ab"))["tf_idf"] == {"dev": {"accuracy": 0.5}}
    same = [TextExample(text="x", value=2.0) for _ in range(4)]
    data = TaskData(task=Regression(), train=same, dev={"dev": same})
    assert measure_baselines(data)["tf_idf"] == {"dev": {"spearman": 0.0, "pearson": 0.0}}


def test_at_most_a_hundred_thousand_rows_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure_baselines(Toy(rows=1000, dev=200).load())["tf_idf"]
    monkeypatch.setattr(baselines, "LEARNED_ROWS", 300)
    part = measure_baselines(Toy(rows=1000, dev=200).load())["tf_idf"]
    assert part["dev"]["accuracy"] > 0.7 and part != whole


def test_many_classes_cost_no_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above some the penalty is not chosen, above more there is no TF-IDF."""
    train = classified("aaabbbccc", "abc")
    monkeypatch.setattr(baselines, "TRIED_CLASSES", 2)
    monkeypatch.setattr("sklearn.model_selection.GridSearchCV.fit", None)
    assert "tf_idf" in measure_baselines(train)
    monkeypatch.setattr(baselines, "MOST_CLASSES", 2)
    assert [*measure_baselines(train)] == ["majority"]


def test_tags_by_hand() -> None:
    train = [
        TaggedSentence(words=("Dogs", "run", "home"), labels=("N", "V", "N")),
        TaggedSentence(words=("a", "run"), labels=(None, "N")),
        TaggedSentence(words=("they", "run", "dogs"), labels=("N", "V", "N")),
    ]
    dev = [TaggedSentence(words=("DOGS", "run", "unseen", "a"), labels=("N", "V", "V", None))]
    task = Tagging(labels=("N", "V"))
    tags = {name: one.predict(dev)[0]["tags"] for name, one in task.baselines(train).items()}
    assert tags == {"majority": ["N", "N", "N", "N"], "word_tags": ["N", "V", "N", "N"]}
    found = measure_baselines(TaskData(task=task, train=train, dev={"dev": dev}))
    accuracy = {name: scores["dev"]["accuracy"] for name, scores in found.items()}
    assert accuracy == pytest.approx({"majority": 1 / 3, "word_tags": 2 / 3})


def test_questions_have_the_sentence_most_alike_and_silence(tmp_path: Path) -> None:
    asked = [
        question("rain fell. snow fell.", "what snow?", "snow"),
        question("rain fell.", "who sang?", None, name="q1"),
    ]
    data = TaskData(task=QuestionAnswering(), train=asked[:1], dev={"dev": asked[:1]})
    found = json.loads(json.dumps(measure_baselines(data)))
    assert found.pop("word_overlap") == {"dev": {"f1": pytest.approx(2 / 3), "exact_match": 0.0}}
    assert found == {"majority": None}
    second = measure_baselines(TaskData(task=QuestionAnswering(version=2), train=asked, dev={"dev": asked}))
    never, overlap = second["majority"]["dev"], second["word_overlap"]["dev"]
    assert never["best_f1"] == never["f1"] == never["best_exact_match"] == 1 / 2, "the second has no answer"
    assert overlap["best_f1"] == pytest.approx((2 / 3 + 1) / 2), "no word of the second's question stands in its text"


class Other(Classification):
    """A task that names no baselines."""

    baselines = Task.baselines

    def __init__(self) -> None:
        pass


def test_other_tasks_have_none() -> None:
    data = TaskData(task=Other(), train=[], dev={"dev": []})
    assert measure_baselines(data) == {"majority": None}
