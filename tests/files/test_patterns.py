"""No regular expression of the package takes quadratic time, whatever it is given."""

import ast
import re
from collections.abc import Iterator
from functools import partial

import pytest
from tests import house
from tests.growth import STEEPEST, steepest

MOST = 1 << 15
METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")
ANYWHERE = {"findall", "finditer", "split", "sub", "subn"}
"""Methods that look for a match from every place, as `search` does."""


def constant(node: ast.AST) -> str | bytes | None:
    try:
        value = ast.literal_eval(node)  # type: ignore[arg-type]
    except ValueError:
        return None
    return value if isinstance(value, str | bytes) else None


def written() -> Iterator[tuple[str, str | bytes, int, str]]:
    """Where, pattern, flags and method of each pattern that is written as a constant; of a named one each method that is
    called on the name in its file.
    """
    for path in house.FILES:
        called, compiled = dict[str, set[str]](), list[tuple[str | None, ast.Call]]()
        for node in ast.walk(house.tree(path)):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                name = target.id if isinstance(target, ast.Name) else None
                compiled += [(name, one) for one in ast.walk(node.value) if is_call(one, "compile")]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                owner = ast.unparse(node.func.value)
                if owner == "re" and (pattern := constant(node.args[0])) is not None:
                    yield f"{house.module_name(path)}:{node.lineno}", pattern, 0, node.func.attr
                called.setdefault(owner, set()).add(node.func.attr)
        for name, call in compiled:
            pattern = constant(call.args[0])
            flags = eval(ast.unparse(call.args[1]), {"re": re}) if len(call.args) > 1 else 0  # our own source
            for method in sorted(called.get(name or "", {"search"})) if pattern is not None else ():
                yield f"{house.module_name(path)}.{name}", pattern, int(flags), method  # type: ignore[misc]


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == f"re.{name}"


def units(pattern: str) -> list[str]:
    """Repeated parts: characters that the pattern may match, and pairs of the pattern's punctuation."""
    marks = list(dict.fromkeys(letter for letter in pattern if not letter.isalnum() and letter not in "\\?*+^$|"))[:8]
    own = [letter for letter in dict.fromkeys(pattern) if letter.isalpha()][:4]
    pairs = [one + other for one in [*marks[:4], "a"] for other in [*marks[:4], "a"] if one != other]
    return [*dict.fromkeys([*" \na0.", *marks, *own, *pairs])]


PATTERNS = {
    f"{where} {method} {pattern!r}"[:80]: (pattern, flags, "search" if method in ANYWHERE else method)
    for where, pattern, flags, method in written()
}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_linear(name: str) -> None:
    pattern, flags, method = PATTERNS[name]
    look = getattr(re.compile(pattern, flags), method)
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    literal = re.search(r"(?:\\[^A-Za-z0-9]|[^\\\[\](){}?*+^$|.])+", re.sub(r"\\[A-Za-z][*+?]?", "", text))
    for start in dict.fromkeys(("", literal[0].replace("\\", "") if literal else "", "[")):
        for unit in units(text):

            def make(size: int, unit: str = unit, start: str = start) -> partial[object]:
                given = start + unit * (size // len(unit)) + "\0x"
                return partial(look, given if isinstance(pattern, str) else given.encode())

            growth, size = steepest(make, most=MOST)
            assert growth <= STEEPEST, (
                f"{start!r}, then {size:,} bytes of {unit!r}: {growth:.1f} times the time of half of them"
            )


def test_the_test_notices_a_quadratic_pattern() -> None:
    slow = re.compile(r"\[\s*\d+\s*\]")
    assert steepest(lambda size: partial(slow.search, "[" + " " * size), most=MOST)[0] < STEEPEST
    slow = re.compile(r"\s+$")  # a busy machine can only hide the growth, so this is tried again
    assert any(steepest(lambda size: partial(slow.search, " " * size + "x"), most=8192)[0] > STEEPEST for _ in range(9))
