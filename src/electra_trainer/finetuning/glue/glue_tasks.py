"""GLUE as a table of rows, one a task (glue_tasks.toml), and where a task's data come from. No torch here.

The paper's metrics come first (§3.1: Matthews correlation for CoLA, Spearman for STS-B, accuracy for the others),
GLUE's own after them; epochs are Table 6's. AX has no training set: the MNLI model predicts it.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from electra_trainer.errors import ConfigError, MissingInputError, did_you_mean, storage_error
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.glue.glue_files import Layout, as_bytes, parse, read_hub
from electra_trainer.settings import records

if TYPE_CHECKING:
    from electra_trainer.finetuning.task import TaskData

HUB = "hub"
"""Instead of a folder: from the Hub."""


@dataclass(frozen=True, kw_only=True)
class GlueRow:
    """The facts of a task."""

    name: str
    """On the command line, in folders and on the Hub."""
    folder: str
    """The official name."""
    layout: Layout
    metrics: tuple[str, ...] = ("accuracy",)
    epochs: float = 3.0
    unordered: bool = False
    """The two texts of a pair may be swapped."""
    train: int = 0
    """Rows of GLUE's training set; below, of its other splits."""
    dev: Mapping[str, int] = field(default_factory=dict)
    test: Mapping[str, int] = field(default_factory=dict)


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FILES: dict[str, list[str]] = _TABLES.pop("files")
"""Names of a split's file where they are not the split's own."""
ROWS = {name: records.read(GlueRow, {"name": name, **table}, where=name) for name, table in _TABLES.items()}
PAPER_COLUMNS = {
    "cola": "CoLA",
    "sst2": "SST",
    "mrpc": "MRPC",
    "stsb": "STS",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
}
"""The titles of the paper's columns by task, in its order; it leaves out WNLI (Appendix B). A title in lower case is a
column's key.
"""
PAPER = tuple(PAPER_COLUMNS)


def parse_tasks(text: str) -> tuple[str, ...]:
    """`"cola,sst2"` -> names of rows; `"paper"` is the paper's eight, `"all"` every task that can be trained.

    Raises:
        ConfigError: an unknown name, or one given twice.
    """
    trained = tuple(name for name in ROWS if ROWS[name].train)
    if text in ("paper", "all"):
        return PAPER if text == "paper" else trained
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    for name in names:
        if name not in ROWS:
            raise ConfigError(f"--tasks {name}: unknown.{did_you_mean(name.lower(), ROWS)} Known: {', '.join(ROWS)}.")
        if names.count(name) > 1:
            raise ConfigError(f"--tasks: {name} is given twice.")
    if not names:
        raise ConfigError(f"--tasks {text!r}: expected names between commas, for example cola,rte.")
    return names


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """A task of GLUE as the engine takes it."""

    folder: str
    """GLUE's folder, the task's own folder, or `hub`."""
    task: str
    """A name in `ROWS`."""
    limit: int | None = None
    """Largest number of training rows, the first after a fixed shuffle."""
    test: bool = True
    """Read the test sets that exist, to be predicted."""

    def __post_init__(self) -> None:
        if self.task not in ROWS:
            raise ConfigError(f"GLUE has no task {self.task!r}.{did_you_mean(self.task.lower(), ROWS)}")
        if not self.row.train:
            raise ConfigError(f"{self.task}: has no training set; the model of mnli predicts it. Add mnli to --tasks.")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"--limit {self.limit}: expected at least 1 training row.")

    @property
    def row(self) -> GlueRow:
        return ROWS[self.task]

    @property
    def name(self) -> str:
        return self.task

    @property
    def epochs(self) -> float:
        return self.row.epochs

    def require_files(self) -> None:
        """Check that the training and dev files exist, before anything is trained.

        Raises:
            MissingInputError: one is missing.
        """
        for split in () if self.folder == HUB else ("train", *self.row.dev):
            _require_file(self.folder, self.row, split)

    def load(self) -> "TaskData":
        """Read the files, or the Hub.

        Raises:
            ConfigError, MissingInputError, DataError, StorageError: what is wrong, with file and line.
        """
        from electra_trainer.finetuning.task import TaskData, hash_files
        from electra_trainer.finetuning.texts import splits, tasks

        row = self.row
        hashed: dict[str, bytes] = {}
        train, torn = self._read(row, "train", hashed=hashed)
        notes = _counted(row, "training", len(train), row.train)
        if torn:
            notes.append(f"{torn} lines of the training file are torn and were left out, as they are elsewhere.")
        if self.limit is not None and self.limit < len(train):
            notes.append(f"trained on {self.limit:,} of these {len(train):,} rows (--limit).")
            train = _some(train, self.limit, self.task)
            hashed["limit"] = str(self.limit).encode()
        dev = {}
        for split, rows in row.dev.items():
            dev[split], _ = self._read(row, split, hashed=hashed)
            notes += _counted(row, split, len(dev[split]), rows)
        notes += splits.warnings_of_a_benchmark(train, dev.values())
        labels, metrics, scale = row.layout.labels, row.metrics, row.layout.bounds[1]
        task: tasks.TextTask = tasks.Regression(scale=scale, metrics=metrics, name=self.task)
        if labels:
            task = tasks.Classification(labels=labels, metrics=metrics, name=self.task)
        return TaskData(
            task=task,
            train=train,
            dev=dev,
            test=self.tests(hashed=hashed) if self.test else {},
            unordered_pairs=row.unordered,
            notes=tuple(notes),
            sha256=hash_files(hashed),
        )

    def tests(self, *, hashed: dict[str, bytes] | None = None) -> dict[str, list[TextExample]]:
        """The test sets that exist, AX's among MNLI's.

        Args:
            hashed: receives the contents read.
        """
        found: dict[str, list[TextExample]] = {}
        for row in (self.row, ROWS["ax"]) if self.task == "mnli" else (self.row,):
            for split in row.test:
                if self.folder == HUB or _file(self.folder, row, split) is not None:
                    found[split], _ = self._read(row, split, hashed={} if hashed is None else hashed, labelled=False)
        return found

    def _read(
        self, row: GlueRow, split: str, *, hashed: dict[str, bytes], labelled: bool = True
    ) -> tuple[list[TextExample], int]:
        if self.folder == HUB:
            there = "test" if split == "ax" else split.replace("dev", "validation")
            examples, torn = read_hub(row.name, there, row.layout, labelled=labelled), 0
            hashed[split] = as_bytes(examples)
            return examples, torn
        path = _require_file(self.folder, row, split)
        hashed[split] = read_file(path, limit=MOST_TEXT)
        return parse(hashed[split], row.layout, path=path, labelled=labelled)


def tasks_in(folder: str | Path) -> tuple[str, ...]:
    """Tasks with a training set whose folder is `folder` or in it, in the order of `ROWS`."""
    return tuple(name for name, row in ROWS.items() if row.train and _find_folder(Path(folder), row) is not None)


def _find_folder(root: Path, row: GlueRow) -> Path | None:
    """Folder of a task, by the official name or one like it: `sst2`, `sst-2`; the diagnostics of AX have two names."""
    names = {_plain(row.folder), row.name} | ({"diagnostic"} if row.name == "ax" else set())
    if (root / row.folder).is_dir():
        return root / row.folder
    try:
        below = [path for path in sorted(root.iterdir()) if path.is_dir() and _plain(path.name) in names]
    except OSError as error:
        raise storage_error(error, root) from None
    if below:
        return below[0]
    return root if _plain(root.resolve().name) in names and any(root.glob("*.tsv")) else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _file(folder: str | Path, row: GlueRow, split: str) -> Path | None:
    """A split's file, if it exists."""
    found = _find_folder(Path(folder), row) if Path(folder).is_dir() else None
    named = (found / name for name in _FILES.get(split, [f"{split}.tsv"])) if found is not None else ()
    return next((path for path in named if path.is_file()), None)


def _require_file(folder: str | Path, row: GlueRow, split: str) -> Path:
    """A split's file; MissingInputError: it, the task's folder or GLUE's does not exist."""
    path, root = _file(folder, row, split), Path(folder)
    if path is not None:
        return path
    if not root.is_dir():
        raise MissingInputError(f"{root}: no such folder. Give the folder that holds {row.folder} and so on, or hub.")
    below, name = _find_folder(root, row), _FILES.get(split, [f"{split}.tsv"])[0]
    there = sorted(one.name for one in (below or root).iterdir())
    near = did_you_mean(row.folder if below is None else name, there)
    raise MissingInputError(
        f"{(below or root / row.folder) / name}: no such file.{near} Found: {', '.join(there[:20]) or 'nothing'}. "
        "Name the tasks that exist with --tasks."
    )


def _counted(row: GlueRow, split: str, found: int, official: int) -> list[str]:
    """A note where a split is not GLUE's own: a part of it, or nearly all of it."""
    if found == official:
        return []
    if found < 0.99 * official:
        return [f"{found:,} of {official:,} {split} rows."]
    return [f"{found:,} {split} rows, GLUE has {official:,}: not its own file."]


def _some(train: Sequence[TextExample], limit: int, task: str) -> list[TextExample]:
    from electra_trainer.randomness import drawn

    return [train[index] for index in drawn(f"glue rows/{task}", count=limit, total=len(train))]
