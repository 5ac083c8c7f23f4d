"""The embedded corpus: English documentation of the Python packages installed next to us.

Real text that is on every machine that can run this program, so a demonstration needs no download. Sources are read with
`ast` and never imported. One document a module, in sorted order; a paragraph is a line. The packages are those that this
program itself depends on, and the standard library, so that the same versions give the same text whatever else is installed.
"""

import ast
import importlib.util
import inspect
import json
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from electra_trainer.data.documents import Document, Place
from electra_trainer.data.prose import paragraphs
from electra_trainer.data.workers import Workers, serve
from electra_trainer.errors import DataError
from electra_trainer.files.processes import Connection, cores

PACKAGES = ("matplotlib", "networkx", "numpy", "scipy", "sklearn", "sympy", "torch")
"""Import names of the packages that are read, besides the standard library."""

_SKIPPED_FOLDERS = {
    "test", "tests", "testing", "__pycache__", "site-packages", "dist-packages", "_vendor", "lib2to3", "idlelib",
    "externals", "_inductor", "include", "share",
}  # fmt: skip
_MAX_FILE_BYTES = 1_500_000
_MIN_QUOTED = 0.15  # share of a file in triple quotes; parsing the others takes 30 % of the time, gives 6 % of the text
_BATCH_BYTES = 1_000_000
_MIN_STRING = 200  # characters of a string outside of a docstring that may be documentation, as in torch and numpy


@cache
def _collected() -> tuple[Document, ...]:
    files = _files()
    requests: list[bytes] = []
    batch: list[str] = []
    size = 0
    for path, length in files:
        batch.append(str(path))
        size += length
        if size > _BATCH_BYTES:
            requests.append(json.dumps(batch).encode())
            batch, size = [], 0
    requests.append(json.dumps(batch).encode())
    with Workers(f"{__name__}:_serve", setup=b"", count=min(4, cores())) as workers:
        modules = [module for answer in workers.map(requests) for module in json.loads(answer)]
    seen: set[str] = set()
    found: list[Document] = []
    for path, module in modules:
        fresh = [line for line in module if not (line in seen or seen.add(line))]  # type: ignore[func-returns-value]
        if fresh:
            found.append(Document(fresh, Place(f"docstrings:{_named(path)}", 1, 0, 0)))
    if not found:
        raise DataError("docstrings: no documentation found in this Python. Name text files instead.")
    return tuple(found)


def documents() -> Iterator[Document]:
    """The embedded corpus, the same every time; read once a process (seconds), then kept in memory (about 15 MB).

    A paragraph that occurs more than once is kept the first time only, so held-out documents do not repeat trained ones.
    """
    yield from _collected()


def file_count() -> int:
    """How many source files are read."""
    return len(_files())


@cache
def _files() -> tuple[tuple[Path, int], ...]:
    """Source files in a fixed order, with their sizes in bytes."""
    found: list[tuple[Path, int]] = []
    for root in _roots():
        for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
            inside = path.relative_to(root).parts
            if any(part in _SKIPPED_FOLDERS for part in inside[:-1]) or inside[-1].startswith("test_"):
                continue
            size = path.stat().st_size
            if 0 < size <= _MAX_FILE_BYTES:
                found.append((path, size))
    return tuple(found)


def _named(path: str) -> str:
    """A source file, from the folder of its package on."""
    root = next(str(root.parent) for root in _roots() if path.startswith(f"{root}/"))
    return path.removeprefix(root).lstrip("/")


@cache
def _roots() -> list[Path]:
    roots: list[Path] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # finds, does not import
        if spec is not None and spec.submodule_search_locations:
            roots.append(Path(next(iter(spec.submodule_search_locations))))
    return [*roots, Path(sysconfig.get_paths()["stdlib"])]


def _serve(pipe: Connection) -> None:
    serve(pipe, lambda _: _answer)


def _answer(request: bytes) -> bytes:
    modules = [(name, _module_lines(Path(name))) for name in json.loads(request)]
    return json.dumps([(name, lines) for name, lines in modules if lines]).encode()


def _module_lines(path: Path) -> list[str]:
    """Paragraphs of prose in one source file; empty when it cannot be read as Python."""
    try:
        source = path.read_bytes()
        quoted = source.replace(b"'''", b'"""').split(b'"""')[1::2]
        if sum(map(len, quoted)) < _MIN_QUOTED * len(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
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
