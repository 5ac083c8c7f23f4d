"""Overlap of two texts without an encoder: best matches between the random vectors of their words, as numbers for a
linear model.

A word's vector is the sum of random vectors of its character n-grams (as fastText's, but never trained), so forms of a
word are alike.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from electra_trainer.finetuning.examples import TextExample

Array = NDArray[np.float64]
Reads = Callable[[Sequence[TextExample]], Any]
"""Examples -> a matrix of their features, [examples, features]."""
WIDTH = 128
"""Numbers in a word's vector, as many as `tiny` has."""
_GRAMS = 1 << 16
"""Random vectors that n-grams are hashed to."""
_WORD = re.compile(r"\w+|[^\w\s]")


def words(text: str) -> list[str]:
    """Lower-case words and punctuation."""
    return _WORD.findall(text.lower())


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


def overlap_features(train: Sequence[TextExample]) -> tuple[Any, Reads]:
    """float32 [pairs, 8], see `_overlap`, of `train`, and a function that computes the same of other pairs.

    Each number has mean 0 and standard deviation 1 over `train`, whose texts also decide the words' idf.
    """
    from sklearn.preprocessing import StandardScaler

    texts = [set(words(text)) for example in train for text in (example.text, example.pair or "")]
    containing = Counter(word for text in texts for word in text)

    def read(examples: Sequence[TextExample]) -> NDArray[np.float32]:
        sides = [[words(text) or [""] for text in (example.text, example.pair or "")] for example in examples]
        number = {
            word: index for index, word in enumerate(sorted({word for pair in sides for text in pair for word in text}))
        }
        vector_VW = spelling_vectors([f"<{word}>" for word in number], width=WIDTH)
        idf_V = inverse_frequency([containing[word] for word in number], len(texts))
        rows = []
        for pair in sides:
            a, b = ([number[word] for word in text] for text in pair)
            rows.append(_overlap(vector_VW[a], vector_VW[b], idf_V[a], idf_V[b]))
        return np.stack(rows).astype(np.float32)

    scaler = StandardScaler(copy=False)
    return scaler.fit_transform(read(train)), lambda examples: scaler.transform(read(examples))


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
