"""A fine-tuning experiment on disk: what was declared, and which runs there are.

OUT/experiment.json               encoder, recipes, tasks, seeds, device and threads
OUT/cells/TASK/seed-N/            a run folder of run.py; its result.json, written last, says that it is done
OUT/cells/TASK/untrained-N/       the same from fresh weights
OUT/cells/TASK/floors.json        what can be had without an encoder
OUT/summary.json, summary.md      summary.py
OUT/timing.json                   how long the runs took, which is no result

The same command goes on; more seeds and tasks, and floors, extend an experiment; anything else that differs is an error that names it.
A task that is added may have another recipe than those before it (of the same name), which the tables say. No torch here.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.durable import open_lock, replace_durably
from electra_trainer.files.reading import short
from electra_trainer.settings.records import differences, read_table

VERSION = 3
FILE = "experiment.json"
PATIENCE = 10.0
"""Seconds to wait for the workers of a command that was killed."""
Kind = Literal["encoder", "floors", "untrained"]
"""`encoder`: the given one is fine-tuned; `untrained`: its shape with fresh weights; `floors`: neither."""
_FOLDER = {"encoder": "seed", "untrained": "untrained"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A piece of work whose result is a file."""

    out: Path
    """The experiment's folder."""
    task: str
    kind: Kind
    seed: int = 0

    @property
    def folder(self) -> Path:
        """The run folder; for `floors` that of the task."""
        task = self.out / "cells" / self.task
        return task if self.kind == "floors" else task / f"{_FOLDER[self.kind]}-{self.seed}"

    @property
    def result(self) -> Path:
        """The file whose presence says that the cell is done."""
        return self.folder / ("floors.json" if self.kind == "floors" else "result.json")

    def __str__(self) -> str:
        if self.kind == "floors":
            return f"{self.task}, floors"
        return f"{self.task}, {'untrained, ' if self.kind == 'untrained' else ''}seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class DeclaredTask:
    """What is known of a task before anything is trained."""

    task: dict[str, Any]
    """Kind and fields, as run.describe gives them."""
    data_sha256: str
    recipe: dict[str, Any]
    """All fields of its Recipe, as runs use them: precision settled, rows no longer than the encoder's."""
    metric: str
    """The main one."""
    dev: tuple[str, ...]
    """Splits with answers, the main one first."""
    train_rows: int
    """Training examples."""
    notes: tuple[str, ...]
    """What a reader of the scores must know."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Fields of the recipe that were asked for otherwise than its name says."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What experiment.json holds."""

    model: str
    """As it was given; folders may move, their contents may not change."""
    model_sha256: str
    recipe: str
    """The name that the tasks' recipes began with."""
    device: str
    """`cpu`, `cuda` (any of them) or `cuda:N`."""
    threads: int
    """Threads a run computes with: the order of sums depends on it, so it is settled once."""
    seeds: tuple[int, ...]
    floors: bool
    tasks: dict[str, DeclaredTask]

    def cells(self, out: Path, *, kinds: Sequence[Kind] = ("encoder", "floors", "untrained")) -> list[Cell]:
        """All cells, task by task."""
        asked = [kind for kind in kinds if self.floors or kind == "encoder"]
        return [
            Cell(out=out, task=task, kind=kind, seed=seed)
            for task in self.tasks
            for kind in asked
            for seed in ((0,) if kind == "floors" else self.seeds)
        ]


def exists(out: Path) -> bool:
    """Whether an experiment has begun in `out`."""
    return (out / FILE).is_file()


def write(out: Path, declared: Declared) -> None:
    """Write experiment.json whole, if it says anything new."""
    content = (json.dumps({"version": VERSION, **asdict(declared)}, indent=1) + "\n").encode()
    path = out / FILE
    if not (path.is_file() and path.read_bytes() == content):
        replace_durably(path, content)


def read(out: Path) -> Declared:
    """The experiment of a folder.

    Raises:
        MissingInputError: there is none. DataError, ConfigError: it is not one that this version wrote.
    """
    path = out / FILE
    if not path.is_file():
        raise MissingInputError(f"{out}: no fine-tuning experiment is here (no {FILE}). Check the path.")
    table = read_table(path)
    if table.pop("version", None) != VERSION:
        raise DataError(f"{path}: expected version {VERSION}. It was written by another version of electra-trainer.")
    try:
        for name in table["tasks"]:  # each is a folder in cells/
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise DataError(
                    f"{path}: task {short(name)} is no name of a folder. It was changed by hand; choose another --out."
                )
        tasks = {
            name: DeclaredTask(**{**one, "dev": tuple(one["dev"]), "notes": tuple(one["notes"])})
            for name, one in table.pop("tasks").items()
        }
        return Declared(**{**table, "seeds": tuple(table["seeds"])}, tasks=tasks)
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path}: not a fine-tuning experiment: {error}.") from None


def extend(old: Declared, new: Declared, *, out: Path) -> Declared:
    """`old` with the seeds, tasks and floors of `new` that it lacks; seeds in their order, tasks where they were first named.

    Raises:
        ConfigError: anything else differs; says what.
    """
    changed = []
    for name in ("model_sha256", "recipe", "device", "threads"):
        changed += differences({name: getattr(old, name)}, {name: getattr(new, name)})
    of_tasks: dict[str, list[str]] = {}
    for name in [name for name in new.tasks if name in old.tasks]:
        for line in differences(_identity(old.tasks[name]), _identity(new.tasks[name])):
            of_tasks.setdefault(line, []).append(name)
    changed += [f"{line} in {', '.join(names)}" for line, names in of_tasks.items()]
    if changed:
        raise ConfigError(
            f"{out} began otherwise ({'; '.join(changed)}). Repeat the command that it began with to go on, with more seeds or "
            "tasks if you like, or choose another --out."
        )
    return replace(
        old, seeds=tuple(sorted({*old.seeds, *new.seeds})), floors=old.floors or new.floors, tasks=old.tasks | new.tasks
    )


def _identity(one: DeclaredTask) -> dict[str, Any]:
    """What a score depends on, as JSON gives it back; of what stands for a text what the task says, not the recipe again."""
    recipe = {**one.recipe, "pooling": None}
    plain: dict[str, Any] = json.loads(json.dumps({**asdict(one), "recipe": recipe, "notes": [], "changed": {}}))
    return plain


@contextmanager
def writing(out: Path) -> Iterator[IO[str]]:
    """Hold the experiment's lock; the file, which workers inherit, so that the lock is free when the last of them has ended.

    Raises:
        ConfigError: another command is at work there, or the folder holds something that is no fine-tuning experiment.
    """
    lock = open_lock(out, marker=FILE, what="fine-tuning experiment")
    with lock:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"--out {out}: another command is at work there. Wait for it or stop it."
                    ) from None
                time.sleep(0.05)
        try:
            yield lock
        finally:
            _leave_nothing(out)


def _leave_nothing(out: Path) -> None:
    """Remove the folder again where nothing was begun in it: what was asked for could not be."""
    with contextlib.suppress(OSError):
        if [path.name for path in out.iterdir()] == [".lock"]:
            (out / ".lock").unlink()
            out.rmdir()
