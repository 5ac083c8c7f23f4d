"""What is to be had without an encoder: the majority class or mean value, and words that are counted. The task's own `score` judges.

    task                       majority                   bag of words
    classification             the most frequent label    bag_of_words.py
    regression                 the mean value             bag_of_words.py
    tagging                    the most frequent tag      each word's most frequent tag
    question answering         never to answer (2.0)      none; instead the sentence with most of the question's words (squad_floor.py)

A task of another kind has none here; the encoder with fresh weights is a floor of every task.

Texts as bags of words and pairs of words, and a linear model upon them: scikit-learn's logistic or ridge regression.

The two texts of a pair have features of their own, and numbers that say how much they share: without these, tasks such as paraphrase
would have no floor at all.

What one scores at questions without having learned anything: the sentence with most of the question's words, or no answer at all.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.experiments.experiment_file import Cell
from electra_trainer.files.durable import replace_durably
from electra_trainer.finetuning.squad.squad_files import Question
from electra_trainer.finetuning.squad.squad_score import normalize
from electra_trainer.finetuning.squad.squad_task import QuestionAnswering
from electra_trainer.finetuning.tagging.tagging import Tagging
from electra_trainer.finetuning.task import Prediction, TaskData, TextExample
from electra_trainer.finetuning.texts.tasks import Classification, Regression

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


LEARNED_ROWS = 100_000
"""Rows that are learned from at most, drawn once and for all: one or two minutes on one core."""
_ITERATIONS = 100
_LEAST, _FEW = 2, 1000
"""Terms that occur in fewer texts than the first are left out, where there are more rows than the second."""
_PIECE = re.compile(r"\w+|[^\w\s]")


def terms(text: str) -> list[str]:
    """Words and marks in small letters, and every two that follow each other; an empty text is a term too."""
    words = _PIECE.findall(text.lower())
    return words + [f"{one} {two}" for one, two in pairwise(words)] or [" "]


def learn(train: Sequence[TextExample], answers: Sequence[str | float]) -> Callable[[Sequence[TextExample]], list[Any]]:
    """A predictor of answers, the same for the same rows.

    Args:
        answers: of each row its label, or its value.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if len(train) > LEARNED_ROWS:
        picked = np.random.default_rng(0).permutation(len(train))[:LEARNED_ROWS]
        train, answers = [train[index] for index in picked], [answers[index] for index in picked]
    if len(set(answers)) == 1:
        return lambda examples: [answers[0] for _ in examples]
    texts = [text for example in train for text in (example.text, example.pair) if text is not None]
    vectorizer = TfidfVectorizer(analyzer=terms, sublinear_tf=True, min_df=_LEAST if len(train) > _FEW else 1).fit(
        texts
    )
    with _one_thread():
        model = _fit(_features(train, vectorizer), answers)

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        with _one_thread():
            said: list[Any] = model.predict(_features(examples, vectorizer)).tolist()
        return said

    return predict


def _fit(features: Any, answers: Sequence[str | float]) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, Ridge

    if not isinstance(answers[0], str):
        return Ridge(alpha=1.0, solver="sparse_cg").fit(features, answers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a floor need not be the last digit
        return LogisticRegression(C=10.0, max_iter=_ITERATIONS).fit(features, answers)


def _features(examples: Sequence[TextExample], vectorizer: Any) -> Any:
    """Sparse [examples, features]."""
    from scipy import sparse

    first = vectorizer.transform([example.text for example in examples])
    if all(example.pair is None for example in examples):
        return first
    second = vectorizer.transform([example.pair or "" for example in examples])
    alike = np.asarray(first.multiply(second).sum(axis=1))
    shared = np.array([_shared(example.text, example.pair or "") for example in examples])
    return sparse.hstack([first, second, sparse.csr_matrix(np.hstack([alike, shared]))], format="csr")


def _shared(first: str, second: str) -> NDArray[np.float64]:
    """Shares of the terms of each and of both that the other has as well, float64 [3]."""
    one, two = set(terms(first)), set(terms(second))
    both = len(one & two)
    return np.array([both / len(one), both / len(two), both / len(one | two)])


def _one_thread() -> Any:
    """The order of sums depends on the number of threads."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)", re.DOTALL)


def most_alike(questions: Sequence[Question]) -> list[Prediction]:
    """Of each context the sentence with the largest share of the question's words, the shortest of equals; the "no answer" score is the
    share that is missing, so that of SQuAD 2.0 the best-threshold scores are those to look at.
    """
    return [_most_alike(question) for question in questions]


def never(questions: Sequence[Question]) -> list[Prediction]:
    """No answer to any of them (2.0)."""
    return [{"id": question.id, "text": "", "no_answer_score": 0.0, "nbest": []} for question in questions]


def _most_alike(question: Question) -> Prediction:
    asked = set(normalize(question.question).split())
    sentences = [match.group() for match in _SENTENCE.finditer(question.context)]
    shares = [len(asked & set(normalize(sentence).split())) / max(len(asked), 1) for sentence in sentences]
    best = max(range(len(sentences)), key=lambda index: (shares[index], -len(sentences[index])))
    return {
        "id": question.id,
        "text": sentences[best],
        "no_answer_score": 1 - shares[best],
        "nbest": [{"text": sentences[best], "start": question.context.index(sentences[best])}],
    }
