"""What one scores at questions without having learned anything: the sentence with most of the question's words, or no answer at all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from electra_trainer.finetune.squad_files import Question
from electra_trainer.finetune.squad_score import normalize
from electra_trainer.finetune.task import Prediction

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
