"""The English of CONTRIBUTING.md, as far as words can be banned without false alarms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house import FILES, ROOT, SOURCE, module_name, room, tree

TO_DO: tuple[str, ...] = ()
OPENING = re.compile(r"(Of|That|Those|The same|What|It|By|Which|Whose)\b")
"""A first line that begins so needs the line above it."""
BANNED = tuple(
    re.compile(words, re.IGNORECASE)
    for words in (
        r"\bstands\b(?! (for|out)\b)", r"\bgoes on\b", r"\bwent on with\b", r"\bso many\b", r"\bof its own\b", r"\bthat is none\b",
        r"\bis told\b", r"\bwhat is said\b", r"\bis no (number|folder|file|name|run)\b", r"\bhanded? on\b", r"\bleave away\b",
        r"\bmay not be had\b",
    )
)  # fmt: skip
NAMES = {"told", "said", "seen"}
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]


def converted() -> list[Path]:
    return [path for path in FILES if room(module_name(path)) not in TO_DO and path.name not in TO_DO]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Strings that are statements, also those below attributes."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def test_docstrings_make_sense_alone() -> None:
    found = [(path.relative_to(SOURCE), line, text) for path in converted() for line, text in docstrings(path)]
    odd = [f"{path}:{line}: {text.strip()[:60]}" for path, line, text in found if OPENING.match(text.strip())]
    assert not odd, "\n".join(odd)


def banned(where: str, text: str) -> list[str]:
    return [f"{where}: {match[0]}" for words in BANNED for match in words.finditer(text)]


def test_banned_words() -> None:
    odd = [one for page in PAGES for one in banned(page.name, page.read_text(encoding="utf-8"))]
    for path in converted():
        texts = [
            (node.lineno, node.value)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        odd += [one for line, text in texts for one in banned(f"{path.relative_to(SOURCE)}:{line}", text)]
    assert not odd, "\n".join(odd)


def test_names_of_variables() -> None:
    odd = []
    for path in converted():
        for node in ast.walk(tree(path)):
            name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            name = node.attr if isinstance(node, ast.Attribute) else name
            if name in NAMES:
                odd.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {name}")
    assert not odd, "\n".join(odd)
