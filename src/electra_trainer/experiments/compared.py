"""An experiment on disk: which cells there are, and what every one of them is.

EXP/experiment.json               what was declared: arms with their complete configs, seeds, match, probes, metrics
EXP/cells/ARM/seed-N/run/         a run folder, as `electra pretrain` makes it
EXP/cells/ARM/seed-N/result.json  the cell's numbers: result.py
EXP/summary.json, summary.md      summary.py

The same command goes on; more seeds, arms and probes extend an experiment; anything else that differs is an error that names it.
The reference of all differences is the arm that the experiment began with.
"""

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.durable import open_lock, replace_durably
from electra_trainer.presets.arms import arm
from electra_trainer.settings import records
from electra_trainer.settings.config import FOLLOWS_FROM_STEPS, Config
from electra_trainer.settings.records import checked, differences, read_object, to_dict

Match = Literal["paper-flops", "real-flops", "steps", "time"]
Say = Callable[[str], None]
"""What tells a person how far the experiment is."""
VERSION = 1
UNTRAINED = "untrained"
"""The arm that is not trained: the floor of every probe."""
_FILE = "experiment.json"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One arm with one seed."""

    arm: str
    seed: int
    root: Path
    """The experiment's folder."""

    @property
    def folder(self) -> Path:
        """The cell's own."""
        return self.root / "cells" / self.arm / f"seed-{self.seed}"

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / "run"

    @property
    def run_name(self) -> str:
        """The run folder, relative to the experiment's."""
        return self.run.relative_to(self.root).as_posix()

    @property
    def file(self) -> Path:
        """result.json, whose presence says that the cell is done."""
        return self.folder / "result.json"

    def __str__(self) -> str:
        return f"{self.arm}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What experiment.json holds."""

    preset: str
    data: str
    tokenizer_sha256: str
    train_sha256: str
    valid_sha256: str
    match: Match
    amount: float
    seeds: tuple[int, ...]
    probes: dict[str, str | None]
    """Name -> folder that the probe reads, if it reads one."""
    probes_sha256: dict[str, str | None]
    """Name -> hash of what is in that folder; folders may move, their contents may not change."""
    probe_sentences: int
    probe_pairs: int
    metrics: tuple[str, ...]
    """Metrics whose contrasts were declared; empty: the default ones (summary.py)."""
    arms: dict[str, Config]

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return next(iter(self.arms))

    def config(self, cell: Cell) -> Config:
        """The complete config of a cell."""
        return replace(self.arms[cell.arm], seed=cell.seed)


def cells(folder: Path, *, arms: Sequence[str], seeds: Sequence[int], shard: tuple[int, int] = (1, 1)) -> list[Cell]:
    """Cells in their fixed order, all arms of a seed before the next seed; of these every N-th, from the i-th on.

    Args:
        shard: (i, N), i counted from 1.
    """
    first, step = shard
    found = [Cell(arm=a, seed=s, root=folder) for s in seeds for a in arms]
    return found[first - 1 :: step]


def arm_config(name: str, config: Config) -> Config:
    """The config of an arm; `untrained` has ELECTRA's networks, fresh.

    Raises:
        ConfigError: no such arm, or one that this config cannot be.
    """
    if name == UNTRAINED:
        return arm("electra", config)
    try:
        return arm(name, config)
    except ConfigError as error:
        known = f" Or {UNTRAINED}: fresh weights." if str(error).startswith("Unknown arm") else ""
        raise ConfigError(f"--arms {name}: {error}{known}") from None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the experiment's lock while experiment.json is read and written, so that machines which share a folder agree.

    Raises:
        ConfigError: the folder holds something that is no experiment.
    """
    lock = open_lock(folder, marker=_FILE, what="experiment")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def exists(folder: Path) -> bool:
    """Whether an experiment has begun in `folder`."""
    return (folder / _FILE).is_file()


def write(folder: Path, experiment: Experiment) -> None:
    """Write experiment.json whole."""
    plain = {"version": VERSION, **{name: getattr(experiment, name) for name in experiment.__dataclass_fields__}}
    plain["arms"] = {name: to_dict(config) for name, config in experiment.arms.items()}
    replace_durably(folder / _FILE, (json.dumps(plain, indent=1) + "\n").encode())


def declaration(folder: Path) -> dict[str, Any]:
    """What experiment.json holds, as it stands; checked is what every reader needs: version, arms, seeds, preset, amount.

    Raises:
        MissingInputError: there is none. DataError: it is not one that this version wrote.
    """
    path = folder / _FILE
    if not path.is_file():
        raise MissingInputError(
            f"{folder}: no experiment is here (no {_FILE}). Check the path, or make one with: electra compare; a single run has: "
            "electra report"
        )
    table = read_object(path)
    version = checked(table, "version", int, path)
    if version != VERSION:
        raise DataError(f"{path}: version is {version}, this program reads {VERSION}. Use the program that wrote it.")
    for name, kind in (("arms", dict), ("seeds", list), ("preset", str), ("amount", float)):
        checked(table, name, kind, path)
    if bad := [arm for arm in table["arms"] if arm in ("", ".", "..") or "/" in arm or "\\" in arm]:
        raise DataError(
            f"{path}: arms: {bad[0]!r} is no name of an arm. Expected a word, as in electra compare --arms."
        )
    return table


def read(folder: Path) -> Experiment:
    """The experiment of a folder.

    Raises:
        MissingInputError: there is none. DataError, ConfigError: it is not one that this version wrote.
    """
    path, table = folder / _FILE, declaration(folder)
    try:
        del table["version"]
        arms = {name: records.read(Config, plain, where=f"{path}: {name}") for name, plain in table.pop("arms").items()}
        seeds, metrics = tuple(table.pop("seeds")), tuple(table.pop("metrics"))
        return Experiment(arms=arms, seeds=seeds, metrics=metrics, **table)
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: not an experiment: {error}.") from None


def extend(old: Experiment, new: Experiment, *, folder: Path, measured: bool) -> Experiment:
    """`old` with the arms, seeds and probes of `new` that it lacks; what it has keeps its place, and its first arm the reference.

    Args:
        measured: the steps were measured, so those of `old` stand.

    Raises:
        ConfigError: anything else differs; says what.
    """
    fixed = (
        "preset", "match", "amount", "tokenizer_sha256", "train_sha256", "valid_sha256", "probe_sentences", "probe_pairs", "metrics",
    )  # fmt: skip
    changed = [
        f"{name}: {getattr(old, name)!r} -> {getattr(new, name)!r}"
        for name in fixed
        if getattr(old, name) != getattr(new, name)
    ]
    both = [name for name in new.probes_sha256 if name in old.probes_sha256]
    changed += [
        f"the contents of probe {name}: {old.probes[name]} -> {new.probes[name]}"
        for name in both
        if old.probes_sha256[name] != new.probes_sha256[name]
    ]
    settled = FOLLOWS_FROM_STEPS if measured else ()
    of_arms: dict[str, list[str]] = {}
    for name in [name for name in new.arms if name in old.arms]:
        for line in differences(old.arms[name], new.arms[name]):
            if not line.startswith(("seed:", *settled)):
                of_arms.setdefault(line, []).append(name)
    changed += [f"{line} in {', '.join(names)}" for line, names in of_arms.items()]
    if changed:
        raise ConfigError(
            f"{folder} began with other settings ({'; '.join(changed)}). Repeat the command that it began with to go on, with "
            "more arms, seeds or probes if you like, or choose another --out."
        )
    return replace(
        old,
        seeds=old.seeds + tuple(seed for seed in new.seeds if seed not in old.seeds),
        probes=old.probes | new.probes,
        probes_sha256=old.probes_sha256 | new.probes_sha256,
        arms=old.arms | {name: config for name, config in new.arms.items() if name not in old.arms},
    )
