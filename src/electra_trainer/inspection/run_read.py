"""Read a run folder for its report: metrics, examples, settings; unusable lines are skipped and noted."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.reading import MOST_TEXT, json_object, read_file
from electra_trainer.settings.records import flat, read_table

Row = dict[str, float]
"""The numbers of a line of metrics.jsonl."""


@dataclass(frozen=True)
class Run:
    """The contents of a run folder."""

    name: str
    """Shown in legends and tables: the folder's name, or its path where two folders share a name."""
    train: list[Row]
    """Rows of training, by step; if a step was logged twice, its later line."""
    valid: list[Row]
    """Held-out rows, by step."""
    examples: list[dict[str, Any]]
    """Examples of the last evaluation."""
    examples_step: int
    config: dict[str, str]
    """Settings by dotted name."""
    environment: dict[str, str]
    notes: list[str]
    """Notes on skipped lines, for the reader of the page."""

    @property
    def vocabulary_entropy(self) -> float:
        """Entropy in nats of a uniform guess over the vocabulary, log V; nan if the settings are missing."""
        try:
            return math.log(int(self.config["model.vocab_size"]))
        except (KeyError, ValueError):
            return math.nan

    def last(self, name: str) -> float:
        """The newest held-out value, else the newest training value, else nan."""
        rows = [*reversed(self.valid), *reversed(self.train)]
        return next((row[name] for row in rows if not math.isnan(row.get(name, math.nan))), math.nan)


def finite(rows: Sequence[Row], name: str) -> list[tuple[float, float]]:
    """(step, value) of the rows in which a quantity is finite."""
    return [(row["step"], row[name]) for row in rows if math.isfinite(row.get(name, math.nan))]


def runs_in(path: Path) -> list[Path]:
    """The run folder itself, or the runs of an experiment, by arm or task and seed.

    Raises:
        MissingInputError: the experiment has no run yet.
    """
    if not (path / "experiment.json").is_file():
        return [path]
    found = [file.parent for file in path.glob("cells/**/metrics.jsonl")]
    if not found:
        raise MissingInputError(f"{path}: no run of this experiment has begun. Repeat its command, then this one.")
    return sorted(
        found, key=lambda run: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(run))]
    )


def title_of(run: Path) -> str:
    """The name of a run on the page: of an experiment's run its arm and seed, else its folder's name."""
    parts = run.resolve().parts
    if "cells" not in parts:
        return run.resolve().name
    cell = parts[len(parts) - parts[::-1].index("cells") :]
    return " ".join(part for part in cell if part != "run").replace("seed-", "seed ")


def read_run(path: Path, *, name: str | None = None) -> Run:
    """Read a run folder; see `write_report` for the errors."""
    if not path.is_dir():
        raise MissingInputError(f"{path}: no such run folder. Check the path, or make one with: electra pretrain")
    metrics = path / "metrics.jsonl"
    if not metrics.exists():
        raise MissingInputError(f"{metrics}: no such file. Expected a run folder, as electra pretrain makes it.")
    notes: list[str] = []
    train, valid = _metrics(metrics, notes)
    examples, at = _examples(path / "examples.jsonl", notes)
    config, environment = (_settings(path / f"{table}.json", notes) for table in ("config", "environment"))
    name = name or path.resolve().name
    return Run(name, train, valid, examples, at, config, environment, notes)


def _objects(path: Path, bad: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line that holds one; the numbers of others that are not blank are added to
    `bad`.
    """
    text = read_file(path, limit=MOST_TEXT).decode("utf-8", errors="replace")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield number, json_object(line, where=str(path), remedy="")
            except DataError:
                bad.append(number)


def _note(bad: Sequence[int], path: Path, notes: list[str]) -> None:
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        notes.append(f"{path}:{bad[0]}{more}: not a usable line; skipped.")


def _metrics(path: Path, notes: list[str]) -> tuple[list[Row], list[Row]]:
    """Training and held-out rows by step; the later of two lines for one step wins."""
    train: dict[float, Row] = {}
    valid: dict[float, Row] = {}
    bad: list[int] = []
    for number, value in _objects(path, bad):
        row = _numbers(value)
        if math.isfinite(row.get("step", math.nan)):
            (valid if value.get("split") == "valid" else train)[row["step"]] = row
        else:
            bad.append(number)
    if not train and not valid:
        where = f"{path}:{bad[0]}: is not a row of metrics" if bad else f"{path}: is empty"
        raise DataError(f'{where}. Expected one JSON object a line with at least "step"; did the run log anything yet?')
    _note(bad, path, notes)
    return [train[step] for step in sorted(train)], [valid[step] for step in sorted(valid)]


def _numbers(values: Mapping[str, Any]) -> Row:
    """The numeric fields; nan for null and for an integer beyond a float."""
    row: Row = {}
    for name, value in values.items():
        if value is None or type(value) in (int, float):
            try:
                row[name] = float("nan" if value is None else value)
            except OverflowError:
                row[name] = math.nan
    return row


def _examples(path: Path, notes: list[str]) -> tuple[list[dict[str, Any]], int]:
    """Rows and step of the newest evaluation; a row whose lists differ in length or type is left out with a note."""
    best: tuple[list[dict[str, Any]], int] = ([], -1)
    bad: list[int] = []
    for number, value in _objects(path, bad) if path.exists() else ():
        if not (isinstance(value.get("step"), int) and isinstance(value.get("rows"), list)):
            bad.append(number)
            continue
        rows = [row for row in value["rows"] if _is_example(row)]
        if len(rows) < len(value["rows"]):
            bad.append(number)
        if rows and value["step"] >= best[1]:
            best = (rows, value["step"])
    _note(bad, path, notes)
    return best


_EXAMPLE: dict[str, type | tuple[type, ...]] = {
    "original": str,
    "input": str,
    "masked": bool,
    "replaced": bool,
    "probability": (int, float),
}
"""The lists of an example, one entry per token; runs without a discriminator lack the last two."""


def _is_example(row: object) -> bool:
    if not isinstance(row, dict) or not {"original", "input", "masked"} <= row.keys():
        return False
    lists = {name: row[name] for name in _EXAMPLE if row.get(name) is not None}
    return all(
        isinstance(values, list)
        and len(values) == len(lists["original"])
        and all(isinstance(value, _EXAMPLE[name]) for value in values)
        for name, values in lists.items()
    )


def _settings(path: Path, notes: list[str]) -> dict[str, str]:
    """A JSON object as {dotted name: text}; empty, with a note, if it cannot be read."""
    if not path.exists():
        notes.append(f"{path} does not exist.")
        return {}
    try:
        return {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in flat(read_table(path)).items()
        }
    except (ConfigError, MissingInputError, RecursionError):
        notes.append(f"{path} is not a JSON object; skipped.")
        return {}
