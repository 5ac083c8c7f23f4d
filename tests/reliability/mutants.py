"""Small faults, made by rule in `runs/` and `train/step.py`, one at a time in a copy of the source: do the tests of that file notice?

    python -m tests.reliability.mutants [FILE ...] [--sample N] [--seed S]

A mutant swaps a comparison or `and` with `or`, drops `not`, adds one to a number, turns True into False, swaps + with -, or
removes a statement that only calls or raises. The tests run in order and end at the first failure. A fault that makes them hang is
noticed, too. Exit 1 if fewer than 90 % are.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.reliability.sabotage import ROOT, copy_of, run_pytest

PACKAGE = "src/electra_trainer"
_SAVING = tuple(f"train/test_{name}.py" for name in ("checkpoint", "refused_checkpoint", "saving", "resume"))
_RUNS = ("train/test_resume_refused.py", "reliability/test_two_commands.py", "reliability/test_corruption.py")
TESTS = {
    "runs/checkpoint.py": (*_SAVING, "reliability/test_saving_beside.py", "reliability/test_power_loss.py"),
    "runs/launcher.py": ("reliability/test_supervisor.py", "reliability/test_failing_rank.py"),
    "runs/metrics.py": ("train/test_saving.py", "inspection/test_track.py", "faults/test_fuzz.py", "train/test_resume.py"),
    "runs/progress.py": ("train/test_status.py", "train/test_saving.py"),
    "runs/restarts.py": ("reliability/test_supervisor.py", "reliability/test_told_to_stop.py"),
    "runs/run_folder.py": ("train/test_saving.py", *_RUNS, "train/test_resume.py"),
    "runs/signals.py": ("reliability/test_signals.py", "reliability/test_told_to_stop.py"),
    "runs/verified.py": (*_SAVING, *_RUNS, "faults/test_fuzz.py"),
    "train/step.py": ("train/test_step.py", "reliability/test_numbers.py", "reliability/test_ranks.py"),
}  # fmt: skip
"""Tests that belong to a file, the cheap ones first."""
_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add,
}  # fmt: skip
_LEFT_ALONE = ("annotation", "returns", "decorator_list", "type_params")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault."""

    file: str
    line: int
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
        yield Mutant(file=file, line=line, change=change, text=ast.unparse(ast.fix_missing_locations(whole)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.mutants")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"by default all: {' '.join(TESTS)}")
    parser.add_argument("--sample", type=int, metavar="N", help="so many of them (default all)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    files = asked.files or list(TESTS)
    made = [mutant for file in files for mutant in mutants(file)]
    if asked.sample and asked.sample < len(made):
        made = random.Random(asked.seed).sample(made, asked.sample)
    killed: dict[str, list[bool]] = {}
    limits: dict[str, float] = {}
    with copy_of(ROOT) as place:

        def run(file: str, limit: float) -> int:
            return run_pytest(
                place, "-x", "-q", "-m", "not slow", *(f"tests/{test}" for test in TESTS[file]), limit=limit
            )

        for mutant in sorted(made, key=lambda one: (one.file, one.line)):
            path, began = place / PACKAGE / mutant.file, time.monotonic()
            if mutant.file not in limits:
                if (code := run(mutant.file, 1800)) != 0:
                    said = (place / "printed.txt").read_text()[-2000:]
                    sys.exit(f"{mutant.file}: its tests end with {code} without a fault: {said}")
                limits[mutant.file], began = 60 + 4 * (time.monotonic() - began), time.monotonic()
            whole = path.read_text(encoding="utf-8")
            path.write_text(mutant.text, encoding="utf-8")
            code = run(mutant.file, limits[mutant.file])
            path.write_text(whole, encoding="utf-8")
            killed.setdefault(mutant.file, []).append(code != 0)
            line = {"mutant": f"{mutant.file}:{mutant.line}", "change": mutant.change, "killed": code != 0}
            print(json.dumps({**line, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    dead, every = sum(map(sum, killed.values())), sum(map(len, killed.values()))
    print(json.dumps({"killed": dead, "of": every, "by_file": {f: f"{sum(k)} of {len(k)}" for f, k in killed.items()}}))
    return 0 if dead >= 0.9 * every else 1


if __name__ == "__main__":
    sys.exit(main())
