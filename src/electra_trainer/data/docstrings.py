"""The embedded corpus: English documentation of the Python packages installed here.

Real text that is on every machine that can run this program, so a demonstration needs no download. Sources are read
with `ast` and never imported. A module is a document, in sorted order; a paragraph is a line. The packages are those
that this program depends on, and the standard library, so the same versions give the same text whatever else is
installed.

Only prose is taken from a docstring: code, tables, signatures and formulas teach a language model little.
"""

import ast
import gc
import importlib.util
import inspect
import json
import re
import sysconfig
import warnings
from ast import parse
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from electra_trainer.data.document import Document, Place
from electra_trainer.errors import DataError
from electra_trainer.files.processes import Connection, Workers, cores, serve

PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn", "sympy", "torch")
"""Import names of the packages that are read, besides the standard library."""

_SKIPPED_FOLDERS = {
    "test", "tests", "testing", "__pycache__", "site-packages", "dist-packages", "_vendor", "lib2to3", "idlelib",
    "externals", "_inductor", "include", "share",
}  # fmt: skip
_MAX_FILE_BYTES = 1_500_000
_MIN_QUOTED = 0.15  # share of a file in triple quotes; parsing the others takes 30 % of the time, gives 6 % of the text
_MIN_STRING = 200  # characters of a string outside of a docstring that may be documentation, as in torch and numpy


@cache
def documents() -> tuple[Document, ...]:
    """The embedded corpus, the same every time; read once a process (seconds), then kept in memory (about 15 MB).

    A paragraph that occurs more than once is kept the first time only, so held-out documents do not repeat trained
    ones.
    """
    found_files, known, found = files(), set[str](), list[Document]()
    with Workers(f"{__name__}:_serve", setup=b"", count=min(4, cores())) as workers:
        answers = workers.map(str(file.path).encode() for file in found_files)
        for file, answer in zip(found_files, answers, strict=True):
            if fresh := [line for line in dict.fromkeys(json.loads(answer)) if line not in known]:
                found.append(Document(fresh, Place(f"docstrings:{file.name}", 1, 0, 0)))
                known.update(fresh)
    if not found:
        raise DataError("docstrings: no documentation found in this Python. Name text files instead.")
    return tuple(found)


class _File(NamedTuple):
    path: Path
    name: str
    """Its path from the folder of its package on."""


@cache
def files() -> tuple[_File, ...]:
    """Source files in a fixed order."""
    found: list[_File] = []
    for root in _roots():
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            inside = path.relative_to(root).parts
            if any(part in _SKIPPED_FOLDERS for part in inside[:-1]) or inside[-1].startswith("test_"):
                continue
            if 0 < path.stat().st_size <= _MAX_FILE_BYTES:
                found.append(_File(path, path.relative_to(root.parent).as_posix()))
    return tuple(found)


def _roots() -> list[Path]:
    specs = [importlib.util.find_spec(name) for name in PACKAGES]  # finds, does not import
    roots = [Path(spec.submodule_search_locations[0]) for spec in specs if spec and spec.submodule_search_locations]
    return [*roots, Path(sysconfig.get_paths()["stdlib"])]


def _serve(pipe: Connection) -> None:
    gc.disable()  # a syntax tree has no cycles, and looking for them takes a fifth of the parser's time
    serve(pipe, lambda _: lambda path: json.dumps(_module_lines(Path(path.decode()))).encode())


def _module_lines(path: Path) -> list[str]:
    """Paragraphs of prose in one source file; empty when it cannot be read as Python."""
    try:
        source = path.read_bytes()
        quoted = source.replace(b"'''", b'"""').split(b'"""')[1::2]
        if sum(map(len, quoted)) < _MIN_QUOTED * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [line for text in _texts(tree) for line in paragraphs(inspect.cleandoc(text))]


def _texts(tree: ast.Module) -> Iterator[str]:
    """Docstrings in the order of the source, and long strings given to calls or assigned in the body of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            for inner in ast.walk(node.value):
                text = inner.value if isinstance(inner, ast.Constant) else None
                if isinstance(text, str) and len(text) >= _MIN_STRING and "\n" in text:
                    yield text
    yield from _docstrings(tree)


def _docstrings(node: ast.AST) -> Iterator[str]:
    body: list[ast.stmt] = getattr(node, "body", [])
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node, clean=False)
        if text:
            yield text
    for name in ("body", "orelse", "handlers", "finalbody"):
        for child in getattr(node, name, []) if body else []:
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.Try | ast.With):
                yield from _docstrings(child)


_HEADING = re.compile(r"^([=\-~^*+#\"'`.:_])\1{2,}\s*$")
_SIGNATURE = re.compile(
    r"^\*{0,2}\w[\w.,*/ `\"'|-]*\s:(?:\s.*)?$|^:?\w+( \w+)?:$|^:(param|type|rtype|returns|raises)\b[^:]*:\s*\S*$"
)
_DIRECTIVE = re.compile(r"^\.\.\s+([\w:-]+?)::\s*(.*)$")
_TALKING = frozenset("note warning seealso tip important deprecated versionadded versionchanged admonition".split())
_ROLE = re.compile(r":(?:[\w+-]{1,40}:){1,4}`~?\.?([^`<\s]*(?:\s+[^`<\s]+)*)\s*(?:<[^>`]*>)?`")
_LINK = re.compile(r"`(\s*[^`<>\s]+(?:\s+[^`<>\s]+)*)\s*<[^>`]*>`_{1,2}")
_TICKS = re.compile(r"`{1,2}([^`]+)`{1,2}_{0,2}")
_STARS = re.compile(r"(?<!\w)\*{1,2}([^*\s][^*]*)\*{1,2}(?!\w)")
_FIELD = re.compile(r"^:(?:param|type|rtype|returns?|raises|arg|keyword)\b[^:]*:\s*")
_BULLET = re.compile(r"^(?:[-*+•]|\(?[0-9a-z]{1,2}[.)]|\[\d+\]_?|\.\. \[\w+\]|\w+ \([^()]*\):)\s+")
_WORD = re.compile(r"^[(\"'\[]*[A-Za-z][a-z]*(?:[-'’][a-z]+)*[)\"'\].,;:!?]*$")
_COMMON = frozenset(
    "a an and are as at be but by can for from has have if in into is it its may more no not of on only or should so "
    "than that the then there these they this to use used was we when where which will with you".split()
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
    common, english = map(sum, zip(*map(_kind, words), strict=True))
    return common >= _MIN_COMMON * len(words) and english >= _MIN_SHARE * len(words)


@cache
def _kind(word: str) -> tuple[bool, bool]:
    """Whether a word is one of the commonest, and whether it looks English."""
    return word.lower().rstrip(".,;:") in _COMMON, _WORD.match(word) is not None


def _plain(text: str) -> str:
    text = _FIELD.sub("", text)
    if "`" in text or "*" in text:
        for marked in (_LINK, _ROLE, _TICKS, _STARS):
            text = marked.sub(r"\1", text)
    return " ".join(text.replace("::", ":").split())


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Groups of lines that belong together, by blank lines, indentation, list items and markup."""
    block: list[str] = []
    start, of_item = 0, False  # indentation of the block's first line, and whether that is a list item
    for depth, text, is_item in _prose(lines):
        goes_on = text and not is_item and (depth > start if of_item else depth == start)
        if block and not goes_on:
            yield block
            block = []
        if text:
            if not block:
                start, of_item = depth, is_item
            block.append(text)
    if block:
        yield block


def _prose(lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    """Indentation of each line, its text (empty outside prose), and whether it begins a list item."""
    hidden: int | None = None  # indentation of a directive whose content is left out
    in_doctest, is_rule = False, _HEADING.match(lines[0].strip()) is not None
    for raw, following in zip(lines, [*lines[1:], ""], strict=True):
        line = raw.strip()
        depth = len(raw) - len(raw.lstrip())
        if hidden is not None and line and depth <= hidden:
            hidden = None
        in_doctest = bool(line) and (in_doctest or line.startswith((">>>", "In [")))
        directive = _DIRECTIVE.match(line) if line.startswith("..") else None
        was_rule, is_rule = is_rule, _HEADING.match(following.strip()) is not None
        # a heading, its underline, a directive, or the name and type of a parameter
        is_markup = any([was_rule, is_rule, directive, ":" in line and _SIGNATURE.match(line)])
        is_text = bool(line) and not any([in_doctest, hidden is not None, is_markup])
        text = _BULLET.sub("", line) if is_text else ""
        yield depth, text, text != line
        silent = directive is not None and directive[1] not in _TALKING
        if hidden is None and (silent or (is_text and line.endswith("::"))):
            hidden = depth
