"""SQuAD's JSON files, 1.1 and 2.0, read strictly: an error says where in the file. No torch here.

{"version": "v2.0", "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
    {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...], "is_impossible": false}]}]}]}
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.files.reading import MOST_TEXT, encodable, parse_json, read_file, short

T = TypeVar("T")
_MOST = 20_000_000
"""Values in a file; SQuAD 1.1's training file has 0.8 million."""
_WORDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A true answer."""

    text: str
    start: int | None
    """Its first character in the context, spaces before it left out; None: it does not occur there, and can only be scored against."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    """Empty: the context does not answer it (2.0), or it is to be predicted."""
    article: str = ""
    """What an article is called; paragraphs of one article stay together when a file is split."""
    place: str = ""
    """`file: data[3].paragraphs[0].qas[2]`, for messages."""


@dataclass(frozen=True, kw_only=True)
class SquadFile:
    """What a file holds, in its order."""

    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    """What was repaired or is missing, in sentences."""
    content: bytes


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file of either version, to be answered: answers in it are not looked at.

    Raises:
        MissingInputError, StorageError: it cannot be read. DataError: it is not SQuAD's layout, with the place.
    """
    return _Reader(path, version=2, labelled=False).questions


def read_squad(path: Path, *, version: Literal[1, 2]) -> SquadFile:
    """Read a file of SQuAD 1.1 (`version` 1: every question is answered) or 2.0 (`version` 2).

    An `answer_start` that does not point at its text is moved to the nearest occurrence; a text that does not occur is kept
    for scoring. Both are counted in the notes.

    Raises:
        MissingInputError, StorageError: it cannot be read. DataError: it is not SQuAD of that version, with the place.
    """
    reader = _Reader(path, version=version)
    return SquadFile(questions=reader.questions, notes=tuple(reader.notes()), content=reader.content)


def sample(questions: Sequence[Question], limit: int | None) -> tuple[Question, ...]:
    """`limit` of the questions, from all over the file (those whose ids hash lowest), in their order: always the same ones."""
    if limit is None or limit >= len(questions):
        return tuple(questions)
    order = sorted(range(len(questions)), key=lambda index: _hash(questions[index].id))
    return tuple(questions[index] for index in sorted(order[:limit]))


def split_by_article(
    questions: Sequence[Question], *, dev_share: float, where: str
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Two parts without an article in common: training, and about `dev_share` of the questions for evaluation.

    Articles go to the second part in the order of their titles' hashes until it is large enough, so a file is always split alike.

    Raises:
        DataError: there is only one article.
    """
    sizes = Counter(question.article for question in questions)
    if len(sizes) < 2:
        raise DataError(f"{where}: holds one article, so it cannot be split by article. Give a second file as --dev.")
    chosen: set[str] = set()
    taken = 0
    for article in sorted(sizes, key=_hash)[:-1]:
        if chosen and taken + sizes[article] / 2 > dev_share * len(questions):
            break
        chosen.add(article)
        taken += sizes[article]
    dev = tuple(question for question in questions if question.article in chosen)
    return tuple(question for question in questions if question.article not in chosen), dev


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class _Reader:
    """Walks down a file and counts its oddities."""

    def __init__(self, path: Path, *, version: Literal[1, 2], labelled: bool = True) -> None:
        self.path, self.version, self.labelled = path, version, labelled
        self.places: dict[str, str] = {}
        self.count: Counter[str] = Counter()
        """Questions that are `answered` or `unanswerable`; answers that were `found`, `moved` or are `nowhere`."""
        self.content = read_file(path, limit=MOST_TEXT)
        lines = self.content.lstrip()[:1] == b"{" and self.content.count(b"\n{")
        remedy = f"Expected one object of SQuAD's layout.{' It looks like JSON Lines.' if lines else ''}"
        top = parse_json(self.content, where=str(path), remedy=remedy, most=_MOST)
        if not isinstance(top, dict) or "data" not in top:
            near = did_you_mean("data", top) if isinstance(top, dict) else ""
            raise DataError(
                f'{path}: is not SQuAD\'s layout.{near} Expected {{"data": [{{"title", "paragraphs": [{{"context", "qas"}}]}}]}}.'
            )
        self.questions = tuple(self.question(*found) for found in _entries(top, str(path)))
        if not self.questions:
            raise DataError(f"{path}: holds no questions.")
        if self.count["answered"] and not self.count["found"]:
            raise DataError(
                f"{path}: none of its answers occurs in its context. Expected answers that are parts of their contexts, to the letter."
            )

    def question(self, entry: Any, where: str, context: str, article: str) -> Question:
        question, name = _text(entry, "question", where), _text(entry, "id", where)
        if name in self.places:
            raise DataError(f"{where}.id: {short(name)} is also at {self.places[name]}. Expected different ids.")
        self.places[name] = where
        found = Question(id=name, question=question, context=context, article=article, place=where)
        if not self.labelled:
            return found
        answers, told = _field(entry, "answers", list, where), "is_impossible" in entry
        impossible = _field(entry, "is_impossible", bool, where) if told else not answers
        if impossible and self.version == 1:
            what = "is_impossible" if told else "no answers"
            raise DataError(f"{where}: has no answer ({what}), as questions of SQuAD 2.0 may. Type --version 2.")
        if impossible and answers:
            raise DataError(
                f"{where}: is_impossible, and yet answers has {len(answers)}. Expected an empty list, or is_impossible false."
            )
        if not impossible and not answers:
            raise DataError(f"{where}.answers: is empty. Expected an answer or more, or is_impossible true.")
        self.count["unanswerable" if impossible else "answered"] += 1
        answered = [self.answer(one, f"{where}.answers[{index}]", context) for index, one in enumerate(answers)]
        return replace(found, answers=tuple(answered))

    def answer(self, entry: Any, where: str, context: str) -> Answer:
        text = _text(entry, "text", where)
        said = _field(entry, "answer_start", int, where) + len(text) - len(text.lstrip())
        stands = said >= 0 and context.startswith(text.strip(), said)
        start = said if stands else nearest(context, text.strip(), said)
        self.count["nowhere" if start is None else "found"] += 1
        self.count["moved"] += not stands and start is not None
        return Answer(text=text, start=start)

    def notes(self) -> Iterator[str]:
        file, count = self.path.name, self.count
        if count["moved"]:
            yield f"{file}: {count['moved']:,} answers were not at their answer_start; the nearest place was taken."
        if count["nowhere"]:
            yield f"{file}: {count['nowhere']:,} answers do not occur in their contexts; none is trained on."
        if self.version == 2 and not count["unanswerable"]:
            yield f"{file}: every question has an answer, as in SQuAD 1.1; --version 2 was asked for."


def _entries(top: dict[str, Any], where: str) -> Iterator[tuple[Any, str, str, str]]:
    """Each question with its place, its context and the name of its article."""
    for number, article in enumerate(_field(top, "data", list, where)):
        place = f"{where}: data[{number}]"
        paragraphs = _field(article, "paragraphs", list, place)
        title = _text(article, "title", place) if article.get("title") else f"article {number}"
        for index, paragraph in enumerate(paragraphs):
            inner = f"{place}.paragraphs[{index}]"
            context = _text(paragraph, "context", inner)
            for at, entry in enumerate(_field(paragraph, "qas", list, inner)):
                yield entry, f"{inner}.qas[{at}]", context, title


def nearest(context: str, text: str, start: int) -> int | None:
    """The occurrence of `text` in `context` nearest to `start` (the first of two as near), if any."""
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - start)) if places else None


def _field(table: Any, name: str, kind: type[T], where: str) -> T:
    if not isinstance(table, dict):
        raise DataError(f"{where}: expected an object with {name!r}, found {short(table)}.")
    if name not in table:
        raise DataError(f"{where}: has no {name!r}.{did_you_mean(name, table)}")
    value = table[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{where}.{name}: expected {_WORDS[kind]}, found {short(value)}.")
    return value


def _text(table: Any, name: str, where: str) -> str:
    """A string that is not blank and can be written down."""
    text = _field(table, name, str, where)
    if not text.strip():
        raise DataError(f"{where}.{name}: is blank. Expected text.")
    return encodable(text, f"{where}.{name}")
