"""Which parts of a docstring are English prose: the rest (code, tables, signatures, formulas) teaches a language model little."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADING = re.compile(r"^([=\-~^*+#\"'`.:_])\1{2,}\s*$")
_SIGNATURE = re.compile(r"^\*{0,2}\w[\w.,*/ `\"'|-]*\s:\s?.*$|^:?\w+( \w+)?:$|^:(param|type|rtype|returns|raises)\b[^:]*:\s*\S*$")
_DIRECTIVE = re.compile(r"^\.\.\s+([\w:-]+?)::\s*(.*)$")
_TALKING = {"note", "warning", "seealso", "tip", "important", "deprecated", "versionadded", "versionchanged", "admonition"}
_ROLE = re.compile(r":(?:[\w+-]+:)*[\w+-]+:`~?\.?([^`<]*?)\s*(?:<[^>]*>)?`")
_LINK = re.compile(r"`([^`<>]+?)\s*<[^>]*>`_{1,2}")
_TICKS = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_STARS = re.compile(r"(?<!\w)\*{1,2}([^*\s][^*]*)\*{1,2}(?!\w)")
_FIELD = re.compile(r"^:(?:param|type|rtype|returns?|raises|arg|keyword)\b[^:]*:\s*")
_BULLET = re.compile(r"^(?:[-*+•]|\(?[0-9a-z]{1,2}[.)]|\[\d+\]_?|\.\. \[\w+\])\s+")
_WORD = re.compile(r"^[(\"'\[]*[A-Za-z][a-z]*(?:[-'’][a-z]+)*[)\"'\].,;:!?]*$")
_COMMON = frozenset(
    "a an and are as at be but by can for from has have if in into is it its may more no not of on only or should so than that the "
    "then there these they this to use used was we when where which will with you".split()
)
_MIN_WORDS = 5
_MIN_SHARE = 0.75  # of the words look like English words
_MIN_COMMON = 0.15  # of the words are among the commonest


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of prose in a cleaned docstring, each as one line with single spaces.

    Parameter lists give their descriptions, without names and types; lists give their items; doctests, directives that
    hold code or formulas, headings and tables are left out.
    """
    for block in _blocks(text.expandtabs().split("\n")):
        line = _plain(" ".join(block))
        if is_prose(line):
            yield line


def is_prose(line: str) -> bool:
    """Whether a line reads as English: enough words, most of them made of letters, some of them the commonest."""
    words = line.split()
    if len(words) < _MIN_WORDS or not line.isascii():
        return False
    common = sum(word.lower().rstrip(".,;:") in _COMMON for word in words)
    if common < _MIN_COMMON * len(words):
        return False
    return sum(_WORD.match(word) is not None for word in words) >= _MIN_SHARE * len(words)


def _plain(text: str) -> str:
    text = _FIELD.sub("", text)
    text = _LINK.sub(r"\1", text)
    text = _ROLE.sub(r"\1", text)
    text = _TICKS.sub(r"\1", text)
    text = _STARS.sub(r"\1", text)
    return " ".join(text.replace("::", ":").split())


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Groups of lines that belong together, by blank lines, indentation, list items and markup."""
    block: list[str] = []
    indent = 0
    hidden: int | None = None  # indentation of a directive whose content is left out
    in_doctest = False
    for number, raw in enumerate(lines):
        line = raw.strip()
        depth = len(raw) - len(raw.lstrip())
        if hidden is not None and line and depth <= hidden:
            hidden = None
        in_doctest = bool(line) and (in_doctest or line.startswith((">>>", "In [")))
        directive = _DIRECTIVE.match(line)
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        breaks = (
            not line or in_doctest or hidden is not None or directive is not None or _HEADING.match(line) is not None
            or _HEADING.match(following) is not None or _SIGNATURE.match(line) is not None
        )  # fmt: skip
        if breaks or _BULLET.match(line) or (block and depth != indent):
            if block:
                yield block
            block = []
        if directive is not None:
            talking = directive[1] in _TALKING
            if not talking and hidden is None:
                hidden = depth
        elif not breaks:
            block = [*block, _BULLET.sub("", line)] if block else [_BULLET.sub("", line)]
            indent = depth if len(block) == 1 and not _BULLET.match(line) else indent if len(block) > 1 else depth + 2
            if line.endswith("::"):
                hidden = depth
                yield block
                block = []
    if block:
        yield block
