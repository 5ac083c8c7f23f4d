"""What is to be had without an encoder: the majority class or mean value, and words that are counted. The task's own `score` judges.

    task                       majority                   bag of words
    classification             the most frequent label    bag_of_words.py
    regression                 the mean value             bag_of_words.py
    tagging                    the most frequent tag      each word's most frequent tag
    question answering         never to answer (2.0)      none; instead the sentence with most of the question's words (squad_floor.py)

A task of another kind has none here; the encoder with fresh weights is a floor of every task.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from electra_trainer.durable import replace_durably
from electra_trainer.finetune.bag_of_words import LEARNED_ROWS, learn
from electra_trainer.finetune.classification import Classification
from electra_trainer.finetune.experiment_file import Cell
from electra_trainer.finetune.question_answering import QuestionAnswering
from electra_trainer.finetune.regression import Regression
from electra_trainer.finetune.squad_floor import most_alike, never
from electra_trainer.finetune.tagging import Tagging
from electra_trainer.finetune.task import Prediction, TaskData

Scores = dict[str, dict[str, float]]
"""By split, then metric."""
_Predict = Callable[[Sequence[Any]], list[Prediction]]


def write_floors(cell: Cell, data: TaskData) -> None:
    """Write floors.json: {"majority": ..., "bag_of_words": ..., "notes": [...]}, of questions also "word_overlap"; null: no such floor."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    replace_durably(cell.result, (json.dumps(floors(data), indent=1) + "\n").encode())


def floors(data: TaskData) -> dict[str, Any]:
    """Scores of all floors on every dev split, and notes; the same for the same data."""
    found: dict[str, Any] = {"majority": None, "bag_of_words": None, "notes": []}
    if isinstance(data.task, QuestionAnswering):
        if data.task.version == 2:
            found["majority"] = _scores(data, never)
        return found | {"word_overlap": _scores(data, most_alike)}
    learners = _learners(data)
    if learners is not None:
        found |= {name: _scores(data, predict) for name, predict in learners.items()}
        if len(data.train) > LEARNED_ROWS and not isinstance(data.task, Tagging):
            found["notes"] = [f"the bag of words learned from {LEARNED_ROWS:,} of the {len(data.train):,} rows"]
    return found


def _learners(data: TaskData) -> Mapping[str, _Predict] | None:
    if isinstance(data.task, Tagging):
        return {"majority": _most_frequent_tag(data.train), "bag_of_words": _tag_of_each_word(data.train)}
    if not isinstance(data.task, Classification | Regression):
        return None
    kind = "label" if isinstance(data.task, Classification) else "value"
    answers = [getattr(one, kind) for one in data.train]
    if None in answers:
        return None
    always = _most_frequent(answers) if kind == "label" else sum(answers) / len(answers)
    model = learn(data.train, answers)
    return {
        "majority": lambda examples: [{kind: always} for _ in examples],
        "bag_of_words": lambda examples: [{kind: said} for said in model(examples)],
    }


def _scores(data: TaskData, predict: _Predict) -> Scores:
    return {split: data.task.score(examples, predict(examples)) for split, examples in data.dev.items()}


def _most_frequent(values: Iterable[str]) -> str:
    return _first(Counter(values))


def _first(counts: Mapping[str, int]) -> str:
    """What there is most of, the first by name of equals."""
    return min(counts, key=lambda value: (-counts[value], value))


def _labelled(sentences: Sequence[Any]) -> Iterable[tuple[str, str]]:
    return (
        (word, label)
        for sentence in sentences
        for word, label in zip(sentence.words, sentence.labels, strict=True)
        if label is not None
    )


def _most_frequent_tag(train: Sequence[Any]) -> _Predict:
    tag = _most_frequent(label for _, label in _labelled(train))
    return lambda sentences: [{"words": list(one.words), "tags": [tag] * len(one.words)} for one in sentences]


def _tag_of_each_word(train: Sequence[Any]) -> _Predict:
    """As it is written, else in small letters; of a word that was never seen, the most frequent tag of all."""
    seen: dict[str, Counter[str]] = {}
    for word, label in _labelled(train):
        for form in {word, word.lower()}:
            seen.setdefault(form, Counter())[label] += 1
    tag = {word: _first(counts) for word, counts in seen.items()}
    other = _most_frequent(label for _, label in _labelled(train))
    return lambda sentences: [
        {"words": list(one.words), "tags": [tag.get(word, tag.get(word.lower(), other)) for word in one.words]}
        for one in sentences
    ]
