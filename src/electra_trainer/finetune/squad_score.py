"""Exact match and F1 as SQuAD's official scripts define them (evaluate-v1.1.py, evaluate-v2.0.py), written anew. No torch here.

Both compare words after lower-casing, taking out ASCII punctuation and the articles a, an, the. The best true answer counts. In 2.0
a question without an answer has one true answer, the empty text; an answer that is nothing but articles and punctuation is not counted
among the true ones; and an answer is given only where the "no answer" score is not above a threshold.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Where to stop answering, and what that scores."""

    score: float
    threshold: float


def normalize(text: str) -> str:
    """The words that count, with one space between them."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, said: str) -> float:
    """1 where the same words stand in the same order, else 0."""
    return float(normalize(gold) == normalize(said))


def f1(gold: str, said: str, *, version: Literal[1, 2]) -> float:
    """Harmonic mean of the shares of words that two answers have in common.

    Of two answers without a word 1.1 says 0, 2.0 says 1.
    """
    left, right = normalize(gold).split(), normalize(said).split()
    if not left or not right:
        return float(version == 2 and left == right)
    common = sum((Counter(left) & Counter(right)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(right), common / len(left)
    return 2 * precision * recall / (precision + recall)


def question_scores(golds: Sequence[str], said: str, *, version: Literal[1, 2]) -> tuple[float, float]:
    """Exact match and F1 of one question: the best over its true answers; none of them: it has no answer (2.0)."""
    if version == 2:
        golds = [gold for gold in golds if normalize(gold)] or [""]
    return max(exact_match(gold, said) for gold in golds), max(f1(gold, said, version=version) for gold in golds)


def score_v1(golds: Sequence[Sequence[str]], said: Sequence[str]) -> dict[str, float]:
    """`f1` and `exact_match` of SQuAD 1.1, means over questions."""
    scores = [question_scores(gold, text, version=1) for gold, text in zip(golds, said, strict=True)]
    return {"f1": _mean([one[1] for one in scores]), "exact_match": _mean([one[0] for one in scores])}


def score_v2(
    golds: Sequence[Sequence[str]], said: Sequence[str], no_answer: Sequence[float], *, threshold: float
) -> dict[str, float]:
    """Scores of SQuAD 2.0.

    Args:
        golds: true answers of each question; none: it has no answer.
        said: the best answer to each, had one to be given.
        no_answer: the larger, the less likely there is one.
        threshold: no answer is given where `no_answer` is above it.

    Returns:
        `best_f1` and `best_exact_match`, at the thresholds that are best for these very questions; `f1` and `exact_match` at
        `threshold`; of the latter, where there are such, `has_answer_f1`, `has_answer_exact_match` of questions with an answer,
        `no_answer_accuracy` of the others; and the thresholds: `threshold`, `best_f1_threshold`, `best_exact_match_threshold`.
    """
    raw = [question_scores(gold, text, version=2) for gold, text in zip(golds, said, strict=True)]
    best_exact, best_overlap = best_thresholds(golds, said, no_answer)
    answered = [bool(gold) for gold in golds]
    exact, overlap = (
        [float(not has) if null > threshold else one[part] for one, null, has in zip(raw, no_answer, answered, strict=True)]
        for part in (0, 1)
    )  # fmt: skip
    scores = {
        "best_f1": best_overlap.score,
        "best_exact_match": best_exact.score,
        "f1": _mean(overlap),
        "exact_match": _mean(exact),
    }
    if any(answered):
        scores["has_answer_f1"] = _mean([one for one, has in zip(overlap, answered, strict=True) if has])
        scores["has_answer_exact_match"] = _mean([one for one, has in zip(exact, answered, strict=True) if has])
    if not all(answered):
        scores["no_answer_accuracy"] = _mean([one for one, has in zip(exact, answered, strict=True) if not has])
    return scores | {
        "threshold": threshold,
        "best_f1_threshold": best_overlap.threshold,
        "best_exact_match_threshold": best_exact.threshold,
    }


def best_thresholds(
    golds: Sequence[Sequence[str]], said: Sequence[str], no_answer: Sequence[float]
) -> tuple[Threshold, Threshold]:
    """`best_threshold` by exact match, and by F1; arguments as of `score_v2`."""
    raw = [question_scores(gold, text, version=2) for gold, text in zip(golds, said, strict=True)]
    answered = [bool(gold) for gold in golds]
    exact, overlap = (best_threshold([one[part] for one in raw], said, no_answer, answered) for part in (0, 1))
    return exact, overlap


def best_threshold(
    raw: Sequence[float], said: Sequence[str], no_answer: Sequence[float], answered: Sequence[bool]
) -> Threshold:
    """The threshold of the highest mean score, as the official script looks for it.

    From "never answer" on, questions are answered in the order of their `no_answer`. Like the script it may stop between two that are
    equal, where no threshold can. Where never to answer is best, the threshold is below all of them; the script says 0 there.

    Args:
        raw: the score of each question if it is answered.
        answered: whether it has an answer.
    """
    total = best = float(sum(not has for has in answered))
    threshold = math.nextafter(min(no_answer, default=0.0), -math.inf)
    for index in sorted(range(len(raw)), key=lambda index: no_answer[index]):
        total += raw[index] if answered[index] else -float(bool(said[index]))
        if total > best:
            best, threshold = total, no_answer[index]
    return Threshold(score=best / max(len(raw), 1), threshold=threshold)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)
