"""An experiment: its declaration, its cells on disk, and who may write.

EXP/experiment.json               declaration: facts, rows, seeds, parts
EXP/cells/ROW/seed-N/             a cell: its run, and result.json, written last, whose presence says that it is done
EXP/summary.json, summary.md      all that the cells say

The same command resumes; more rows, seeds and parts extend an experiment; anything else that differs is an error that
names it. A row is an arm that is pre-trained and probed (`electra compare`), a task that an encoder is fine-tuned on
(`electra finetune`, `glue`, `squad`), or a baseline of either. No torch here.

result.json has facts, scores, and why there are none.
The file is written last: without it a cell is not done. An arm's scores are those of its probes, those of a fine-tuning
run or a baseline are of the splits that it was scored on.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, DataError, ElectraError, MissingInputError, StorageError
from electra_trainer.experiments.by_class import ClassReport
from electra_trainer.experiments.statistics import Sample
from electra_trainer.files import durable, reading
from electra_trainer.files.durable import replace_durably
from electra_trainer.settings import records

RESULT = "result.json"
RUN = "run"
"""Folder of a run in its cell, where the cell is more than that."""
FACTS = ("steps", "tokens", "flops_paper", "flops_real", "seconds", "parameters")
"""Facts of pre-training; metrics like others, but never compared."""
KEPT = "kept_epoch"
"""Fact of a fine-tuning run that kept the epoch with the best dev score."""
OPTIMISTIC = (
    "The epoch was chosen by the dev scores, which are therefore too good: --test FILE scores rows that chose nothing."
)
SEEN = "may have learned from rows that are scored here"
"""In a note: the model that a run began with was fine-tuned."""
_ENVIRONMENT = (
    "electra_trainer", "git", "python", "torch", "numpy", "tokenizers", "platform", "cpu", "cpu_capability", "threads",
    "gpu", "extensions",
)  # fmt: skip
"""Part of a run's environment.json that goes into a record: source, versions and hardware, but no path."""
_LARGEST = 1e100


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of a cell."""

    key: str
    """The row: an arm, a task or a baseline."""
    seed: int
    facts: dict[str, float] = field(default_factory=dict)
    """Cost of the run: steps, seconds and so on."""
    scores: dict[str, float] = field(default_factory=dict)
    """Finite numbers as PART/METRIC, the part a probe or a split: shares, correlations, losses, thresholds."""
    failed: str | None = None
    """Reason for a run that diverged; it counts in no mean."""
    doubts: tuple[str, ...] = ()
    """Sentences on what looks wrong."""
    reports: dict[str, ClassReport] = field(default_factory=dict, metadata=records.ADDED)
    """Scores class by class, by split."""
    samples: dict[str, Sample] = field(default_factory=dict, metadata=records.ADDED)
    """The judged score, as SPLIT/METRIC, as values of rows."""
    environment: dict[str, Any] = field(default_factory=dict, compare=False)
    """Source, versions and hardware, by the names in environment.json."""

    @property
    def parts(self) -> set[str]:
        """Probes or splits that have a score."""
        return {name.partition("/")[0] for name in self.scores}

    @property
    def by_split(self) -> dict[str, dict[str, float]]:
        """Scores by split, then metric."""
        found: dict[str, dict[str, float]] = {}
        for name, value in self.scores.items():
            split, _, metric = name.partition("/")
            found.setdefault(split, {})[metric] = value
        return found


def named_scores(by_split: dict[str, dict[str, float]]) -> dict[str, float]:
    """Scores as SPLIT/METRIC, from scores by split."""
    return {f"{split}/{metric}": value for split, found in by_split.items() for metric, value in found.items()}


def printed(value: float, metric: str) -> str:
    """A share or correlation x100, with one decimal; a loss or a threshold as it is, with two."""
    return f"{value:.2f}" if metric.endswith(("threshold", "loss")) else f"{100 * value:.1f}"


def write_result(folder: Path, result: Result) -> None:
    """Write result.json whole."""
    replace_durably(folder / RESULT, (json.dumps(asdict(result), indent=1) + "\n").encode())


def read_result(folder: Path) -> Result:
    """Read result.json; DataError: it is damaged."""
    file = folder / RESULT
    found = records.read(
        Result, records.read_object(file), where=str(file), error=DataError, complete=True, remedy=records.AGAIN
    )
    rows = [(name, value) for name, one in found.samples.items() for value in one.values or (math.nan,)]
    for name, value in (*(found.facts | found.scores).items(), *rows):
        if not (math.isfinite(value) and abs(value) < _LARGEST):
            raise DataError(f"{file}: {name} = {value:g}: expected a finite number. {records.AGAIN}")
    return found


def environment_of(run: Path) -> dict[str, Any]:
    """Source, versions and hardware of a run; empty where its environment.json is gone or cannot be read."""
    try:
        table = records.read_table(run / "environment.json")
    except ElectraError:
        return {}
    return {name: table[name] for name in _ENVIRONMENT if name in table}


VERSION = 5
FILE = "experiment.json"
PLUS = "+"
"""Between a row's name and its baseline or its values of settings."""
_OTHER = "Restore it from a backup, or choose another --out."
SEARCH = "search"
"""Folder of the experiment that chooses recipes before the experiment itself begins."""
PATIENCE = 10.0
"""Seconds to wait for another command, or for the workers of one that was killed."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A piece of work whose result is a file: a row with a seed."""

    root: Path
    """The experiment's folder."""
    key: str
    """The row."""
    seed: int = 0
    part: str = ""
    """One of the runs that it is made of, `DeclaredRow.parts`; empty: the whole."""

    @property
    def folder(self) -> Path:
        return self.root / "cells" / self.key / f"seed-{self.seed}" / self.part

    @property
    def run(self) -> Path:
        """Run folder of an arm, or of the exported model of a cross-validation."""
        return self.folder / RUN

    @property
    def kept(self) -> Path:
        """Folder of the run, or of the cell where none was kept."""
        return self.run if self.run.is_dir() else self.folder

    @property
    def is_done(self) -> bool:
        return (self.folder / RESULT).is_file()

    def result(self) -> Result | None:
        """The cell's result; None where it is not done.

        Raises:
            DataError: result.json is damaged, or of another cell.
        """
        if not self.is_done:
            return None
        found = read_result(self.folder)
        if (found.key, found.seed) != (self.key, self.seed):
            raise DataError(f"{self.folder / RESULT}: is not the result of {self}. Delete it, and the run is repeated.")
        return found

    def __str__(self) -> str:
        named = f"{self.key}, seed {self.seed}" if self.seed else self.key
        return f"{named}, {self.part.replace('-', ' ')}" if self.part else named


@dataclass(frozen=True, kw_only=True)
class DeclaredRow:
    """A line of the summary, with a cell for each seed."""

    settings: dict[str, Any]
    """Everything that its results depend on: the config of an arm; task, data, recipe and baseline."""
    metrics: tuple[str, ...] = ()
    """Metrics whose contrast with the reference was declared before the first run."""
    reference: str | None = None
    """The row that it is compared with."""
    title: str = ""
    """Name in tables; empty: the row's."""
    baseline: str = ""
    """Name in sentences of a row that others have to beat, such as "the majority class"."""
    seeded: bool = True
    """False for a baseline that is the same with every seed."""
    notes: tuple[str, ...] = ()
    """Sentences for readers of the scores."""
    apart: tuple[str, ...] = field(default=(), metadata=records.ADDED)
    """Splits whose scores choose nothing, no seed, epoch or threshold; they are shown apart."""
    parts: tuple[str, ...] = field(default=(), metadata=records.ADDED)
    """Runs that a cell is made of, each a folder in its own; empty: it is one run."""


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Content of experiment.json."""

    verb: str
    """The command, `compare` or `finetune`."""
    facts: dict[str, Any]
    """Settings that never change: hashes of model and data, device, threads, what arms are matched on."""
    rows: dict[str, DeclaredRow]
    seeds: tuple[int, ...]
    parts: dict[str, Any] = field(default_factory=dict)
    """Probes by name, each with its folder and hash."""
    about: dict[str, Any] = field(default_factory=dict)
    """Places of files, which may move."""

    def cells(self, root: Path) -> list[Cell]:
        """All cells in their fixed order: all rows of a seed before the next seed, and parts before the whole."""
        return [
            Cell(root=root, key=key, seed=seed if row.seeded else 0, part=part)
            for seed in self.seeds
            for key, row in self.rows.items()
            if row.seeded or seed == self.seeds[0]
            for part in (*row.parts, "")
        ]


def exists(root: Path) -> bool:
    """Whether an experiment has begun in `root`."""
    return (root / FILE).is_file()


def write_declared(root: Path, declared: Declared) -> None:
    """Write experiment.json whole, if it says anything new."""
    content = (json.dumps({"version": VERSION, **asdict(declared)}, indent=1) + "\n").encode()
    path = root / FILE
    if not (path.is_file() and path.read_bytes() == content):
        durable.replace_durably(path, content)


def read_declared(root: Path, *, verb: str | None = None) -> Declared:
    """The experiment of a folder.

    Args:
        verb: the command that has to have made it; None: any.

    Raises:
        MissingInputError: there is none. DataError: it cannot be read. ConfigError: another command made it.
    """
    path = root / FILE
    if not path.is_file():
        raise MissingInputError(
            f"{root}: no experiment is here (no {FILE}). Check the path, or make one with electra compare, finetune, "
            "glue or squad; a single run has: electra report"
        )
    table = records.read_object(path, remedy=_OTHER)
    if (version := table.pop("version", None)) != VERSION or isinstance(version, bool):
        raise DataError(
            f"{path}: version is {reading.short(version)}, expected version {VERSION}. Use the electra-trainer that "
            "wrote it."
        )
    found = records.read(Declared, table, where=str(path), error=DataError, complete=True, remedy=_OTHER)
    for key, row in found.rows.items():  # each is a folder in cells/
        if key in ("", ".", "..") or any(mark in key for mark in "/\\\0") or row.reference not in (None, *found.rows):
            raise DataError(f"{path}: {reading.short(key)}: not a row of an experiment. Choose another --out.")
    if not found.seeds or not found.rows:
        raise DataError(f"{path}: expected at least one row and one seed. {_OTHER}")
    if verb is not None and found.verb != verb:
        raise ConfigError(
            f"{root}: holds an experiment of electra {found.verb}, not of electra {verb}. Choose another --out."
        )
    return replace(found, facts={name: tuple(v) if isinstance(v, list) else v for name, v in found.facts.items()})


def extend(
    old: Declared, new: Declared, *, root: Path, identity: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Declared:
    """`old` with the rows, seeds and parts of `new` that it lacks; what it has keeps its place, so the first arm stays
    the reference.

    Args:
        identity: fields of a row's settings that determine its results.

    Raises:
        ConfigError: anything else differs; says what.
    """
    if changed := _differences(old, new, identity):
        from electra_trainer.runs import run_folder

        noted = next(root.glob("cells/**/environment.json"), None)
        remedy = run_folder.remedy(records.read_object(noted) if noted else {})
        raise ConfigError(f"{root} began with other settings ({'; '.join(changed)}). {remedy}")
    rows = old.rows | {key: row for key, row in new.rows.items() if key not in old.rows}
    order = list(rows)  # baselines after their task
    return replace(
        old,
        seeds=tuple(sorted({*old.seeds, *new.seeds})),
        parts=old.parts | new.parts,
        rows=dict(sorted(rows.items(), key=lambda pair: order.index(pair[1].reference or pair[0]))),
        about=new.about | {name: value for name, value in old.about.items() if value is not None},
    )


def _differences(old: Declared, new: Declared, identity: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> list[str]:
    """Facts, contents of probes and settings of rows that are not the same, a sentence each."""
    changed = records.differences(dict(old.facts), dict(new.facts))
    changed += [
        f"the contents of probe {name}: {old.parts[name]['folder']} -> {part['folder']}"
        for name, part in new.parts.items()
        if name in old.parts and part.get("sha256") != old.parts[name].get("sha256")
    ]
    of_rows: dict[str, list[str]] = {}
    for key in [key for key in new.rows if key in old.rows]:
        plain = (json.loads(json.dumps(identity(one.rows[key].settings))) for one in (old, new))
        for line in records.differences(*plain):
            of_rows.setdefault(line, []).append(key)
    return changed + [f"{line} in {', '.join(keys)}" for line, keys in of_rows.items()]


@contextmanager
def declaring(root: Path) -> Iterator[None]:
    """Hold the experiment's lock while experiment.json is read and written, so that machines which share a folder
    agree.

    Raises:
        ConfigError: another command holds it for long, or the folder holds something else.
    """
    with durable.open_lock(root, markers={FILE}, what="experiment", before={SEARCH}, patience=PATIENCE):
        try:
            durable.sweep(root, deep=True)
            yield
        finally:
            with contextlib.suppress(OSError):  # refused before anything was written: leave nothing
                if [path.name for path in root.iterdir()] == [".lock"]:
                    (root / ".lock").unlink()
                    root.rmdir()


def wait_until_free(folder: Path) -> None:
    """Wait for the worker of a command that was killed, which may still hold the lock of a run; whoever opens the run
    sees the rest.
    """
    path = folder / ".lock"
    with contextlib.suppress(OSError, StorageError):
        if path.exists() and (held := durable.lock(path, patience=PATIENCE)) is not None:
            os.close(held)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`"3"` -> (1, 2, 3); `"1,2,5"` -> (1, 2, 5); `"5,"` -> (5,)."""
    words = [word.strip() for word in text.removesuffix(",").split(",")]
    numbers = tuple(int(word) for word in words if word.isdecimal())
    if "," not in text and len(numbers) == 1:
        numbers = tuple(range(1, min(numbers[0], 1001) + 1))
    elif len(numbers) != len(words) or len(set(numbers)) != len(numbers):
        numbers = ()
    if not 1 <= len(numbers) <= 1000:
        raise ConfigError(
            f"--seeds {text!r}: expected how many seeds, from 1 to 1000, such as 3, or which, such as 1,2,5. "
            "A comma after a single number, as in 5, makes it the seed."
        )
    return numbers


def parse_shard(text: str) -> tuple[int, int]:
    """`"2/4"` -> (2, 4)."""
    first, slash, of = text.partition("/")
    if not (slash and first.isdecimal() and of.isdecimal() and 1 <= int(first) <= int(of)):
        raise ConfigError(f"--shard {text!r}: expected i/N with i from 1 to N, for example 1/4.")
    return int(first), int(of)
