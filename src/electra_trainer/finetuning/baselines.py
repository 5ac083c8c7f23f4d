"""Baselines without an encoder, which each task names (`Task.baselines`); here the bag of words, for all tasks about texts.

    task                       majority                   bag of words
    classification             the most frequent label    a linear model on words and pairs of words
    regression                 the mean value             the same
    tagging                    the most frequent tag      each word's most frequent tag
    question answering         never answering (2.0)      none; instead the sentence that shares most words with the question

The encoder with fresh weights is another baseline, of every task.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from electra_trainer.experiments.folder import Cell
from electra_trainer.files.durable import replace_durably
from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.task import Baseline, TaskData


def write_baselines(cell: Cell, data: TaskData) -> None:
    """Write floors.json: {"majority": ..., "bag_of_words": ..., "notes": [...]}, for questions also "word_overlap"; null: no such baseline."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    replace_durably(cell.result, (json.dumps(measure_baselines(data), indent=1) + "\n").encode())


def measure_baselines(data: TaskData) -> dict[str, Any]:
    """Scores of all baselines on every dev split, by split and metric, and notes; the same for the same data."""
    found: dict[str, Any] = {"majority": None, "bag_of_words": None, "notes": []}
    for name, baseline in data.task.baselines(data.train).items():
        found[name] = {split: data.task.score(rows, baseline.predict(rows)) for split, rows in data.dev.items()}
        found["notes"] += [baseline.note] if baseline.note else []
    return found


def most_frequent(counts: Mapping[str, int]) -> str:
    """The key with the largest count, of equals the first by name."""
    return min(counts, key=lambda value: (-counts[value], value))


def text_baselines(train: Sequence[TextExample], answer: Literal["label", "value"]) -> dict[str, Baseline]:
    """The most frequent label (the mean value) and a bag of words; none if a row has no answer."""
    answers = [getattr(one, answer) for one in train]
    if None in answers:
        return {}
    always = most_frequent(Counter(answers)) if answer == "label" else sum(answers) / len(answers)
    model = learn(train, answers)
    note = f"the bag of words learned from {LEARNED_ROWS:,} of the {len(train):,} rows"
    return {
        "majority": Baseline(predict=lambda examples: [{answer: always} for _ in examples]),
        "bag_of_words": Baseline(
            predict=lambda examples: [{answer: said} for said in model(examples)],
            note=note if len(train) > LEARNED_ROWS else "",
        ),
    }


LEARNED_ROWS = 100_000
"""Largest number of rows to learn from, a fixed sample: one or two minutes on one core."""
_PIECE = re.compile(r"\w+|[^\w\s]")


def terms(text: str) -> list[str]:
    """Lower-case words and punctuation, and every two neighbours; an empty text has one term."""
    words = _PIECE.findall(text.lower())
    return words + [f"{one} {two}" for one, two in pairwise(words)] or [" "]


def learn(train: Sequence[TextExample], answers: Sequence[str | float]) -> Callable[[Sequence[TextExample]], list[Any]]:
    """A linear model (logistic or ridge regression) on words and pairs of words; the same for the same rows.

    The two texts of a pair have separate features, and numbers that say how much they share: without these, tasks such as paraphrase
    would have no baseline. It computes on one thread, because the order of sums depends on the number of threads.

    Args:
        answers: the label of each row, or its value.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from threadpoolctl import threadpool_limits

    if len(train) > LEARNED_ROWS:
        picked = np.random.default_rng(0).permutation(len(train))[:LEARNED_ROWS]
        train, answers = [train[index] for index in picked], [answers[index] for index in picked]
    if len(set(answers)) == 1:
        return lambda examples: [answers[0] for _ in examples]
    texts = [text for example in train for text in (example.text, example.pair) if text is not None]
    rare = 2 if len(train) > 1000 else 1
    vectorizer = TfidfVectorizer(analyzer=terms, sublinear_tf=True, min_df=rare).fit(texts)
    model = LogisticRegression(C=10.0, max_iter=100) if isinstance(answers[0], str) else Ridge(solver="sparse_cg")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline need not be exact to the last digit
        model.fit(_features(train, vectorizer), answers)

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        with threadpool_limits(1):
            said: list[Any] = model.predict(_features(examples, vectorizer)).tolist()
        return said

    return predict


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
    """Common terms as shares of the first text's, the second's and all terms, float64 [3]."""
    one, two = set(terms(first)), set(terms(second))
    both = len(one & two)
    return np.array([both / len(one), both / len(two), both / len(one | two)])
