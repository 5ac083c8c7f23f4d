"""Measure the source tree, or print its map: `python -m tests.house count`, `python -m tests.house map`."""

import ast
import io
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "electra_trainer"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = (
    "version", "errors", "batch", "randomness", "files", "settings", "cost", "presets", "data", "kernels", "model", "objectives", "runs",
    "ranks", "train", "pretrained", "inspection", "experiments", "tasks", "finetuning", "paper", "playground", "cli", "api", "__main__", "__init__",
)  # fmt: skip
"""From the ground up, with the modules at the root: each imports only what is listed before it."""
CEILINGS = {
    "(root)": 400,
    "cli": 1220,
    "cost": 340,
    "data": 2320,
    "experiments": 1140,
    "files": 1520,
    "finetuning": 1895,
    "inspection": 940,
    "kernels": 750,
    "model": 560,
    "objectives": 560,
    "paper": 1710,
    "playground": 290,
    "presets": 280,
    "pretrained": 1270,
    "ranks": 400,
    "runs": 990,
    "settings": 740,
    "tasks": 3280,
    "train": 2640,
    "all": 23_100,
    "tests": 35_000,
    "benchmarks": 1890,
}
"""Most lines of code. They only fall; an issue that asks for a feature raises one and names the lines and what goes for it."""
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Size:
    """Lines of a file: all, those of code (no docstring, blank or comment line), and those of imports among the code."""

    lines: int
    code: int
    imports: int


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def module_name(path: Path) -> str:
    """Dotted, without the package; a room's `__init__` has the name of the room."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def room(module: str) -> str:
    return module.split(".")[0]


@cache
def _known() -> set[str]:
    return {module_name(file) for file in FILES}


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Modules of this package that a file imports, also inside functions and for types only."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    known = _known()
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            inside = name.removeprefix("electra_trainer.")
            if inside != name:
                yield inside if inside in known else inside.rpartition(".")[0] or "__init__"


def circles() -> list[list[str]]:
    """Groups of modules that import one another, by Tarjan's algorithm."""
    graph = {module_name(path): sorted({*imports(path)} - {module_name(path)}) for path in FILES}
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for target in graph.get(module, ()):
            if target not in number:
                visit(target)
                lowest[module] = min(lowest[module], lowest[target])
            elif target in stack:
                lowest[module] = min(lowest[module], number[target])
        if lowest[module] == number[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(group)

    for module in graph:
        if module not in number:
            visit(module)
    return found


def size(path: Path) -> Size:
    text = path.read_text(encoding="utf-8")
    docstrings, imported = set[int](), set[int]()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            code |= {*range(token.start[0], token.end[0] + 1)}
    code -= docstrings
    return Size(lines=text.count("\n"), code=len(code), imports=len(code & imported))


def branches(function: ast.FunctionDef) -> int:
    """Ways through a function: conditions, loops, comprehensions, handlers, `with`, cases, and each `and` or `or`."""
    one = ast.If | ast.IfExp | ast.For | ast.While | ast.With | ast.ExceptHandler | ast.comprehension | ast.match_case
    nodes = [*ast.walk(function)]
    joined = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return joined + sum(isinstance(node, one) for node in nodes)


def length(function: ast.FunctionDef) -> int:
    """Lines after the docstring."""
    begin = function.body[0].end_lineno if ast.get_docstring(function) else function.lineno
    return (function.end_lineno or 0) - (begin or 0)


def purpose(path: Path) -> str:
    """First paragraph of a module's docstring, on one line."""
    return " ".join((ast.get_docstring(tree(path)) or "").split("\n\n")[0].split())


def _entry(name: Path, path: Path) -> str:
    return textwrap.fill(f"- `{name}`: {purpose(path)}", 118, subsequent_indent="  ", break_on_hyphens=False)


def map_page() -> str:
    """Every file with its purpose, room by room, in Markdown."""
    page = ["# The map", "", "One sentence a file, from the docstrings. Rooms are in import order, downward only.", ""]
    for name in ROOMS:
        folder = SOURCE / name
        if not folder.is_dir():
            continue
        page += [f"## {name}/", "", purpose(folder / "__init__.py"), ""]
        files = [path for path in FILES if folder in path.parents and path.name != "__init__.py"]
        page += [_entry(path.relative_to(folder), path) for path in files]
        page.append("")
    page += ["## At the root", ""]
    page += [_entry(path.relative_to(SOURCE), path) for path in FILES if path.parent == SOURCE]
    return "\n".join(page) + "\n"


def rooms() -> dict[str, list[Size]]:
    """The sizes of each room's files; those at the root are one room."""
    found: dict[str, list[Size]] = {}
    for path in FILES:
        name = room(module_name(path)) if path.parent != SOURCE else "(root)"
        found.setdefault(name, []).append(size(path))
    return dict(sorted(found.items()))


def code_in(folder: Path) -> int:
    """Lines of code of all Python below a folder."""
    return sum(size(path).code for path in folder.rglob("*.py"))


def count() -> str:
    """A table of rooms: files, lines, lines of code and its ceiling, lines of imports."""
    rows = [f"{'room':<14}{'files':>6}{'lines':>8}{'code':>8}{'at most':>9}{'imports':>9}"]
    found = rooms()
    found["all"] = [size(path) for path in FILES]
    for name, sizes in found.items():
        lines, code, imported = (sum(getattr(one, what) for one in sizes) for what in ("lines", "code", "imports"))
        rows.append(f"{name:<14}{len(sizes):>6}{lines:>8}{code:>8}{CEILINGS[name]:>9}{imported:>9}")
    rows += [f"{name:<20}{code_in(ROOT / name):>16}{CEILINGS[name]:>9}" for name in ("tests", "benchmarks")]
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["map"]:
        print(map_page())
    elif sys.argv[1:] == ["count"]:
        print(count())
    else:
        raise SystemExit(__doc__)
