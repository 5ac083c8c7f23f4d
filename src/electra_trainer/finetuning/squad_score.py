"""Exact match and F1 as SQuAD's official scripts define them (evaluate-v1.1.py, evaluate-v2.0.py), written anew. No
torch here.

Both compare words after lower-casing, taking out ASCII punctuation and the articles a, an, the. The best true answer
counts. In 2.0 a question without an answer has one true answer, the empty text; an answer that is nothing but articles
and punctuation is not counted among the true ones; and an answer is given only where the "no answer" score is not above
a threshold.

The best spans of all windows of a question -> one answer, in the context's own letters.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from electra_trainer.finetuning import examples, task
from electra_trainer.finetuning.squad_files import Question
from electra_trainer.finetuning.windows import Spans, Window

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


class Threshold(NamedTuple):
    """Where to stop answering, and what that scores."""

    score: float
    threshold: float


def normalize(text: str) -> str:
    """The words that count, with one space between them."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """1 if the same words are in the same order, else 0."""
    return float(normalize(gold) == normalize(predicted))


def f1(gold: str, predicted: str, *, version: Literal[1, 2]) -> float:
    """Harmonic mean of the shares of words that two answers have in common.

    Of two answers without a word 1.1 says 0, 2.0 says 1.
    """
    left, right = normalize(gold).split(), normalize(predicted).split()
    if not left or not right:
        return float(version == 2 and left == right)
    common = sum((Counter(left) & Counter(right)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(right), common / len(left)
    return 2 * precision * recall / (precision + recall)


def question_scores(golds: Sequence[str], predicted: str, *, version: Literal[1, 2]) -> tuple[float, float]:
    """Exact match and F1 of one question: the best over its true answers; none of them: it has no answer (2.0)."""
    if version == 2:
        golds = [gold for gold in golds if normalize(gold)] or [""]
    return max(exact_match(gold, predicted) for gold in golds), max(
        f1(gold, predicted, version=version) for gold in golds
    )


def score_v1(golds: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """`f1` and `exact_match` of SQuAD 1.1, means over questions."""
    scores = [question_scores(gold, text, version=1) for gold, text in zip(golds, predicted, strict=True)]
    return {"f1": _mean([one[1] for one in scores]), "exact_match": _mean([one[0] for one in scores])}


def score_v2(
    golds: Sequence[Sequence[str]], predicted: Sequence[str], no_answer: Sequence[float], *, threshold: float
) -> dict[str, float]:
    """Scores of SQuAD 2.0.

    Args:
        golds: true answers of each question; none: it has no answer.
        predicted: the best answer to each, had one to be given.
        no_answer: the larger, the less likely there is one.
        threshold: no answer is given where `no_answer` is above it.

    Returns:
        `best_f1` and `best_exact_match`, at the thresholds that are best for these very questions; `f1` and
        `exact_match` at `threshold`; of the latter, where there are such, `has_answer_f1`, `has_answer_exact_match` of
        questions with an answer, `no_answer_accuracy` of the others; and the thresholds: `threshold`,
        `best_f1_threshold`, `best_exact_match_threshold`.
    """
    raw = [question_scores(gold, text, version=2) for gold, text in zip(golds, predicted, strict=True)]
    best_exact, best_overlap = best_thresholds(golds, predicted, no_answer)
    cases = list(zip(raw, no_answer, golds, strict=True))
    exact, overlap = ([float(not gold) if null > threshold else one[n] for one, null, gold in cases] for n in (0, 1))
    scores = {"best_f1": best_overlap.score, "best_exact_match": best_exact.score}
    scores |= {"f1": _mean(overlap), "exact_match": _mean(exact)}
    if any(golds):
        scores["has_answer_f1"] = _mean([one for one, gold in zip(overlap, golds, strict=True) if gold])
        scores["has_answer_exact_match"] = _mean([one for one, gold in zip(exact, golds, strict=True) if gold])
    if not all(golds):
        scores["no_answer_accuracy"] = _mean([one for one, gold in zip(exact, golds, strict=True) if not gold])
    best = {"best_f1_threshold": best_overlap.threshold, "best_exact_match_threshold": best_exact.threshold}
    return scores | {"threshold": threshold, **best}


def best_thresholds(
    golds: Sequence[Sequence[str]], predicted: Sequence[str], no_answer: Sequence[float]
) -> tuple[Threshold, Threshold]:
    """`best_threshold` by exact match, and by F1; arguments as of `score_v2`."""
    raw = [question_scores(gold, text, version=2) for gold, text in zip(golds, predicted, strict=True)]
    answered = [bool(gold) for gold in golds]
    exact, overlap = (best_threshold([one[part] for one in raw], predicted, no_answer, answered) for part in (0, 1))
    return exact, overlap


def best_threshold(
    raw: Sequence[float], predicted: Sequence[str], no_answer: Sequence[float], answered: Sequence[bool]
) -> Threshold:
    """The threshold of the highest mean score, as the official script looks for it.

    From "never answer" on, questions are answered in the order of their `no_answer`. Like the script it may stop
    between two that are equal, where no threshold can. Where never to answer is best, the threshold is below all of
    them; the script says 0 there.

    Args:
        raw: the score of each question if it is answered.
        answered: whether it has an answer.
    """
    total = best = float(sum(not has for has in answered))
    threshold = math.nextafter(min(no_answer, default=0.0), -math.inf)
    for index in sorted(range(len(raw)), key=lambda index: no_answer[index]):
        total += raw[index] if answered[index] else -float(bool(predicted[index]))
        if total > best:
            best, threshold = total, no_answer[index]
    return Threshold(score=best / max(len(raw), 1), threshold=threshold)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def decode(
    questions: Sequence[Question],
    rows: Sequence[task.Row],
    predicted: Sequence[Spans],
    *,
    n_best: int,
    null_threshold: float | None,
    null_against_best: bool,
) -> list[examples.Prediction]:
    """One prediction a question.

    Args:
        rows: with a `Window` as their place.
        predicted: the head's output for each row.
        n_best: answers that are kept of each question; equal texts are one, with the better score.
        null_threshold: the text is empty where `no_answer_score` is above it; None: an answer is always given.
        null_against_best: `no_answer_score` is how much better the null span is than the best one (BERT); else it is
            the head's own (XLNet). Either way that of the window which likes it least.

    Returns:
        {"id", "text", "score", "probability", "no_answer_score", "nbest": [{"text", "start", "end", "score",
        "probability"}]} with `start` and `end` in characters of the context. "score" and "probability" are those of the
        best answer, also where "text" is empty; probabilities are shares among the `nbest`.
    """
    rows_of: list[list[int]] = [[] for _ in questions]
    for number, row in enumerate(rows):
        rows_of[row.example].append(number)
    predictions: list[examples.Prediction] = []
    for question, numbers in zip(questions, rows_of, strict=True):
        nbest = _nbest(question.context, [(rows[n].place, predicted[n]) for n in numbers], n_best)
        null = min((predicted[n].no_answer for n in numbers), default=0.0)
        if null_against_best and nbest:
            null -= nbest[0]["score"]
        best = nbest[0] if nbest else {"text": "", "score": None, "probability": 0.0}
        silent = null_threshold is not None and null > null_threshold
        predictions.append(
            {
                "id": question.id,
                "text": "" if silent else best["text"],
                "score": best["score"],
                "probability": best["probability"],
                "no_answer_score": null,
                "nbest": nbest,
            }
        )
    return predictions


def best_text(prediction: examples.Prediction) -> str:
    """The answer that is given where one has to be."""
    nbest = prediction["nbest"]
    return str(nbest[0]["text"]) if nbest else ""


def _nbest(context: str, windows: Sequence[tuple[Window, Spans]], count: int) -> list[examples.Prediction]:
    spans = [
        (score, *_trimmed(context, *window.characters(start, end)))
        for window, predicted in windows
        for start, end, score in zip(predicted.starts, predicted.ends, predicted.scores, strict=True)
    ]
    kept: dict[str, examples.Prediction] = {}
    for score, begin, end in sorted(spans, key=lambda span: -span[0]):
        text = context[begin:end]
        if text and text not in kept:
            kept[text] = {"text": text, "start": begin, "end": end, "score": score}
        if len(kept) == count:
            break
    nbest = list(kept.values())
    weights = [math.exp(one["score"] - nbest[0]["score"]) for one in nbest]
    for one, weight in zip(nbest, weights, strict=True):
        one["probability"] = weight / sum(weights)
    return nbest


def _trimmed(context: str, begin: int, end: int) -> tuple[int, int]:
    """Without spaces at either end (some tokenizers count the space before a word to its token), with the last letter's
    accents.
    """
    text = context[begin:end]
    begin, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    while end < len(context) and unicodedata.combining(context[end]):
        end += 1
    return begin, end


_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)", re.DOTALL)


def most_alike(questions: Sequence[Question]) -> list[examples.Prediction]:
    """A baseline: the sentence of each context with the largest share of the question's words, of equals the shortest.

    Its "no answer" score is the missing share, so for SQuAD 2.0 read its scores at the best threshold.
    """
    predictions = []
    for question in questions:
        asked = set(normalize(question.question).split())
        sentences = [match.group() for match in _SENTENCE.finditer(question.context)]
        shares = [len(asked & set(normalize(sentence).split())) / max(len(asked), 1) for sentence in sentences]
        best = max(range(len(sentences)), key=lambda index: (shares[index], -len(sentences[index])))
        place = {"text": sentences[best], "start": question.context.index(sentences[best])}
        predicted = {"id": question.id, "text": sentences[best], "no_answer_score": 1 - shares[best], "nbest": [place]}
        predictions.append(predicted)
    return predictions


def never(questions: Sequence[Question]) -> list[examples.Prediction]:
    """A baseline of 2.0: no answer to any question."""
    return [{"id": question.id, "text": "", "no_answer_score": 0.0, "nbest": []} for question in questions]
