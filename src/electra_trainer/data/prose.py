"""Find the English prose in a docstring: the rest (code, tables, signatures, formulas) teaches a language model little."""

import re
from collections.abc import Iterator

_HEADING = re.compile(r"^([=\-~^*+#\"'`.:_])\1{2,}\s*$")
_SIGNATURE = re.compile(
    r"^\*{0,2}\w[\w.,*/ `\"'|-]*\s:(?:\s.*)?$|^:?\w+( \w+)?:$|^:(param|type|rtype|returns|raises)\b[^:]*:\s*\S*$"
)
_DIRECTIVE = re.compile(r"^\.\.\s+([\w:-]+?)::\s*(.*)$")
_TALKING = frozenset("note warning seealso tip important deprecated versionadded versionchanged admonition".split())
_ROLE = re.compile(r":(?:[\w+-]+:)*[\w+-]+:`~?\.?([^`<]*?)\s*(?:<[^>]*>)?`")
_LINK = re.compile(r"`([^`<>]+?)\s*<[^>]*>`_{1,2}")
_TICKS = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_STARS = re.compile(r"(?<!\w)\*{1,2}([^*\s][^*]*)\*{1,2}(?!\w)")
_FIELD = re.compile(r"^:(?:param|type|rtype|returns?|raises|arg|keyword)\b[^:]*:\s*")
_BULLET = re.compile(r"^(?:[-*+•]|\(?[0-9a-z]{1,2}[.)]|\[\d+\]_?|\.\. \[\w+\]|\w+ \([^()]*\):)\s+")
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
    for marked in (_LINK, _ROLE, _TICKS, _STARS):
        text = marked.sub(r"\1", text)
    return " ".join(text.replace("::", ":").split())


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Groups of lines that belong together, by blank lines, indentation, list items and markup."""
    block: list[str] = []
    start, is_item = 0, False  # indentation of the block's first line, and whether that is a list item
    hidden: int | None = None  # indentation of a directive whose content is left out
    in_doctest = False
    for number, raw in enumerate(lines):
        line = raw.strip()
        depth = len(raw) - len(raw.lstrip())
        if hidden is not None and line and depth <= hidden:
            hidden = None
        in_doctest = bool(line) and (in_doctest or line.startswith((">>>", "In [")))
        directive = _DIRECTIVE.match(line)
        is_text = bool(line) and not in_doctest and hidden is None and directive is None
        is_text = is_text and not _is_markup(line, lines[number + 1].strip() if number + 1 < len(lines) else "")
        item = _BULLET.sub("", line)
        goes_on = is_text and item == line and (depth > start if is_item else depth == start)
        if block and not goes_on:
            yield block
            block = []
        if is_text:
            if not block:
                start, is_item = depth, item != line
            block.append(item)
        if (directive is not None and directive[1] not in _TALKING) or (is_text and line.endswith("::")):
            hidden = depth if hidden is None else hidden
    if block:
        yield block


def _is_markup(line: str, following: str) -> bool:
    """A heading, its underline, or the name and type of a parameter."""
    return bool(_HEADING.match(line) or _HEADING.match(following) or _SIGNATURE.match(line))
