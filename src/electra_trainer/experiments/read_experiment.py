"""An experiment folder, read for tables and figures: which arms and seeds are done, and what they measured. No torch here.

Unlike `experiment.read`, which goes on with an experiment, this takes what it finds: a configuration of another version is a
note, and so is a cell that is not done or failed; seeds on disk count though nobody declared them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.compared import cells, declaration
from electra_trainer.experiments.compared_results import Result, read_result
from electra_trainer.settings import records
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import read_table


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What an experiment folder holds."""

    path: Path
    preset: str
    configs: dict[str, Config | None]
    """By arm, in the order of experiment.json; None where it cannot be read (a note says why)."""
    cells: dict[str, list[Result]]
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


def read_experiment(path: Path) -> Findings:
    """Read an experiment folder.

    Raises:
        MissingInputError: no folder, or no experiment.json in it.
        DataError: experiment.json or a result.json is not what it should be; says which and what was expected.
    """
    table = declaration(path)
    done: dict[str, list[Result]] = {}
    configs: dict[str, Config | None] = {}
    of_cells, of_configs = [], []
    for arm, settings in table["arms"].items():
        done[arm], missing, failed = _cells(path, arm, table["seeds"])
        of_cells += [f"{path.resolve().name}: {arm}: {line}" for line in failed]
        if missing:
            of_cells.append(f"{path.resolve().name}: {arm}: not done: seed {', '.join(map(str, missing))}.")
        try:
            configs[arm] = _config(done[arm], settings, where=f"{path / 'experiment.json'}: arms: {arm}")
        except ConfigError as error:
            configs[arm] = None
            of_configs.append(f"{error} Its parameters and sizes are left out.")
    return Findings(path=path, preset=table["preset"], configs=configs, cells=done, notes=(*of_cells, *of_configs))


def _config(done: Sequence[Result], settings: Any, *, where: str) -> Config:
    """The configuration that ran, fitted to its data; the planned one where no run is there."""
    for cell in done:
        if (file := cell.run / "config.json").is_file():
            return records.read(Config, read_table(file), where=str(file))
    return records.read(Config, settings, where=where)


def _cells(path: Path, arm: str, seeds: Sequence[Any]) -> tuple[list[Result], list[int], list[str]]:
    """Finished cells of an arm by seed, the seeds that are not done, and in words those that failed: what they took is no cost of the arm."""
    names = [folder.name.removeprefix("seed-") for folder in (path / "cells" / arm).glob("seed-*")]
    found = {int(name) for name in names if name.isdecimal()}
    done, missing, failed = [], [], []
    for cell in cells(path, arms=[arm], seeds=sorted(found | {seed for seed in seeds if isinstance(seed, int)})):
        result = read_result(cell)
        if result is None:
            missing.append(cell.seed)
        elif result.failed is not None:
            failed.append(f"seed {cell.seed} failed, and is left out: {result.failed}")
        else:
            done.append(result)
    return done, missing, failed
