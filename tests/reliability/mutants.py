"""Small faults, made by rule in `runs/` and `train/step.py`, one at a time in a copy of the source: do the tests notice?

    python -m tests.reliability.mutants [FILE ...] [--sample N] [--seed S]

A mutant negates a comparison, swaps `and` with `or`, drops `not`, adds one to a number, turns True into False, swaps + with -, or
removes a statement that only calls or raises. First all tests run once, with a trace of which test comes to which line, also in the
processes that it starts; then each mutant meets the tests that come to its line, the quick ones first. A fault that makes them
hang is noticed, too. Exit 1 if fewer than 90 % are.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch  # noqa: F401  (so that each fork has it)
from tests.reliability.sabotage import LIMIT, ROOT, copy_of, run_pytest

PACKAGE = "src/electra_trainer"
FILES = (*(f"runs/{path.name}" for path in sorted((ROOT / PACKAGE / "runs").glob("[a-z]*.py"))), "train/step.py")
TESTS = (
    "tests/train",
    "tests/reliability",
    "tests/methods",
    "tests/inspection",
    "tests/cli",
    "tests/faults",
    "tests/data/test_whole_words.py",
)
_SECONDS = 60
"""At most this long are the tests that a mutant meets, together; but it meets one at least."""
_TRACER = '''"""Read as each process begins: it notes (test, file, line) for the files of REACHED_FILES, in the file REACHED."""

import os
import sys
import threading

if "REACHED" in os.environ:
    files, seen = tuple(os.environ["REACHED_FILES"].split(":")), set()

    def reach(frame, event, arg):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        place = (test, frame.f_code.co_filename, frame.f_lineno)
        if place not in seen:
            seen.add(place)
            with open(os.environ["REACHED"], "a") as out:
                out.write("\\t".join(map(str, place)) + "\\n")
        return reach

    def enter(frame, event, arg):
        return reach(frame, event, arg) if frame.f_code.co_filename.endswith(files) else None

    sys.settrace(enter)
    threading.settrace(enter)
'''
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_LEFT_ALONE = ("annotation", "returns", "decorator_list", "type_params")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault."""

    file: str
    line: int
    whole_file: bool
    """The line is outside of functions, where a trace sees only the test that imports the file."""
    change: str
    text: str
    """The file with the fault."""


def places(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run, without annotations, decorators and formatted texts."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in _LEFT_ALONE and not isinstance(child, ast.JoinedStr):
                yield from places(child)


def spoilt(node: ast.AST) -> ast.AST | None:
    """The node with a fault; None where no rule fits."""
    match node:
        case ast.Compare(left=left, ops=[sign], comparators=others) if type(sign) in _SWAPPED:
            return ast.Compare(left, [_SWAPPED[type(sign)]()], others)  # type: ignore[list-item]
        case ast.BoolOp(op=sign, values=values):
            return ast.BoolOp(_SWAPPED[type(sign)](), values)  # type: ignore[arg-type]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            return ast.BinOp(left, _SWAPPED[type(sign)](), right)  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.Expr(value=ast.Call()) | ast.Raise():
            return ast.Pass()
    return None


def mutants(file: str) -> Iterator[Mutant]:
    """Every fault of a file."""
    source = ast.parse((ROOT / PACKAGE / file).read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(source) if isinstance(node, ast.FunctionDef)]
    inside = {line for node in functions for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    for number, node in enumerate(places(source)):
        if (fault := spoilt(node)) is None:
            continue
        change = f"{ast.unparse(node)} -> {ast.unparse(fault)}"
        whole = copy.deepcopy(source)
        place = list(places(whole))[number]
        line = getattr(place, "lineno", 0)
        fresh = ast.copy_location(copy.deepcopy(fault), place)
        place.__class__ = type(fresh)  # type: ignore[assignment]
        place.__dict__ = fresh.__dict__
        text = ast.unparse(ast.fix_missing_locations(whole))
        yield Mutant(file=file, line=line, whole_file=line not in inside, change=change, text=text)


def reached(place: Path, files: Sequence[str]) -> dict[tuple[str, int], dict[str, float]]:
    """Lines of the files, each with the tests that come to it and their seconds; line 0 has all tests of a file."""
    for name in ("sitecustomize.py", "tests/pixels/sitecustomize.py"):  # the second in processes that tests start
        with (place / name).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{_TRACER}")
    os.environ |= {
        "REACHED": str(place / "reached.txt"),
        "REACHED_FILES": ":".join(f"/{PACKAGE}/{file}" for file in files),
    }
    outcome = place / "outcome.xml"
    code = run_pytest(place, "-q", "-m", "not slow", "-o", "junit_family=xunit1", "--junit-xml", str(outcome), *TESTS)
    del os.environ["REACHED"]
    if code not in (0, 1):
        sys.exit(f"the tests end with {code} without a fault: {(place / 'printed.txt').read_text()[-2000:]}")
    seconds = {
        f"{case.get('file')}::{case.get('name')}": float(case.get("time", 0))
        for case in ElementTree.parse(outcome).iter("testcase")
        if len(case) == 0
    }
    found = defaultdict[tuple[str, int], dict[str, float]](dict)
    for row in (place / "reached.txt").read_text(encoding="utf-8").splitlines():
        test, path, line = row.split("\t")
        if test in seconds:
            for number in (0, int(line)):
                found[path.partition(f"{PACKAGE}/")[2], number][test] = seconds[test]
    return found


def forked_pytest(place: Path, *words: str, limit: float) -> int:
    """Run tests in a copy, in a fork of this process, which has imported torch already: as `run_pytest`."""
    if not (child := os.fork()):
        os.setpgrp()
        with (place / "printed.txt").open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        os.chdir(place)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "electra_trainer")]:
            del sys.modules[name]
        source = [str(place / "src"), str(place)]
        sys.path[:0] = source
        os.environ |= {"PYTHONPATH": os.pathsep.join(source), "ELECTRA_TEST_PATIENCE": str(LIMIT // 2)}
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # a second mutant in a second may have the size of the first
        sys.dont_write_bytecode = True
        plain = ("-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(place / "tmp"))
        code = 1
        try:
            code = pytest.main([*words, *plain])
        finally:
            os._exit(int(code))
    end = time.monotonic() + limit
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def quick(tests: dict[str, float]) -> list[str]:
    """The quickest tests, for `_SECONDS` together, at least one."""
    total, chosen = 0.0, list[str]()
    for test, seconds in sorted(tests.items(), key=lambda one: one[1]):
        if chosen and total + seconds > _SECONDS:
            break
        chosen.append(test)
        total += seconds
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.mutants")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"by default all: {' '.join(FILES)}")
    parser.add_argument("--sample", type=int, metavar="N", help="this many of them (default all)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    files = asked.files or FILES
    made = [mutant for file in files for mutant in mutants(file)]
    made = random.Random(asked.seed).sample(made, min(asked.sample or len(made), len(made)))
    killed: dict[str, list[bool]] = {}
    with copy_of(ROOT) as place:
        lines = reached(place, files)
        for mutant in made:
            path, began = place / PACKAGE / mutant.file, time.monotonic()
            tests = quick(lines.get((mutant.file, 0 if mutant.whole_file else mutant.line)) or lines[mutant.file, 0])
            whole = path.read_text(encoding="utf-8")
            path.write_text(mutant.text, encoding="utf-8")
            code = forked_pytest(place, "-x", "-q", *tests, limit=120 + 5 * _SECONDS) if tests else 0
            path.write_text(whole, encoding="utf-8")
            if code == pytest.ExitCode.USAGE_ERROR:
                sys.exit(f"{mutant.file}:{mutant.line}: pytest does not find {tests}")
            killed.setdefault(mutant.file, []).append(code != 0)
            row = {
                "mutant": f"{mutant.file}:{mutant.line}",
                "change": mutant.change,
                "killed": code != 0,
                "tests": len(tests),
            }
            print(json.dumps({**row, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    dead, every = sum(map(sum, killed.values())), sum(map(len, killed.values()))
    print(json.dumps({"killed": dead, "of": every, "by_file": {f: f"{sum(k)} of {len(k)}" for f, k in killed.items()}}))
    return 0 if dead >= 0.9 * every else 1


if __name__ == "__main__":
    sys.exit(main())
