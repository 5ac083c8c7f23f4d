"""What one scores at questions without having learned anything: the sentence with most of the question's words is the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from electra_trainer.finetune.squad_files import Question
from electra_trainer.finetune.squad_score import normalize
from electra_trainer.finetune.task import Prediction, TaskData

_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)", re.DOTALL)


def most_alike(question: Question) -> Prediction:
    """The sentence of the context with the largest share of the question's words, the shortest of equals; its "no answer" score is the
    share that is missing.
    """
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


def overlap_floor(data: TaskData) -> dict[str, dict[str, float]]:
    """Scores of `most_alike` by split and metric, with the task's own scorer; in 2.0 the best-threshold ones are those to look at."""
    return {split: data.task.score(questions, _answers(questions)) for split, questions in data.dev.items()}


def _answers(questions: Sequence[Question]) -> list[Prediction]:
    return [most_alike(question) for question in questions]
