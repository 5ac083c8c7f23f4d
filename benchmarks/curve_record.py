"""Which code a recorded curve is of: the file `made.json` beside curves says how each was made, and from which code.

The code is google_curve.py, every module that it imports, directly or not, as far as numbers on a CPU come from it, and the C++ of the
kernels. Comments, docstrings, error messages and layout do not count, and settings count by their values, so that wording may change and a
switch may be added. A curve whose code is no longer the tree's is stale: `python -m benchmarks.google_curve REFERENCE --check FOLDER`
computes its first steps again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import machine_facts
from electra_trainer.cost.parameters import slots
from electra_trainer.runs.run_folder import git_revision
from electra_trainer.settings.config import Config, generator_shape
from electra_trainer.settings.records import flat, to_dict

ROOT = Path(__file__).resolve().parents[1]
NAME = "made.json"
_PACKAGE = "electra_trainer."
_NO_NUMBERS = (
    "errors", "files.", "settings.", "ranks.", "runs.", "data.store", "objectives.two_stage",
)  # fmt: skip
"""Not followed: they read, check, share out, or compute for a GPU or for another method."""
_OF_NO_NUMBER = ("preset", "seed", "precision", "deterministic", "evaluation", "checkpoint", "log_every")
"""Settings of whole runs; seed and precision are recorded beside them."""

Made = dict[str, dict[str, Any]]
"""By the name of a curve's file."""


def code_files(root: Path = ROOT) -> list[Path]:
    """The files that decide a curve's numbers, in order."""
    found: set[Path] = set()
    waiting = [root / "benchmarks" / "google_curve.py"]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path, root / "src")
    native = root / "src" / "electra_trainer" / "kernels" / "native"
    return sorted(found) + sorted(path for path in native.iterdir() if path.suffix in (".cpp", ".hpp", ".toml"))


def _imported(path: Path, source: Path) -> Iterator[Path]:
    for names in _names(path.read_text(encoding="utf-8")):
        for module in names:
            file = source / f"{module.replace('.', '/')}.py"
            if file.is_file() and not module.removeprefix(_PACKAGE).startswith(_NO_NUMBERS):
                yield file
                break


@cache
def _names(text: str) -> list[tuple[str, str]]:
    """Each `from module import name` of a file: both together, and the module."""
    lines = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return [(f"{line.module}.{one.name}", line.module) for line in lines if line.module for one in line.names]


def code_hash(root: Path = ROOT) -> str:
    """SHA-256 of what the files say, without what does not count."""
    said = [
        [path.relative_to(root).as_posix(), _what_counts(path.read_text(encoding="utf-8"), path.suffix)]
        for path in code_files(root)
    ]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@cache
def _what_counts(text: str, suffix: str) -> object:
    if suffix == ".py":
        return _plain(ast.parse(text))
    if suffix == ".toml":
        return tomllib.loads(text)
    return " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split())


def _plain(node: object) -> object:
    """A syntax tree as lists; empty fields are left out, because versions of Python add some."""
    if isinstance(node, ast.Raise):
        return "raise"
    if isinstance(node, ast.AST):
        fields = {name: value for name, value in ast.iter_fields(node) if value is not None and value != []}
        return [type(node).__name__, {name: _plain(value) for name, value in fields.items()}]
    if isinstance(node, list):
        return [_plain(one) for one in node if not _is_docstring(one)]
    return repr(node)


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def values(config: Config) -> dict[str, Any]:
    """The settings of a run that decide its numbers, its generator's shape and the masked positions of a full row, by
    dotted names, as JSON keeps them.
    """
    table = {name: value for name, value in to_dict(config).items() if name not in _OF_NO_NUMBER}
    found: dict[str, Any] = json.loads(json.dumps(flat(table | {"generator_shape": to_dict(generator_shape(config))})))
    found["masked"] = slots(config)
    return found


def read(folder: Path) -> Made:
    """What is known of a folder's curves."""
    file = folder / NAME
    found: Made = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def write(folder: Path, made: Made) -> None:
    """Replace it."""
    text = json.dumps({name: made[name] for name in sorted(made)}, indent=1)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def facts(config: Config, *, precision: str, arithmetic: str, threads: int) -> dict[str, Any]:
    """Of a curve that this process computed."""
    return {
        "arithmetic": arithmetic,
        "precision": precision,
        "native": os.environ.get("ELECTRA_NATIVE", ""),
        "threads": threads,
        "seed": config.seed,
        "git": git_revision(),
        "hardware": machine_facts.hardware(),
        "versions": machine_facts.versions(),
        "settings": values(config),
        "code": code_hash(),
    }


def stale(folder: Path, config: Config) -> list[str]:
    """Which curves are not this tree's, each with the reason; empty where all are."""
    made, code, now = read(folder), code_hash(), values(config)
    found = []
    for path in sorted(folder.glob("*-seed*.csv")):
        fact = made.get(path.name)
        if fact is None:
            found.append(f"{path.name}: {NAME} does not say how it was made")
            continue
        other = [name for name, value in fact["settings"].items() if now.get(name) != value]
        if other or fact["code"] != code:
            found.append(f"{path.name}: made with another {', '.join(other) or 'code'}")
    return found
