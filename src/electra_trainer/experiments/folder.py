"""An experiment: what was declared, its cells on disk, who may write, and what it asks of its work.

EXP/experiment.json                        what was declared: facts, rows, seeds, parts
EXP/cells/KEY/seed-N/                      a cell: its run, and result.json, written last, whose presence says that it
is done EXP/cells/KEY/untrained-N/, floors.json    of fine-tuning: the same from fresh weights, and baselines without an
encoder EXP/summary.json, summary.md               what all cells say

The same command resumes; more rows, seeds and parts extend an experiment; anything else that differs is an error that
names it.

Two works exist: arms that are pre-trained and probed (`electra compare`), and tasks that an encoder is fine-tuned on
(`electra finetune`,
`glue`, `squad`). No torch here.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files import durable, reading
from electra_trainer.settings import records

VERSION = 4
FILE = "experiment.json"
_OTHER = "Restore it from a backup, or choose another --out."
SEARCH = "search"
"""Folder of the experiments that choose a recipe before the experiment itself begins."""
PATIENCE = 10.0
"""Seconds to wait for another command, or for the workers of one that was killed."""
Of = Literal["compare", "finetune"]
"""What an experiment is of: arms that are pre-trained, or tasks that an encoder is fine-tuned on."""
Kind = Literal["encoder", "floors", "untrained"]
"""`encoder`: it is trained; of fine-tuning also `untrained`: from fresh weights; `floors`: baselines without an
encoder.
"""
_FOLDERS = {"encoder": "seed", "untrained": "untrained"}
_TITLES: dict[Of, str] = {"compare": "experiment", "finetune": "fine-tuning experiment"}
_GROWS: dict[Of, str] = {"compare": "arms, seeds or probes", "finetune": "seeds or tasks"}
_FACTS: dict[Of, dict[str, type]] = {
    "compare": {"preset": str, "amount": float, "match": str},
    "finetune": {"model_sha256": str, "recipe": str, "device": str, "threads": int},
}
_ROW: dict[Of, dict[str, Any]] = {
    "compare": {},
    "finetune": {
        "task": dict,
        "data_sha256": str,
        "recipe": dict,
        "metric": str,
        "dev": list[str],
        "train_rows": int,
        "notes": list[str],
        "changed": dict,
        "baselines": dict[str, str],
    },
}
"""Fields of the facts and of each row that every reader needs; the config of an arm is read where it is used."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A piece of work whose result is a file."""

    root: Path
    """The experiment's folder."""
    key: str
    """An arm or a task."""
    kind: Kind = "encoder"
    seed: int = 0

    @property
    def folder(self) -> Path:
        """The cell's folder; for `floors` that of the task."""
        folder = self.root / "cells" / self.key
        return folder if self.kind == "floors" else folder / f"{_FOLDERS[self.kind]}-{self.seed}"

    @property
    def run(self) -> Path:
        """Of an arm, the run folder."""
        return self.folder / "run"

    @property
    def result(self) -> Path:
        """The file whose presence says that the cell is done."""
        return self.folder / ("floors.json" if self.kind == "floors" else "result.json")

    def named(self, path: Path) -> str:
        """A path relative to the experiment's folder."""
        return path.relative_to(self.root).as_posix()

    def __str__(self) -> str:
        kind = {"encoder": "", "floors": ", baselines", "untrained": ", untrained"}[self.kind]
        return f"{self.key}{kind}" + (f", seed {self.seed}" if self.kind != "floors" else "")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What experiment.json holds, as plain values."""

    of: Of
    facts: dict[str, Any]
    """What may never change: hashes of model and data, device, threads, what arms are matched on."""
    rows: dict[str, dict[str, Any]]
    """Key -> what its cells depend on: the config of an arm; task, data and recipe. New ones may be added."""
    seeds: tuple[int, ...]
    parts: dict[str, Any] = field(default_factory=dict)
    """What is measured besides, by name: the folder and hash of a probe; `floors`. New ones may be added."""
    about: dict[str, Any] = field(default_factory=dict)
    """Where things were, which may move."""

    @property
    def floors(self) -> bool:
        """Whether baselines and fresh weights are measured too."""
        return "floors" in self.parts

    def cells(self, root: Path, *, kinds: Sequence[Kind] = ("encoder", "floors", "untrained")) -> list[Cell]:
        """All cells in their fixed order: all arms of a seed before the next seed; all cells of a task before the next
        task.
        """
        asked = [kind for kind in kinds if self.floors or kind == "encoder"]
        if self.of == "compare":
            return [Cell(root=root, key=key, seed=seed) for seed in self.seeds for key in self.rows]
        return [
            Cell(root=root, key=key, kind=kind, seed=seed)
            for key in self.rows
            for kind in asked
            for seed in ((0,) if kind == "floors" else self.seeds)
        ]


def exists(root: Path) -> bool:
    """Whether an experiment has begun in `root`."""
    return (root / FILE).is_file()


def write(root: Path, declared: Declared) -> None:
    """Write experiment.json whole, if it says anything new."""
    content = (json.dumps({"version": VERSION, **asdict(declared)}, indent=1) + "\n").encode()
    path = root / FILE
    if not (path.is_file() and path.read_bytes() == content):
        durable.replace_durably(path, content)


def read(root: Path, *, of: Of | None = None) -> Declared:
    """The experiment of a folder, of this version or an earlier one.

    Args:
        of: what it must be an experiment of; None: either.

    Raises:
        MissingInputError: there is none. DataError: it cannot be read. ConfigError: it is one of the other kind.
    """
    path = root / FILE
    if not path.is_file():
        what = _TITLES[of] if of else "experiment"
        raise MissingInputError(
            f"{root}: no {what} is here (no {FILE}). Check the path, or make one with electra compare, finetune, glue "
            "or squad; "
            "a single run has: electra report"
        )
    table = _in_this_version(records.read_object(path, remedy=_OTHER), path)
    found = records.read(Declared, table, where=str(path), error=DataError, complete=True, remedy=_OTHER)
    records.require_fields(_FACTS[found.of], found.facts, path, remedy=_OTHER)
    for key, row in found.rows.items():  # each is a folder in cells/
        if key in ("", ".", "..") or any(mark in key for mark in "/\\\0"):
            raise DataError(f"{path}: {reading.short(key)}: not the name of an arm or task. Choose another --out.")
        where = f"{path}: {key}"
        records.require_fields(_ROW[found.of], {"baselines": {}, **row}, where, remedy=_OTHER)
        if found.of == "finetune":
            of_recipe = {"precision": "", **row["recipe"]}  # which earlier versions did not write
            records.require_fields({"epochs": float, "precision": str}, of_recipe, f"{where}: recipe", remedy=_OTHER)
            if not row["dev"]:
                raise DataError(f"{where}: dev is empty, expected the names of splits. {_OTHER}")
    if found.of == "finetune":
        records.require_fields({"model": str}, found.about, path, remedy=_OTHER)
        floors = {"floors": dict[str, dict[str, dict[str, Any]]]}  # the recipes of tasks
        records.require_fields(floors, {"floors": {}, **found.parts}, path, remedy=_OTHER)
    if of is not None and found.of != of:
        raise ConfigError(
            f"{root}: holds an experiment of electra {found.of}, not of electra {of}. Choose another --out."
        )
    return replace(found, facts={name: tuple(v) if isinstance(v, list) else v for name, v in found.facts.items()})


def _in_this_version(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The fields of `Declared`, from a table of this version, of version 1 (`electra compare`) or 3 (fine-tuning)."""
    version = table.pop("version", None)
    if type(version) is int and version == VERSION:
        return table
    if type(version) is int and version == 1:
        records.require_fields({"probes": dict, "arms": dict, "seeds": list}, table, path, remedy=_OTHER)
        hashes = table.pop("probes_sha256", {})
        parts = {name: {"folder": at, "sha256": hashes.get(name)} for name, at in table.pop("probes").items()}
        rows, of, about = table.pop("arms"), "compare", {"data": table.pop("data", None)}
    elif type(version) is int and version == 3:
        records.require_fields({"tasks": dict[str, dict[str, Any]], "seeds": list}, table, path, remedy=_OTHER)
        rows = {key: {"changed": {}, **row} for key, row in table.pop("tasks").items()}
        parts, of = {"floors": {}} if table.pop("floors", False) else {}, "finetune"
        about = {"model": table.pop("model", None)}
    else:
        raise DataError(
            f"{path}: version is {reading.short(version)}, expected version {VERSION}. Use the electra-trainer that "
            "wrote it."
        )
    return {"of": of, "rows": rows, "seeds": table.pop("seeds", None), "parts": parts, "about": about, "facts": table}


def extend(
    old: Declared, new: Declared, *, root: Path, identity: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Declared:
    """`old` with the rows, seeds and parts of `new` that it lacks; what it has keeps its place, so the first arm stays
    the reference.

    Args:
        identity: what of a row decides over the results of its cells.

    Raises:
        ConfigError: anything else differs; says what.
    """
    changed = records.differences(dict(old.facts), dict(new.facts))
    changed += [
        f"the contents of probe {name}: {old.parts[name]['folder']} -> {part['folder']}"
        for name, part in new.parts.items()
        if name in old.parts and part.get("sha256") != old.parts[name].get("sha256")
    ]
    of_rows: dict[str, list[str]] = {}
    for key in [key for key in new.rows if key in old.rows]:
        plain = (json.loads(json.dumps(identity(one.rows[key]))) for one in (old, new))
        for line in records.differences(*plain):
            of_rows.setdefault(line, []).append(key)
    changed += [f"{line} in {', '.join(keys)}" for line, keys in of_rows.items()]
    if changed:
        from electra_trainer.runs import run_folder

        noted = next(root.glob("cells/**/environment.json"), None)
        remedy = run_folder.remedy(records.read_object(noted) if noted else {})
        more = f"More {_GROWS[new.of]} extend it."
        raise ConfigError(f"{root} began with other settings ({'; '.join(changed)}). {remedy} {more}")
    return replace(
        old,
        seeds=tuple(sorted({*old.seeds, *new.seeds})),
        parts=old.parts | new.parts,
        rows=old.rows | {key: row for key, row in new.rows.items() if key not in old.rows},
        about=new.about | {name: value for name, value in old.about.items() if value is not None},
    )


@contextmanager
def declaring(root: Path, of: Of) -> Iterator[None]:
    """Hold the experiment's lock while experiment.json is read and written, so that machines which share a folder
    agree.

    Raises:
        ConfigError: another command holds it for long, or the folder holds something else.
    """
    with durable.open_lock(root, markers={FILE}, what=_TITLES[of], before={SEARCH}) as lock:
        if not _waited(lock.fileno()):
            raise ConfigError(f"--out {root}: another command is at work there. Wait for it or stop it.")
        try:
            durable.sweep(root, deep=True)
            yield
        finally:
            with contextlib.suppress(OSError):  # what was asked for could not be: leave nothing
                if [path.name for path in root.iterdir()] == [".lock"]:
                    (root / ".lock").unlink()
                    root.rmdir()


def wait_until_free(folder: Path) -> None:
    """Wait for the worker of a command that was killed, which may still hold the lock of a run; whoever opens the run
    sees the rest.
    """
    with contextlib.suppress(OSError), (folder / ".lock").open() as lock:
        _waited(lock.fileno())


def _waited(descriptor: int) -> bool:
    """Lock an open file; whether that was possible before patience ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`"3"` -> (1, 2, 3); `"1,2,5"` -> (1, 2, 5); `"5,"` -> (5,)."""
    words = [word.strip() for word in text.split(",")]
    given = words[:-1] if len(words) > 1 and not words[-1] else words
    if not all(word.isdecimal() for word in given):
        raise ConfigError(f"--seeds {text!r}: expected a number of seeds such as 3, or a list such as 1,2,5.")
    numbers = tuple(int(word) for word in given)
    if len(words) == 1:
        if not 1 <= numbers[0] <= 1000:
            raise ConfigError(
                f"--seeds {text}: expected from 1 to 1000 seeds; one seed by its number is written {text},"
            )
        return tuple(range(1, numbers[0] + 1))
    if len(set(numbers)) < len(numbers):
        raise ConfigError(f"--seeds {text!r}: a seed is given twice.")
    return numbers


def parse_shard(text: str) -> tuple[int, int]:
    """`"2/4"` -> (2, 4)."""
    first, slash, of = text.partition("/")
    if not (slash and first.isdecimal() and of.isdecimal() and 1 <= int(first) <= int(of)):
        raise ConfigError(f"--shard {text!r}: expected i/N with i from 1 to N, for example 1/4.")
    return int(first), int(of)


@dataclass(frozen=True, kw_only=True)
class Order:
    """A cell to be done."""

    cell: Cell
    keep_weights: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """What is reported of a cell that is being worked on."""

    kind: Literal["progress", "said", "done", "stopped", "failed"]
    share: float = 0.0
    """Of the steps that are done, from 0 to 1."""
    text: str = ""
    style: str | None = None
    error: str = ""
    """The class of the error, in errors.py; empty for a bug."""


@dataclass(frozen=True, kw_only=True)
class Reports:
    """How a cell's work talks to the engine while it runs."""

    tell: Callable[[Event], None]
    stop: Callable[[], str | None]
    """Names the signal that asks to stop, once there was one."""
    saving: Callable[[bool], None]
    """Called when the work begins and ends to have something to save: a stop may end the process at other times."""


class Work(Protocol):
    """What is asked for, and how a cell is done. It is sent to other processes, so it can be pickled."""

    of: Of
    own_display: bool
    """Whether a cell that is done in this process shows its progress itself."""

    def declare(self, old: Declared | None) -> Declared:
        """What is asked for: facts, rows, seeds, parts. Every file is read, so that what is wrong is said before
        anything is trained.

        Args:
            old: the experiment that is there; what it settled stays.
        """

    def identity(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of a row decides over results; another value of it is another experiment."""

    def orders(self, cells: Sequence[Cell], declared: Declared) -> list[Order]:
        """What is still to be done of some cells."""

    def units(self, cell: Cell, declared: Declared) -> float:
        """How much work a cell is, in any unit."""

    def do(self, order: Order, declared: Declared, *, device: str, reports: Reports) -> None:
        """Do a cell or resume it; its result is on disk afterwards. A run that diverges has a result too.

        Raises:
            Interrupted: saved; the same order resumes. ElectraError: as the work.
        """

    def ended(self, cell: Cell, declared: Declared) -> tuple[str, float] | None:
        """Tidy up after a cell is done; returns the name and value of its main score, if it has one."""
        return None

    def alone(self) -> str | None:
        """Why no other process can do it, in words; None: any can."""
        return None

    def sum_up(self, out: Path) -> object:
        """Write the summary of whatever is there."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all cells of a process share."""

    work: Work
    declared: Declared
    device: str
    """The process's own: `cuda:1`, where several have a GPU each."""

    def do(self, order: Order, reports: Reports) -> None:
        """Do a cell, once no worker of a command that was killed holds it any more."""
        wait_until_free(order.cell.folder)
        wait_until_free(order.cell.run)
        self.work.do(order, self.declared, device=self.device, reports=reports)
