"""Questions of SQuAD 1.1, 2.0 and files like them: what is repaired is counted, an error says where. No torch here.

{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": ...}]}]}]}

A file may also be a list of any part of it, down to the Hub's rows {"id", "title", "context", "question", "answers"},
or have one of these objects a line. Answers are [{"text": ..., "answer_start": ...}], or the Hub's {"text": [...],
"answer_start": [...]}. The id may be a number or missing, `is_impossible` missing, `answer_start` wrong; an answer
without text is none.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.files.reading import BOM, MOST_TEXT, encodable, lines, parse_json, read_file, short

T = TypeVar("T")
_MOST = 20_000_000
"""Values in a file; SQuAD 1.1's training file has 0.8 million."""
_WORDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}
_PARTS = ("data", "paragraphs", "qas")
"""Keys of lists of the next smaller part."""
_LAYOUT = '{"data": [{"title", "paragraphs": [{"context", "qas"}]}]}, a list of its parts, or one a line'


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A true answer."""

    text: str
    start: int | None
    """Its first character in the context, spaces before it left out; None: it does not occur there, and can only be
    scored against.
    """


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question about a context."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    """Empty: the context does not answer it (2.0), or it is to be predicted."""
    article: str = ""
    """Name of an article; paragraphs of one article stay together when a file is split."""
    place: str = ""
    """`file: data[3].paragraphs[0].qas[2]`, for messages."""


@dataclass(frozen=True, kw_only=True)
class SquadFile:
    """Content of a file, in its order."""

    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    """Sentences on what was repaired or is missing."""
    content: bytes


def read_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file of either version, to be answered: answers in it are not looked at.

    Raises:
        MissingInputError, StorageError: it cannot be read. DataError: it is not SQuAD's layout, with the place.
    """
    return _Reader(path, version=2, labelled=False).questions


def read_squad(path: Path, *, version: Literal[1, 2]) -> SquadFile:
    """Read a file of SQuAD 1.1 (`version` 1: every question is answered) or 2.0 (`version` 2).

    An `answer_start` that does not point at its text is moved to the nearest occurrence; a text that does not occur is
    kept for scoring. Both are counted in the notes.

    Raises:
        MissingInputError, StorageError: it cannot be read. DataError: it is not SQuAD of that version, with the place.
    """
    reader = _Reader(path, version=version)
    return SquadFile(questions=reader.questions, notes=tuple(reader.notes()), content=reader.content)


def sample(questions: Sequence[Question], limit: int | None) -> tuple[Question, ...]:
    """`limit` of the questions, from all over the file (those whose ids hash lowest), in their order: always the same
    ones.
    """
    if limit is None or limit >= len(questions):
        return tuple(questions)
    order = sorted(range(len(questions)), key=lambda index: _hash(questions[index].id))
    return tuple(questions[index] for index in sorted(order[:limit]))


def split_by_article(
    questions: Sequence[Question], *, dev_share: float, where: str
) -> tuple[tuple[Question, ...], tuple[Question, ...]]:
    """Two parts without an article in common: training, and about `dev_share` of the questions for evaluation.

    Articles go to the second part in the order of their titles' hashes until it is large enough, so a file is always
    split alike. Of a file with one article the paragraphs are split in this way.

    Raises:
        DataError: there is only one paragraph.
    """
    groups = [question.article for question in questions]
    if len(set(groups)) < 2:
        groups = [question.context for question in questions]
    sizes = Counter(groups)
    if len(sizes) < 2:
        raise DataError(f"{where}: holds one paragraph, so it cannot be split. Give a second file as --dev.")
    chosen: set[str] = set()
    taken = 0
    for group in sorted(sizes, key=_hash)[:-1]:
        if chosen and taken + sizes[group] / 2 > dev_share * len(questions):
            break
        chosen.add(group)
        taken += sizes[group]
    both: tuple[list[Question], list[Question]] = ([], [])
    for group, question in zip(groups, questions, strict=True):
        both[group in chosen].append(question)
    return tuple(both[0]), tuple(both[1])


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class _Reader:
    """Walks down a file and counts its oddities."""

    def __init__(self, path: Path, *, version: Literal[1, 2], labelled: bool = True) -> None:
        self.path, self.version, self.labelled = path, version, labelled
        self.places: dict[str, str] = {}
        self.count: Counter[str] = Counter()
        """Questions that are `answered` or `unanswerable`; answers that were `found`; what a note is given for, by its
        name.
        """
        self.examples: dict[str, str] = {}
        """The first case of each note."""
        self.content = read_file(path, limit=MOST_TEXT)
        self.questions = tuple(map(self.question, _entries(self.content, path)))
        if not self.questions:
            raise DataError(f"{path}: holds no questions.")
        if self.count["answered"] and not self.count["found"]:
            raise DataError(
                f"{path}: none of its answers occurs in its context. Expected answers that are parts of their "
                "contexts, to the letter."
            )

    def question(self, entry: "_Entry") -> Question:
        table, where = entry.table, entry.place
        asked, name = _text(table, "question", where), self.name(table, where)
        if name in self.places:
            raise DataError(f"{where}.id: {short(name)} is also at {self.places[name]}. Expected different ids.")
        self.places[name] = where
        found = Question(id=name, question=asked, context=entry.context, article=entry.article, place=where)
        if not self.labelled:
            return found
        silent = None if table.get("is_impossible") is None else _field(table, "is_impossible", bool, where)
        answers = [] if silent and table.get("answers") is None else _answers(table, where)
        impossible = not answers if silent is None else silent
        if impossible and self.version == 1:
            what = "is_impossible" if silent else "no answers"
            raise DataError(f"{where}: has no answer ({what}), as questions of SQuAD 2.0 may. Type --version 2.")
        if impossible and answers:
            self.note("plausible", f"{short(answers[0][0])} at {where}")
        if not impossible and not answers:
            raise DataError(f"{where}.answers: is empty. Expected an answer or more, or is_impossible true.")
        self.count["unanswerable" if impossible else "answered"] += 1
        return (
            found if impossible else replace(found, answers=tuple(self.answer(*one, entry.context) for one in answers))
        )

    def name(self, table: dict[str, Any], where: str) -> str:
        """The id, or the place where the file has none."""
        given = table.get("id")
        if given is None:
            place = where.removeprefix(str(self.path)).lstrip(": ") or "1"
            self.note("unnamed", repr(place))
            return place
        return str(given) if isinstance(given, int) and not isinstance(given, bool) else _text(table, "id", where)

    def answer(self, predicted: str, start: int, where: str, context: str) -> Answer:
        wanted = predicted.strip()
        start += len(predicted) - len(predicted.lstrip())
        if start >= 0 and context.startswith(wanted, start):
            self.count["found"] += 1
            return Answer(text=predicted, start=start)
        found = occurrence(context, wanted, start)
        if found is None:
            self.note("nowhere", f"{short(wanted)} at {where}")
            return Answer(text=predicted, start=None)
        self.count["found"] += 1
        self.note("moved", f"{short(wanted)} at {where}")
        return Answer(text=predicted if found[1] == wanted else found[1], start=found[0])

    def note(self, kind: str, example: str) -> None:
        """Count a case of a note, and keep the first."""
        self.count[kind] += 1
        self.examples.setdefault(kind, example.replace(f"{self.path}: ", "").replace(f"{self.path}:", "line "))

    def notes(self) -> Iterator[str]:
        file, count = self.path.name, self.count
        worded = {
            "unnamed": "questions have no id; each is named by its place",
            "moved": "answers were not at their answer_start; the nearest place was taken",
            "nowhere": "answers do not occur in their contexts; none is trained on",
            "plausible": "questions are impossible and yet have answers; these are taken for plausible ones, and not "
            "used",
        }
        for kind, what in worded.items():
            if count[kind]:
                yield f"{file}: {count[kind]:,} {what}, for example {self.examples[kind]}."
        if self.version == 2 and not count["unanswerable"]:
            yield f"{file}: every question has an answer, as in SQuAD 1.1; --version 2 was asked for."


def _answers(table: dict[str, Any], where: str) -> list[tuple[str, int, str]]:
    """Text, start and place of each answer, as SQuAD or the Hub write them; an answer without text is none."""
    found, place = table.get("answers"), f"{where}.answers"
    if isinstance(found, dict) and "text" in found:
        columns = [
            value if isinstance(value, list) else [value] for value in (found["text"], found.get("answer_start"))
        ]
        if len(columns[0]) != len(columns[1]):
            raise DataError(
                f"{place}: {len(columns[0])} texts and {len(columns[1])} starts. Expected one start for each text."
            )
        found = [{"text": one, "answer_start": start} for one, start in zip(*columns, strict=True)]
    else:
        found = _field(table, "answers", list, where)
    answers = []
    for index, one in enumerate(found):
        if _field(one, "text", str, inner := f"{place}[{index}]").strip():
            answers.append((_text(one, "text", inner), _field(one, "answer_start", int, inner), inner))
    return answers


def occurrence(context: str, wanted: str, start: int) -> tuple[int, str] | None:
    """Place and text of the occurrence nearest to `start` (the first of two as near); spaces and line ends may
    differ.
    """
    spaced = r"\s+".join(map(re.escape, wanted.split()))
    found = [(match.start(), match[1]) for match in re.finditer(f"(?=({spaced}))", context)]
    return min(found, key=lambda one: abs(one[0] - start), default=None)


class _Entry(NamedTuple):
    """A question as it is written."""

    table: dict[str, Any]
    place: str
    """`file: data[3].paragraphs[0].qas[2]`, or `file:7` of JSON Lines."""
    context: str
    article: str
    """The title, or another name that paragraphs of one article have in common."""


def _entries(content: bytes, path: Path) -> Iterator[_Entry]:
    """The questions of a file in its order; DataError: it is in none of the layouts, with the place."""
    if _is_lines(content):
        for number, line in lines(content, path):
            if line.strip():
                where = f"{path}:{number}"
                top = parse_json(line, where=where, remedy="Expected one object a line.", most=_MOST)
                yield from _walk(top, where, number=number)
        return
    top = parse_json(content, where=str(path), remedy="Expected one object of SQuAD's layout.", most=_MOST)
    for at, part in enumerate(top) if isinstance(top, list) else ():
        yield from _walk(part, f"{path}: [{at}]", number=at)
    if not isinstance(top, list):
        yield from _walk(top, str(path), number=0, inner=": ")


def _is_lines(content: bytes) -> bool:
    """Whether the first line is an object, and others follow."""
    first, _, rest = content.removeprefix(BOM).lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    with suppress(DataError):
        return isinstance(parse_json(first, where="", remedy="", most=_MOST), dict)
    return False


def _walk(
    found: Any, place: str, *, number: int, inner: str = ".", context: str = "", article: str = ""
) -> Iterator[_Entry]:
    """The questions of a file, an article, a paragraph or a row. Paragraphs and rows without a title are of one article
    if their contexts are equal.

    Args:
        number: of the part in its list, which names an article without a title.
        inner: separates the place from that of a smaller part.
        context, article: of the larger part.
    """
    part = next((name for name in _PARTS if name in found), "") if isinstance(found, dict) else ""
    if not isinstance(found, dict) or not (part or "question" in found):
        near = did_you_mean("data", found) if isinstance(found, dict) else ""
        raise DataError(f"{place}: is not SQuAD's layout.{near} Expected {_LAYOUT}; found {short(found)}.")
    title = found.get("title")
    if title and part != "data":
        article = article or (str(title) if type(title) is int else _text(found, "title", place))
    article = article or (f"article {number}" if part == "paragraphs" else "")
    if part in ("", "qas") and not context:
        context = _text(found, "context", place)
    if not part:
        yield _Entry(found, place, context, article or context)
        return
    for at, one in enumerate(_field(found, part, list, place)):
        yield from _walk(one, f"{place}{inner}{part}[{at}]", number=at, context=context, article=article)


def _field(table: Any, name: str, kind: type[T], where: str) -> T:
    """A value of an object; DataError: it is missing, or of another kind."""
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
    found = _field(table, name, str, where)
    if not found.strip():
        raise DataError(f"{where}.{name}: is blank. Expected text.")
    return encodable(found, f"{where}.{name}")
