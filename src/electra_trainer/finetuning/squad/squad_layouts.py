"""Layouts of question files: SQuAD's nested JSON, lists of its parts, the Hub's rows, JSON Lines. Where each question
is, by key.

{"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ..., "answers": ...}]}]}]}
[{"title": ..., "paragraphs": ...}]      [{"context": ..., "qas": ...}]      [{"id": ..., "context": ..., "question":
..., "answers": ...}]

or one of these objects a line. Answers: [{"text": ..., "answer_start": ...}], or the Hub's {"text": [...],
"answer_start": [...]}.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from electra_trainer.errors import DataError, did_you_mean
from electra_trainer.files.reading import BOM, encodable, lines, parse_json, short

T = TypeVar("T")
_MOST = 20_000_000
"""Values in a file; SQuAD 1.1's training file has 0.8 million."""
_WORDS = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}
_ONE_A_LINE = "Expected one object a line."
_LAYOUT = '{"data": [{"title", "paragraphs": [{"context", "qas"}]}]}'


class Entry(NamedTuple):
    """A question as it is written."""

    table: dict[str, Any]
    place: str
    """`file: data[3].paragraphs[0].qas[2]`, or `file:7` of JSON Lines."""
    context: str
    article: str
    """The title, or another name that paragraphs of one article have in common."""


def entries(content: bytes, path: Path) -> Iterator[Entry]:
    """The questions of a file in its order.

    Raises:
        DataError: it is in none of the layouts, with the place.
    """
    if _is_lines(content):
        for number, line in lines(content, path):
            if line.strip():
                where = f"{path}:{number}"
                yield from _document(parse_json(line, where=where, remedy=_ONE_A_LINE, most=_MOST), where, number)
    else:
        top = parse_json(content, where=str(path), remedy="Expected one object of SQuAD's layout.", most=_MOST)
        yield from _document(top, str(path), 0)


def _is_lines(content: bytes) -> bool:
    """Whether the first line is an object, and others follow."""
    first, _, rest = content.removeprefix(BOM).lstrip().partition(b"\n")
    if not first.startswith(b"{") or not rest.strip():
        return False
    with suppress(DataError):
        return isinstance(parse_json(first, where="", remedy="", most=_MOST), dict)
    return False


def _document(top: Any, place: str, number: int) -> Iterator[Entry]:
    """The questions of a whole file or of a line."""
    known = isinstance(top, dict) and top.keys() & {"data", "paragraphs", "qas", "question"}
    if not known and not (isinstance(top, list) and top):
        near = did_you_mean("data", top) if isinstance(top, dict) else ""
        raise DataError(
            f"{place}: is not SQuAD's layout.{near} Expected {_LAYOUT}, a list of its parts, or one a line."
        )
    if isinstance(top, dict) and "data" not in top:
        yield from _part(top, place, number)
        return
    named, parts = (f"{place}: data", field(top, "data", list, place)) if isinstance(top, dict) else (f"{place}: ", top)
    for at, part in enumerate(parts):
        yield from _part(part, f"{named}[{at}]", at)


def _part(found: Any, place: str, number: int) -> Iterator[Entry]:
    """The questions of an article, a paragraph or a row; the latter two without a title are of one article if their
    contexts are equal.
    """
    if isinstance(found, dict) and "qas" in found and "paragraphs" not in found:
        yield from _paragraph(found, place, _title(found, place))
    elif isinstance(found, dict) and "question" in found and "paragraphs" not in found:
        context = text(found, "context", place)
        yield Entry(found, place, context, _title(found, place) or context)
    else:
        paragraphs = field(found, "paragraphs", list, place)
        title = _title(found, place) or f"article {number}"
        for index, paragraph in enumerate(paragraphs):
            yield from _paragraph(paragraph, f"{place}.paragraphs[{index}]", title)


def _paragraph(found: Any, place: str, title: str) -> Iterator[Entry]:
    context = text(found, "context", place)
    for at, entry in enumerate(field(found, "qas", list, place)):
        where = f"{place}.qas[{at}]"
        if not isinstance(entry, dict):
            raise DataError(f"{where}: expected an object with 'question', found {short(entry)}.")
        yield Entry(entry, where, context, title or context)


def _title(table: dict[str, Any], place: str) -> str:
    """The title of an article, a number's digits; empty without one."""
    title = table.get("title")
    if isinstance(title, int) and not isinstance(title, bool):
        return str(title)
    return text(table, "title", place) if title else ""


def field(table: Any, name: str, kind: type[T], where: str) -> T:
    """A value of an object; DataError: it is not there, or not of that kind."""
    if not isinstance(table, dict):
        raise DataError(f"{where}: expected an object with {name!r}, found {short(table)}.")
    if name not in table:
        raise DataError(f"{where}: has no {name!r}.{did_you_mean(name, table)}")
    value = table[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"{where}.{name}: expected {_WORDS[kind]}, found {short(value)}.")
    return value


def text(table: Any, name: str, where: str) -> str:
    """A string that is not blank and can be written down."""
    found = field(table, name, str, where)
    if not found.strip():
        raise DataError(f"{where}.{name}: is blank. Expected text.")
    return encodable(found, f"{where}.{name}")
