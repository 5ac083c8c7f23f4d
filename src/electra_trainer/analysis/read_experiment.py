"""An experiment folder, read: which arms and seeds are done, and what they measured. No torch here.

EXP/experiment.json                   what is compared: preset, data, seeds, the arms' configurations
EXP/cells/ARM/seed-N/result.json      one finished cell; written last, so its absence says "not done yet"
EXP/cells/ARM/seed-N/run/             the run folder behind it
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.config import Config
from electra_trainer.config_io import from_dict, read_table
from electra_trainer.errors import ConfigError, DataError, MissingInputError, storage_error

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One arm with one seed, finished."""

    arm: str
    seed: int
    folder: Path
    run: Path
    """The run folder; the cell's own where the run was not kept."""
    steps: float
    flops_paper: float
    flops_real: float
    seconds: float
    metrics: dict[str, float]
    """Finite numbers by name; shares, so between -1 and 1 for scores."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What an experiment folder holds."""

    path: Path
    preset: str
    match: str
    amount: float
    configs: dict[str, Config | None]
    """By arm, in the order of experiment.json; None where it cannot be read (a note says why)."""
    cells: dict[str, list[Cell]]
    """Finished cells by arm, by seed; an arm without one has an empty list."""
    notes: tuple[str, ...] = ()
    """What is not done or could not be read, in words."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics that any cell has, in the order in which they are first met."""
        return list(dict.fromkeys(name for cells in self.cells.values() for cell in cells for name in cell.metrics))


def read_experiment(path: Path) -> Experiment:
    """Read an experiment folder.

    Raises:
        MissingInputError: no folder, or no experiment.json in it.
        DataError: experiment.json or a result.json is not what it should be; says which and what was expected.
    """
    if not path.is_dir():
        raise MissingInputError(f"{path}: no such experiment folder. Check the path, or make one with: electra compare")
    file = path / "experiment.json"
    if not file.is_file():
        raise MissingInputError(
            f"{file}: not there. Expected an experiment folder, as electra compare makes it; a single run has: electra report"
        )
    table = _json(file)
    version = _field(table, "version", int, file)
    if version != _VERSION:
        raise DataError(
            f'{file}: "version" is {version}, this program reads {_VERSION}. Use the program that wrote it.'
        )
    arms: dict[str, Any] = _field(table, "arms", dict, file)
    seeds: list[Any] = _field(table, "seeds", list, file)
    if bad := [arm for arm in arms if arm in ("", ".", "..") or "/" in arm or "\\" in arm]:
        raise DataError(
            f'{file}: "arms": {bad[0]!r} is no name of an arm. Expected a word, as in electra compare --arms.'
        )
    cells, notes = {}, []
    for arm in arms:
        cells[arm], missing, failed = _cells(path, arm, seeds)
        notes += [f"{path.resolve().name}: {arm}: {line}" for line in failed]
        if missing:
            notes.append(f"{path.resolve().name}: {arm}: not done: seed {', '.join(map(str, missing))}.")
    configs: dict[str, Config | None] = {}
    for arm, settings in arms.items():
        try:
            configs[arm] = _config(cells[arm], settings, where=f"{file}: arms: {arm}")
        except ConfigError as error:
            configs[arm] = None
            notes.append(f"{error} Its parameters and sizes are left out.")
    return Experiment(
        path=path,
        preset=_field(table, "preset", str, file),
        match=str(table.get("match", "")),
        amount=_number(table, "amount", file),
        configs=configs,
        cells=cells,
        notes=tuple(notes),
    )


def _config(cells: Sequence[Cell], settings: Any, *, where: str) -> Config:
    """The configuration that ran, fitted to its data; the planned one where no run is there."""
    for cell in cells:
        if (file := cell.run / "config.json").is_file():
            return from_dict(Config, read_table(file), where=str(file))
    return from_dict(Config, settings, where=where)


def _cells(path: Path, arm: str, seeds: Sequence[Any]) -> tuple[list[Cell], list[int], list[str]]:
    """Finished cells of an arm by seed, the seeds that are not done, and in words those that failed: what they took is no cost of the arm."""
    folders = {_seed(folder) for folder in (path / "cells" / arm).glob("seed-*")} - {None}
    wanted = sorted({seed for seed in seeds if isinstance(seed, int)} | {seed for seed in folders if seed is not None})
    done, missing, failed = [], [], []
    for seed in wanted:
        file = path / "cells" / arm / f"seed-{seed}" / "result.json"
        if not file.is_file():
            missing.append(seed)
        elif message := _json(file).get("failed"):
            failed.append(f"seed {seed} failed, and is left out: {message}")
        else:
            done.append(_cell(path, arm, seed, file))
    return done, missing, failed


def _seed(folder: Path) -> int | None:
    digits = folder.name.removeprefix("seed-")
    return int(digits) if digits.isdecimal() else None


def _cell(path: Path, arm: str, seed: int, file: Path) -> Cell:
    table = _json(file)
    said = (_field(table, "arm", str, file), _field(table, "seed", int, file))
    if said != (arm, seed):
        raise DataError(
            f"{file}: says arm {said[0]!r}, seed {said[1]}, and stands in the folder of {arm!r}, seed {seed}. "
            "Was it copied? Delete it and run electra compare again."
        )
    run = path / _field(table, "run", str, file)
    if not run.resolve().is_relative_to(path.resolve()):
        raise DataError(
            f'{file}: "run" leaves the experiment folder. Expected a path such as cells/{arm}/seed-{seed}/run.'
        )
    metrics: dict[str, Any] = _field(table, "metrics", dict, file)
    for name in metrics:
        if metrics[name] is not None:
            _number(metrics, name, file)
    return Cell(
        arm=arm,
        seed=seed,
        folder=file.parent,
        run=run if run.is_dir() else file.parent,
        metrics={name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)},
        **{name: _number(table, name, file) for name in ("steps", "flops_paper", "flops_real", "seconds")},
    )


def _json(file: Path) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise storage_error(error, file) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON: {error}. Delete it and run electra compare again.") from None
    if not isinstance(table, dict):
        raise DataError(f"{file}: expected a JSON object. Delete it and run electra compare again.")
    return table


def _field(table: dict[str, Any], name: str, kind: type, file: Path) -> Any:
    value = table.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = f"found {value!r}" if name in table else "it is not there"
        raise DataError(f"{file}: {name!r}: expected {_WORDS[kind]}, {found}. Run electra compare again.")
    return value


def _number(table: dict[str, Any], name: str, file: Path) -> float:
    value = table.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise DataError(f"{file}: {name!r}: expected a number, found {value!r}. Run electra compare again.")
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"{file}: {name!r}: the number is too large. Run electra compare again.") from None


_WORDS = {int: "a whole number", str: "a text", dict: "an object", list: "a list"}
