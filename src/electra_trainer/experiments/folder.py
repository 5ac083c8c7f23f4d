"""An experiment on disk: what was declared, which cells there are, and who may write.

EXP/experiment.json                        what was declared: facts, rows, seeds, parts
EXP/cells/KEY/seed-N/                      a cell: its run, and result.json, written last, whose presence says that it is done
EXP/cells/KEY/untrained-N/, floors.json    of fine-tuning: the same from fresh weights, and baselines without an encoder
EXP/summary.json, summary.md               what all cells say

The same command resumes; more rows, seeds and parts extend an experiment; anything else that differs is an error that names it.
No torch here.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.durable import open_lock, replace_durably
from electra_trainer.files.reading import short
from electra_trainer.settings.records import checked, differences, read_object

VERSION = 4
FILE = "experiment.json"
PATIENCE = 10.0
"""Seconds to wait for another command, or for the workers of one that was killed."""
Of = Literal["compare", "finetune"]
"""What an experiment is of: arms that are pre-trained, or tasks that an encoder is fine-tuned on."""
Kind = Literal["encoder", "floors", "untrained"]
"""`encoder`: it is trained; of fine-tuning also `untrained`: from fresh weights; `floors`: baselines without an encoder."""
_FOLDERS = {"encoder": "seed", "untrained": "untrained"}
_TITLES: dict[Of, str] = {"compare": "experiment", "finetune": "fine-tuning experiment"}
_GROWS: dict[Of, str] = {"compare": "arms, seeds or probes", "finetune": "seeds or tasks"}
_FACTS: dict[Of, dict[str, type]] = {
    "compare": {"preset": str, "amount": float, "match": str},
    "finetune": {"model_sha256": str, "recipe": str, "device": str, "threads": int},
}
_ROW: dict[Of, dict[str, type]] = {
    "compare": {},
    "finetune": {
        "task": dict, "data_sha256": str, "recipe": dict, "metric": str, "dev": list, "train_rows": int, "notes": list, "changed": dict,
    },
}  # fmt: skip
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
        """All cells in their fixed order: all arms of a seed before the next seed; all cells of a task before the next task."""
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
        replace_durably(path, content)


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
            f"{root}: no {what} is here (no {FILE}). Check the path, or make one with electra compare, finetune, glue or squad; "
            "a single run has: electra report"
        )
    table = _in_this_version(read_object(path), path)
    found: Of = table.get("of")  # type: ignore[assignment]
    if found not in _FACTS:
        raise DataError(f"{path}: of: expected compare or finetune, found {short(found)}.")
    for name in ("facts", "rows", "parts", "about"):
        checked(table, name, dict, path)
    checked(table, "seeds", list, path)
    for name, kind in _FACTS[found].items():
        checked(table["facts"], name, kind, path)
    for key, row in table["rows"].items():  # each is a folder in cells/
        if key in ("", ".", "..") or any(mark in key for mark in "/\\\0") or not isinstance(row, dict):
            raise DataError(f"{path}: {short(key)}: not the name and settings of an arm or task. Choose another --out.")
        for name, kind in _ROW[found].items():
            checked(row, name, kind, path)
    if found == "finetune":
        checked(table["about"], "model", str, path)
    if not all(isinstance(seed, int) for seed in table["seeds"]):
        raise DataError(f"{path}: seeds: expected whole numbers, found {short(table['seeds'])}.")
    if of is not None and found != of:
        raise ConfigError(f"{root}: holds an experiment of electra {found}, not of electra {of}. Choose another --out.")
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in table["facts"].items()}
    return Declared(
        of=found, facts=facts, rows=table["rows"], seeds=tuple(table["seeds"]), parts=table["parts"], about=table["about"]
    )  # fmt: skip


def _in_this_version(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """A table of version 1 (`electra compare`) or 3 (fine-tuning) in the shape of this one."""
    version = checked(table, "version", int, path)
    if version == VERSION:
        return table
    if version == 1:
        for name, kind in (("arms", dict), ("seeds", list), ("probes", dict)):
            checked(table, name, kind, path)
        rows, hashes = table.pop("arms"), table.pop("probes_sha256", {})
        parts = {name: {"folder": at, "sha256": hashes.get(name)} for name, at in table.pop("probes").items()}
        of, about = "compare", {"data": table.pop("data", None)}
    elif version == 3:
        rows, parts = checked(table, "tasks", dict, path), {"floors": {}} if table.pop("floors", False) else {}
        rows = {key: {"changed": {}, **row} if isinstance(row, dict) else row for key, row in rows.items()}
        of, about = "finetune", {"model": table.pop("model", None)}
        del table["tasks"]
    else:
        raise DataError(
            f"{path}: version is {version}, expected version {VERSION}. Use the electra-trainer that wrote it."
        )
    facts = {name: value for name, value in table.items() if name not in ("version", "seeds")}
    return {"of": of, "facts": facts, "rows": rows, "seeds": table.get("seeds"), "parts": parts, "about": about}


def extend(
    old: Declared, new: Declared, *, root: Path, identity: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Declared:
    """`old` with the rows, seeds and parts of `new` that it lacks; what it has keeps its place, so the first arm stays the reference.

    Args:
        identity: what of a row decides over the results of its cells.

    Raises:
        ConfigError: anything else differs; says what.
    """
    changed = differences(dict(old.facts), dict(new.facts))
    changed += [
        f"the contents of probe {name}: {old.parts[name]['folder']} -> {part['folder']}"
        for name, part in new.parts.items()
        if name in old.parts and part.get("sha256") != old.parts[name].get("sha256")
    ]
    of_rows: dict[str, list[str]] = {}
    for key in [key for key in new.rows if key in old.rows]:
        plain = (json.loads(json.dumps(identity(one.rows[key]))) for one in (old, new))
        for line in differences(*plain):
            of_rows.setdefault(line, []).append(key)
    changed += [f"{line} in {', '.join(keys)}" for line, keys in of_rows.items()]
    if changed:
        raise ConfigError(
            f"{root} began with other settings ({'; '.join(changed)}). Repeat the command that it began with to resume, with more "
            f"{_GROWS[new.of]} if you like, or choose another --out."
        )
    return replace(
        old,
        seeds=tuple(sorted({*old.seeds, *new.seeds})),
        parts=old.parts | new.parts,
        rows=old.rows | {key: row for key, row in new.rows.items() if key not in old.rows},
        about=new.about | {name: value for name, value in old.about.items() if value is not None},
    )


@contextmanager
def declaring(root: Path, of: Of) -> Iterator[None]:
    """Hold the experiment's lock while experiment.json is read and written, so that machines which share a folder agree.

    Raises:
        ConfigError: another command holds it for long, or the folder holds something else.
    """
    with open_lock(root, marker=FILE, what=_TITLES[of]) as lock:
        if not _waited(lock.fileno()):
            raise ConfigError(f"--out {root}: another command is at work there. Wait for it or stop it.")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # what was asked for could not be: leave nothing
                if [path.name for path in root.iterdir()] == [".lock"]:
                    (root / ".lock").unlink()
                    root.rmdir()


def wait_until_free(folder: Path) -> None:
    """Wait for the worker of a command that was killed, which may still hold the lock of a run; whoever opens the run sees the rest."""
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
