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
import json
import re
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from electra_trainer.data.document import Document, Place
from electra_trainer.errors import DataError
from electra_trainer.files.processes import Connection, Workers, cores, serve

PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn", "sympy", "torch")
"""Import names of the packages that are read, besides the standard library."""

_SKIPPED_FOLDERS = {
    "test", "tests", "testing", "__pycache__", "site-packages", "dist-packages", "_vendor", "lib2to3", "idlelib",
    "externals", "_inductor", "include", "share",
}  # fmt: skip


@cache
def documents() -> tuple[Document, ...]:
    """The embedded corpus, the same every time; read once a process (seconds), then kept in memory (about 15 MB).

    A paragraph that occurs more than once is kept the first time only, so held-out documents do not repeat trained
    ones.
    """
    found_files, known, found = files(), set[str](), list[Document]()
    with Workers(f"{__name__}:_serve", setup=b"", count=min(4, cores())) as workers:
        answers = workers.map(str(path).encode() for path, _ in found_files)
        for (_, name), answer in zip(found_files, answers, strict=True):
            if fresh := [line for line in dict.fromkeys(json.loads(answer)) if line not in known]:
                found.append(Document(fresh, Place(f"docstrings:{name}", 1, 0, 0)))
                known.update(fresh)
    if not found:
        raise DataError("docstrings: no documentation found in this Python. Name text files instead.")
    return tuple(found)


@cache
def files() -> tuple[tuple[Path, str], ...]:
    """Source files in a fixed order, each with its path from the folder of its package on."""
    found: list[tuple[Path, str]] = []
    for root in _roots():
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            inside = path.relative_to(root).parts
            if any(part in _SKIPPED_FOLDERS for part in inside[:-1]) or inside[-1].startswith("test_"):
                continue
            found.append((path, path.relative_to(root.parent).as_posix()))
    return tuple(found)


def _roots() -> list[Path]:
    specs = [importlib.util.find_spec(name) for name in PACKAGES]  # finds, does not import
    roots = [Path(spec.submodule_search_locations[0]) for spec in specs if spec and spec.submodule_search_locations]
    return [*roots, Path(sysconfig.get_paths()["stdlib"])]


def _serve(pipe: Connection) -> None:
    gc.disable()  # a syntax tree has no cycles, and looking for them takes a fifth of the parser's time
    serve(pipe, lambda _: lambda path: json.dumps(_module_lines(Path(path.decode()))).encode())


def _module_lines(path: Path) -> list[str]:
    """Paragraphs of prose in the docstrings of one source file; empty when it cannot be read as Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return [line for node in nodes for line in paragraphs(ast.get_docstring(node) or "")]


_LEFT_OUT = re.compile(
    r"^ *(?:>>>|In \[).*(?:\n.*\S.*)*"  # code and what it prints
    r"|^( *)\.\. .*(?:\n *(?=\n)|\n\1 +\S.*)*"  # a directive with its content
    r"|^.*\n *([=\-~^*+#\"'`.:_])\2{2,} *$",  # a title over a rule
    re.MULTILINE,
)
_ITEM = re.compile(
    r"^ *(?:[-*+•] |\(?\w{1,2}[.)] |:\w+[^:\n]*:|\w+ \([^()\n]*\):|\*{0,2}\w[\w.,*/ `]{0,60} :(?: .*)?$)", re.MULTILINE
)
"""The beginning of an item of a list or of a parameter: its mark, or its name and type."""
_MARKUP = re.compile(r":[\w:+-]{1,80}:(?=`)|(?<=`)~| <[^<>`\n]*>(?=`)|`{1,2}_{1,2}(?!\w)|[`*]")
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

    Lists of parameters give their descriptions; code, directives and titles are left out.
    """
    for block in re.split(r"\n\s*\n", _LEFT_OUT.sub("", text)):
        for item in _ITEM.split(block):
            line = " ".join(_MARKUP.sub("", item).replace("::", ":").split())
            if is_prose(line):
                yield line


def is_prose(line: str) -> bool:
    """Whether a line reads as English: enough words, most of them made of letters, some of them the commonest."""
    words = line.split()
    if len(words) < _MIN_WORDS or not line.isascii():
        return False
    common = sum(word.lower().rstrip(".,;:") in _COMMON for word in words)
    english = sum(_WORD.match(word) is not None for word in words)
    return common >= _MIN_COMMON * len(words) and english >= _MIN_SHARE * len(words)
