"""Baselines of texts without an encoder: the most frequent answer, and linear models of features of the texts.

Features are TF-IDF of words and of characters, and, of two texts, how well they overlap (`overlap_features`): the best
matches between the random vectors of their words. A word's vector is the sum of random vectors of its character n-grams
(as fastText's, but never trained), so forms of a word are alike.

The penalty of a model is chosen by cross-validation on a sample of its rows. All is computed on one thread, because the
order of sums depends on the number of threads, and is the same for the same rows.
"""

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from electra_trainer.randomness import drawn
from electra_trainer.tasks.examples import MARKS, Prediction, TextExample
from electra_trainer.tasks.task import Baseline, most_frequent

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Reads = Callable[[Sequence[TextExample]], Any]
"""Examples -> a matrix of their features, [examples, features]."""
Learns = Callable[[Sequence[TextExample]], tuple[Any, Reads]]
"""Training examples -> the matrix of their features, and a function that computes those of others."""
LEARNED_ROWS, LEARNED_CHARACTERS = 100_000, 10_000_000
"""Most rows, and about the most characters, that a baseline learns from, a fixed sample: minutes on one core."""
TRIED_ROWS, TRIED_CLASSES = 2_000, 100
"""Most rows on which the weight of the penalty is chosen, a fixed sample, and most classes for which it is."""
MOST_CLASSES = 1_000
"""Most classes that TF-IDF is learned for: it takes a model of all features for each."""
TERMS = 200_000
"""Most terms, and as many n-grams of characters: the most frequent ones."""
WIDTH = 128
"""Numbers in a word's vector, as many as `tiny` has."""
FOLDS = 3
_GRAMS = 1 << 16
"""Random vectors that n-grams are hashed to."""
_WORD = re.compile(rf"\w+(?:[{MARKS}]+\w*)*|[^\w\s]")


def text_baselines(
    train: Sequence[TextExample], answer: Literal["label", "value"], *, balanced: bool = False
) -> dict[str, Baseline]:
    """The most frequent label (the mean value), TF-IDF, of pairs the overlap of words; none without answers.
    `balanced`: classes count alike in the loss of the linear models.
    """
    answers = [getattr(one, answer) for one in train]
    if None in answers:
        return {}
    if answer == "label":
        counts = Counter(answers)
        shares = {label: count / len(answers) for label, count in counts.items()}
        always: Prediction = {"label": most_frequent(counts), "probabilities": shares}
    else:
        always = {"value": sum(answers) / len(answers)}

    def learned(title: str, features: Learns) -> Baseline:
        return Baseline(title=title, predict=learn(train, np.array(answers), features, balanced=balanced))

    found = {
        "majority": Baseline(
            title="the majority class" if answer == "label" else "the mean value",
            predict=lambda examples: [always for _ in examples],
        )
    }
    if answer == "value" or len(counts) <= MOST_CLASSES:
        found["tf_idf"] = learned("TF-IDF", tf_idf)
    if train[0].pair is not None:
        found["word_overlap"] = learned("the word overlap", overlap_features)
    return found


def learn(
    train: Sequence[TextExample], answers: NDArray[Any], features: Learns, *, balanced: bool = False
) -> Callable[[Sequence[TextExample]], list[Any]]:
    """A linear model of some features, examples -> answers; it learns when it is first called, which takes minutes.

    Args:
        train: what it learns from, or a sample of that: see `LEARNED_ROWS`.
        answers: the label of each row or its value, and logistic or ridge regression gives predictions; or rows of 0
            and 1, one number for each label, and a logistic regression for each gives their probabilities.
        balanced: classes count alike in its loss.
    """
    from threadpoolctl import threadpool_limits

    @cache
    def learned() -> Callable[[Sequence[TextExample]], list[Any]]:
        picked = learned_from(train)
        known, several = answers[picked], answers.ndim == 2
        classes = several or known.dtype.kind == "U"
        if len({*known.ravel().tolist()}) == 1:
            one = known.flat[0].item()
            only: Any = {"label": one, "probabilities": {one: 1.0}} if classes else {"value": one}
            only = [float(one)] * known.shape[1] if several else only
            return lambda examples: [only for _ in examples]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not exact to the last digit; a label that every row has, or none
            matrix, read = features([train[index] for index in picked])
            some = np.sort(np.random.default_rng(1).permutation(len(known))[:TRIED_ROWS])
            model = linear(matrix, classes=classes, balanced=balanced)
            model = chosen(*model, matrix[some], known[some], examples=some, classes=classes)
            model.fit(matrix, known)
        if several:
            return lambda examples: list(model.predict_proba(read(examples))[:, -known.shape[1] :].tolist())
        if not classes:
            return lambda examples: [{"value": value} for value in model.predict(read(examples)).tolist()]

        def classify(examples: Sequence[TextExample]) -> list[Any]:
            matrix, labels = read(examples), model.classes_.tolist()
            both = zip(model.predict(matrix).tolist(), model.predict_proba(matrix).tolist(), strict=True)
            return [{"label": label, "probabilities": dict(zip(labels, shares, strict=True))} for label, shares in both]

        return classify

    def predict(examples: Sequence[TextExample]) -> list[Any]:
        with threadpool_limits(1):
            return learned()(examples)

    return predict


def learned_from(train: Sequence[TextExample]) -> Indices:
    """The rows that a baseline learns from, in order: see `LEARNED_ROWS`."""
    letters = sum(len(one.text) + len(one.pair or "") for one in train)
    most = min(LEARNED_ROWS, len(train), len(train) * LEARNED_CHARACTERS // max(letters, 1) + 1)
    return np.sort(np.random.default_rng(0).permutation(len(train))[:most])


def linear(matrix: Any, *, classes: bool, balanced: bool = False) -> tuple[Any, dict[str, list[float]]]:
    """A linear model for a matrix of features, sparse or not, and the weights of its penalty to try."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.multiclass import OneVsRestClassifier

    if not classes:
        return Ridge(solver="sparse_cg"), {"alpha": [0.1, 1.0, 10.0]}
    weights = "balanced" if balanced else None
    if not sparse.issparse(matrix):
        return LogisticRegression(max_iter=100, class_weight=weights), {"C": [0.1, 10.0, 1000.0]}
    # in the dual: there are more features than rows
    one = LogisticRegression(solver="liblinear", dual=True, random_state=0, class_weight=weights)
    return OneVsRestClassifier(one), {"estimator__C": [1.0, 10.0, 100.0]}


def chosen(
    model: Any,
    tried: Mapping[str, Sequence[Any]],
    matrix: Any,
    answers: NDArray[np.generic],
    *,
    examples: Indices,
    classes: bool,
) -> Any:
    """The model with the values that are best in cross-validation, not fitted yet; with the second of each where no
    class has enough examples to hold one out, or there are more than `TRIED_CLASSES`.

    Args:
        tried: name of the parameter -> values to try.
        examples: of which example each row is.
        classes: the answers are classes; else numbers.
    """
    from sklearn.model_selection import GridSearchCV, KFold, PredefinedSplit

    if answers.ndim == 2:
        few, split = len(answers) < 5, KFold(5, shuffle=True, random_state=0)
    else:
        fold = folds(answers, examples, classes=classes)
        many = classes and len(np.unique(answers)) > TRIED_CLASSES
        few, split = many or fold.max() < 0, PredefinedSplit(fold)
    if few:
        return model.set_params(**{name: values[1] for name, values in tried.items()})
    scoring: Any = _likelihood if classes else "neg_mean_squared_error"
    search = GridSearchCV(model, tried, cv=split, scoring=scoring, refit=False)
    return model.set_params(**search.fit(matrix, answers).best_params_)


def _likelihood(model: Any, matrix: Any, answers: NDArray[Any]) -> float:
    """The mean log-likelihood of the classes of rows, also where some class has none, or of 0 or 1 for each label,
    [rows, C].
    """
    shares = model.predict_proba(matrix)
    if answers.ndim == 2:
        shares = np.where(answers, shares[:, -answers.shape[1] :], 1 - shares[:, -answers.shape[1] :])
    else:
        shares = shares[np.arange(len(answers)), np.searchsorted(model.classes_, answers)]
    return float(np.log(np.maximum(shares, 1e-300)).mean())


def folds(answers: NDArray[np.generic], examples: Indices, *, classes: bool) -> Indices:
    """The fold in which each row is held out; -1: in none, since fewer than `FOLDS` examples have its class.

    Drawn by example: a pair that is there in both orders is never fitted in one and scored in the other.
    """
    fold = np.full(len(answers), -1)
    strata = [np.flatnonzero(answers == one) for one in np.unique(answers)] if classes else [np.arange(len(answers))]
    for mine in strata:
        names = np.unique(examples[mine])
        if len(names) >= FOLDS:
            of = np.empty(len(names), dtype=np.int64)
            of[drawn("folds of a probe", count=len(names), total=len(names))] = np.arange(len(names)) % FOLDS
            fold[mine] = of[np.searchsorted(names, examples[mine])]
    return fold


def tf_idf(train: Sequence[TextExample]) -> tuple[Any, Reads]:
    """TF-IDF of words and pairs of words, and of 2 to 5 characters within words; sparse.

    The two texts of a pair have separate features, and numbers that say how much they share: without these, tasks such
    as paraphrase would have no baseline.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    vectorizer = make_union(
        TfidfVectorizer(analyzer=terms, sublinear_tf=True, max_features=TERMS),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True, max_features=TERMS),
    ).fit([_written(text) for example in train for text in (example.text, example.pair) if text is not None])
    return _counted(train, vectorizer), partial(_counted, vectorizer=vectorizer)


def _written(text: str) -> str:
    """The text; a sign in place of an empty one, for a vocabulary may not be empty."""
    return text if text.strip() else "∅"


def _counted(examples: Sequence[TextExample], vectorizer: Any) -> Any:
    """Sparse [examples, features]."""
    from scipy import sparse

    first = vectorizer.transform([_written(example.text) for example in examples])
    if all(example.pair is None for example in examples):
        return first
    second = vectorizer.transform([_written(example.pair or "") for example in examples])
    alike = np.asarray(first.multiply(second).sum(axis=1))
    shared = np.array([_shared(example.text, example.pair or "") for example in examples])
    return sparse.hstack([first, second, sparse.csr_matrix(np.hstack([alike, shared]))], format="csr")


def _shared(first: str, second: str) -> NDArray[np.float64]:
    """Common terms as shares of the first text's, the second's and all terms, float64 [3]."""
    one, two = set(terms(first)), set(terms(second))
    both = len(one & two)
    return np.array([both / len(one), both / len(two), both / len(one | two)])


def terms(text: str) -> list[str]:
    """Lower-case words and punctuation, and every two neighbours; an empty text has one term."""
    predicted = words(text)
    return predicted + [f"{one} {two}" for one, two in pairwise(predicted)] or [" "]


def words(text: str) -> list[str]:
    """Lower-case words, with the marks that combine with their letters, and punctuation."""
    return _WORD.findall(text.lower())


def overlap_features(train: Sequence[TextExample]) -> tuple[Any, Reads]:
    """float32 [pairs, 8], see `_overlap`, of `train`, and a function that computes the same of other pairs.

    Each number has mean 0 and standard deviation 1 over `train`, whose texts also decide the words' idf.
    """
    from sklearn.preprocessing import StandardScaler

    containing = Counter(word for example in train for side in _sides(example) for word in set(side))

    def read(examples: Sequence[TextExample]) -> NDArray[np.float32]:
        return _overlaps(examples, containing, 2 * len(train))

    scaler = StandardScaler(copy=False)
    return scaler.fit_transform(read(train)), lambda examples: scaler.transform(read(examples))


def _sides(example: TextExample) -> list[list[str]]:
    return [words(text) for text in (example.text, example.pair or "")]


def _overlaps(examples: Sequence[TextExample], containing: Counter[str], texts: int) -> NDArray[np.float32]:
    """float32 [pairs, 8], see `_overlap`; `containing` counts the texts that have a word, of `texts`."""
    pairs = [[side or [""] for side in _sides(example)] for example in examples]
    known = sorted({word for pair in pairs for side in pair for word in side})
    number = {word: index for index, word in enumerate(known)}
    vector_VW = spelling_vectors([f"<{word}>" for word in known], width=WIDTH)
    idf_V = inverse_frequency([containing[word] for word in known], texts)
    places = [[[number[word] for word in side] for side in pair] for pair in pairs]
    rows = [_overlap(vector_VW[a], vector_VW[b], idf_V[a], idf_V[b]) for a, b in places]
    return np.stack(rows).astype(np.float32)


def inverse_frequency(containing: Any, texts: int) -> Array:
    """idf, above 0 also where a word is in every text: log((texts + 2) / (containing + 1)).

    Args:
        containing: number of texts that contain each word.
    """
    weight: Array = np.log((texts + 2) / (np.asarray(containing) + 1))
    return weight


def spelling_vectors(spelled: Sequence[str], *, width: int) -> Any:
    """The sum of fixed random vectors of each word's n-grams of 3 to 5 characters, of length 1 (or 0), [words, width].

    Args:
        spelled: words; `<` and `>` mark where one begins and ends.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    table_GW = np.random.default_rng(0).standard_normal((_GRAMS, width), dtype=np.float32)
    grams = HashingVectorizer(
        analyzer="char", ngram_range=(3, 5), n_features=_GRAMS, alternate_sign=False, norm=None, lowercase=False
    )
    vector_VW = grams.transform(spelled) @ table_GW
    return vector_VW / np.maximum(np.linalg.norm(vector_VW, axis=1, keepdims=True), 1e-9)


def _overlap(a_NW: Array, b_MW: Array, idf_N: Array, idf_M: Array) -> Array:
    """Eight numbers from the texts' unit vectors and idf: how well the words of A are matched in B by their cosines,
    B's in A, the smaller and the mean of the two, all weighted by idf; the cosine of the idf-weighted means; the mean
    match and the cosine without idf; the ratio of lengths.
    """
    cosine_NM = a_NW @ b_MW.T
    best_N, best_M = cosine_NM.max(1), cosine_NM.max(0)
    there, back = best_N @ idf_N / idf_N.sum(), best_M @ idf_M / idf_M.sum()
    weighted, plain = _cosine(idf_N @ a_NW, idf_M @ b_MW), _cosine(a_NW.sum(0), b_MW.sum(0))
    ratio = min(len(a_NW), len(b_MW)) / max(len(a_NW), len(b_MW))
    match = (there, back, min(there, back), (there + back) / 2, (best_N.mean() + best_M.mean()) / 2)
    return np.array([*match, weighted, plain, ratio])


def _cosine(one_W: Array, two_W: Array) -> float:
    return float(one_W @ two_W) / max(float(np.linalg.norm(one_W) * np.linalg.norm(two_W)), 1e-9)
