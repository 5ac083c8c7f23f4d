"""Texts as bags of words and pairs of words, and a linear model upon them: scikit-learn's logistic or ridge regression.

The two texts of a pair have features of their own, and numbers that say how much they share: without these, tasks such as paraphrase
would have no floor at all.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.finetune.examples import TextExample

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
