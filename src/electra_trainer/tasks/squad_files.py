"""Questions of SQuAD 1.1 and 2.0; an error says where. No torch here.

{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": ...}]}]}]}

A file may also have the Hub's rows {"id", "title", "context", "question", "answers"}, one a line. Answers are
[{"text": ..., "answer_start": ...}], or the Hub's {"text": [...], "answer_start": [...]}. `answer_start` may be wrong;
an answer without text is none.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from electra_trainer.errors import DataError
from electra_trainer.files.reading import BOM, MOST_TEXT, encodable, lines, parse_json, read_file, short
from electra_trainer.tasks.examples import hash_of

T = TypeVar("T")
_MOST = 20_000_000
"""Values in a file; SQuAD 1.1's training file has 0.8 million."""
_WORDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}
_LAYOUT = 'Expected {"data": [{"title", "paragraphs": [{"context", "qas"}]}]}, or a row a line.'


@dataclass(frozen=True, kw_only=True)
class TrueAnswer:
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
    answers: tuple[TrueAnswer, ...] = ()
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


def read_squad(path: str | Path, *, version: Literal[1, 2] | None) -> SquadFile:
    """Read a file of SQuAD 1.1 (`version` 1: every question is answered) or 2.0 (`version` 2), or questions to be
    answered (None: answers in the file are not looked at).

    An `answer_start` that does not point at its text is moved to the nearest occurrence; a text that does not occur is
    kept for scoring. Both are counted in the notes.

    Raises:
        MissingInputError, StorageError: it cannot be read. DataError: it is not SQuAD of that version, with the place.
    """
    path = Path(path)
    content = read_file(path, limit=MOST_TEXT)
    questions: dict[str, Question] = {}
    count: Counter[str] = Counter()
    for table, where, context, article in _entries(content, path):
        asked, given = _text(table, "question", where), table.get("id")
        name = str(given) if type(given) is int else _text(table, "id", where)
        if name in questions:
            raise DataError(f"{where}.id: {short(name)} is also at {questions[name].place}. Expected different ids.")
        answers = () if version is None else tuple(_answers(table, where, context, count))
        if version == 1 and not answers:
            raise DataError(f"{where}: has no answer, as questions of SQuAD 2.0 may. Type --version 2.")
        questions[name] = Question(
            id=name, question=asked, context=context, answers=answers, article=article, place=where
        )
    if not questions:
        raise DataError(f"{path}: holds no questions.")
    notes = [f"{path.name}: {number:,} {what}." for what, number in sorted(count.items())]
    return SquadFile(questions=tuple(questions.values()), notes=tuple(notes), content=content)


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
    for group in sorted(sizes, key=hash_of)[:-1]:
        if chosen and taken + sizes[group] / 2 > dev_share * len(questions):
            break
        chosen.add(group)
        taken += sizes[group]
    both: tuple[list[Question], list[Question]] = ([], [])
    for group, question in zip(groups, questions, strict=True):
        both[group in chosen].append(question)
    return tuple(both[0]), tuple(both[1])


def _entries(content: bytes, path: Path) -> Iterator[tuple[dict[str, Any], str, str, str]]:
    """Each question as it is written, its place, its context and its article's title, or another name that paragraphs
    of one article have in common; DataError: the file is in neither of the layouts, with the place.
    """
    first = content.removeprefix(BOM).lstrip().partition(b"\n")[0].rstrip()
    if first.startswith(b"{") and first.endswith(b"}") and b'"data"' not in first:
        for number, line in lines(content, path):
            if line.strip():
                where = f"{path}:{number}"
                row = parse_json(line, where=where, remedy=_LAYOUT, most=_MOST)
                context = _text(row, "context", where)
                yield row, where, context, encodable(str(row.get("title") or context), f"{where}.title")
        return
    top = parse_json(content, where=str(path), remedy=_LAYOUT, most=_MOST)
    for at, article in enumerate(_field(top, "data", list, str(path))):
        place = f"{path}: data[{at}]"
        paragraphs = _field(article, "paragraphs", list, place)
        title = encodable(str(article.get("title") or f"article {at}"), f"{place}.title")
        for number, paragraph in enumerate(paragraphs):
            inner = f"{place}.paragraphs[{number}]"
            context = _text(paragraph, "context", inner)
            for index, table in enumerate(_field(paragraph, "qas", list, inner)):
                yield table, f"{inner}.qas[{index}]", context, title


def _answers(table: dict[str, Any], where: str, context: str, count: Counter[str]) -> Iterator[TrueAnswer]:
    """The answers of a question, as SQuAD or the Hub write them, each at its place in the context; what was repaired is
    counted.
    """
    if table.get("is_impossible") is not None and _field(table, "is_impossible", bool, where):
        return
    found = table.get("answers")
    if isinstance(found, dict):
        both = [_field(found, name, list, f"{where}.answers") for name in ("text", "answer_start")]
        if len(both[0]) != len(both[1]):
            raise DataError(f"{where}.answers: {len(both[0])} texts and {len(both[1])} starts. Expected equally many.")
        found = [{"text": text, "answer_start": start} for text, start in zip(*both, strict=True)]
    for index, one in enumerate(_field({"answers": found}, "answers", list, where)):
        place = f"{where}.answers[{index}]"
        if _field(one, "text", str, place).strip():
            yield _placed(_text(one, "text", place), _field(one, "answer_start", int, place), context, count)


def _placed(text: str, start: int, context: str, count: Counter[str]) -> TrueAnswer:
    wanted = text.strip()
    start += len(text) - len(text.lstrip())
    if start >= 0 and context.startswith(wanted, start):
        return TrueAnswer(text=text, start=start)
    if (found := occurrence(context, wanted, start)) is None:
        count["answers do not occur in their contexts; none is trained on"] += 1
    else:
        count["answers were not at their answer_start; the nearest place was taken"] += 1
    return TrueAnswer(text=text, start=found)


def occurrence(context: str, wanted: str, start: int) -> int | None:
    """Place of the occurrence nearest to `start` (the first of two as near). Linear in time and memory, also where
    occurrences overlap.
    """
    start = max(start, 0)
    head, behind = context[: start + len(wanted) - 1], context.find(wanted, start)
    before = head[::-1].find(wanted[::-1])  # rfind may be quadratic
    found = [len(head) - len(wanted) - before] * (before >= 0) + [behind] * (behind >= 0)
    return min(found, key=lambda at: abs(at - start), default=None)


def _field(table: Any, name: str, kind: type[T], where: str) -> T:
    """A value of an object. Raises DataError if it is missing, or of another kind."""
    if not isinstance(table, dict) or name not in table:
        raise DataError(f"{where}: expected an object with {name!r}, found {short(table)}. {_LAYOUT}")
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
