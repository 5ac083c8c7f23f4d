"""The English of CONTRIBUTING.md, as far as words can be banned without false alarms."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import FILES, ROOT, tree

TESTS = sorted({*(ROOT / "tests").rglob("*.py")} - {Path(__file__).resolve()})
OPENING = re.compile(r"(Of|That|Those|The same|What|It|By|Which|Whose)\b|None (of|where)\b|[^.\n]*; \w+Error\b")
"""A first line that begins so needs the line above it, or hides an error behind a semicolon."""
BANNED = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (
        r"\bstands\b(?! (for|out)\b)", r"\bgoes on\b", r"\bwent on with\b", r"\bso many\b", r"\bof its own\b", r"\bthat is none\b",
        r"\bis told\b", r"\bwhat is said\b", r"\bis no (number|folder|file|name|run)\b", r"\bhanded? on\b", r"\bleave away\b",
        r"\bmay not be had\b", r"\b(is|are) said\b", r"\bbe it\b", r"\bof now\b", r"\bso too\b",
    )
)  # fmt: skip
NAMES = {"told", "said", "seen"}
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "src/electra_trainer/templates").rglob("*.*")),
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
]


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings of a file, docstrings too."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that are statements, also those below attributes."""
    for node in nodes(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def names_of_tests(path: Path) -> Iterator[tuple[int, str]]:
    """Names of functions, their words apart."""
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.name.replace("_", " ")


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_docstrings_make_sense_alone() -> None:
    found = [(where(path, line), text.strip()) for path in [*FILES, *TESTS] for line, text in docstrings(path)]
    assert [f"{place}: {text[:60]}" for place, text in found if OPENING.match(text)] == []


def banned(place: str, text: str) -> list[str]:
    return [f"{place}: {match[0]}" for words in BANNED for match in words.finditer(text)]


def test_banned_words() -> None:
    texts = [(page.name, page.read_text(encoding="utf-8")) for page in PAGES]
    texts += [(where(path, line), text) for path in FILES for line, text in strings(path)]
    for path in TESTS:
        texts += [(where(path, line), text) for line, text in (*docstrings(path), *names_of_tests(path))]
    assert [one for place, text in texts for one in banned(place, text)] == []


def test_names_of_variables() -> None:
    odd = []
    for path in FILES:
        for node in nodes(path):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            name = node.attr if isinstance(node, ast.Attribute) else name
            if name in NAMES:
                odd.append(f"{where(path, node.lineno)}: {name}")
    assert odd == []
