"""The archive that gluebenchmark.com takes: eleven tables of test predictions, `index` and `prediction`.

The server turns an archive away that lacks a table or names a label otherwise. The same predictions give the same
bytes.
"""

import io
import json
import math
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from electra_trainer.errors import ConfigError, DataError, MissingInputError
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.glue_table import glue_metrics
from electra_trainer.finetuning.glue_tasks import PAPER, ROWS, GlueRow, GlueTask
from electra_trainer.settings.records import read_object

HEADER = "index\tprediction\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Part(NamedTuple):
    """A table of the archive: whose predictions it holds."""

    file: str
    task: str
    """The task whose model predicts it."""
    split: str

    @property
    def rows(self) -> int:
        """GLUE's own count."""
        return ROWS["ax" if self.split == "ax" else self.task].test[self.split]


_NAMES = {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm", "ax": "AX"}
PARTS = tuple(
    Part(f"{_NAMES.get(split, row.folder)}.tsv", row.name if row.train else "mnli", split)
    for row in ROWS.values()
    for split in row.test
)


SCORES = "test-scores.json"
"""In the folder of an experiment: what the server answered to its archive."""


def read_scores(out: Path) -> dict[str, float]:
    """The scores of the test sets in OUT/test-scores.json, as shares by the columns of the paper's tables,
    `glue-test/cola` …, and `glue-test/average` if all eight are there. Empty without a file.

    The file has tasks and points, as the server prints them: `{"cola": 54.6, "sst2": 89.1}`; of MNLI the matched set.

    Raises:
        DataError: it is not this.
    """
    path = out / SCORES
    if not path.is_file():
        return {}
    table = read_object(path)
    for task, score in table.items():
        if task not in PAPER or type(score) not in (int, float) or not -100 <= score <= 100:
            raise DataError(
                f"{path}: {task}: {score}: expected points from -100 to 100 of {', '.join(PAPER)}. Mend the file."
            )
    found = {name.replace("glue/", "glue-test/"): share for name, share in glue_metrics(table).items()}
    return {name: score / 100 for name, score in found.items()}


def require_tables(archive: Path, *, folder: str, tasks: Collection[str]) -> dict[Part, list[TextExample]]:
    """Check, before hours of training, that an archive can be written once `tasks` are trained; return its test sets.

    No fine-tuned encoder beats WNLI's majority class, so that is submitted without a run (Appendix B leaves WNLI out).

    Raises:
        ConfigError: the name. MissingInputError: a table would be missing; names all of them. DataError: an invalid
            test set.
    """
    if archive.suffix != ".zip":
        raise ConfigError(f"--zip {archive}: expected a name that ends in .zip.")
    tests = {task: GlueTask(folder=folder, task=task).tests() for task in dict.fromkeys(part.task for part in PARTS)}
    missing = []
    for part in PARTS:
        if part.split not in tests[part.task]:
            missing.append(f"{part.file} (no test set of {'ax' if part.split == 'ax' else part.task} is there)")
        elif part.task not in (*tasks, "wnli"):
            missing.append(f"{part.file} ({part.task} is not trained)")
    if missing:
        raise MissingInputError(
            f"--zip {archive}: the server wants all {len(PARTS)} tables; missing would be {', '.join(missing)}. Train "
            "what is missing, and put the test sets into the folder."
        )
    return {part: tests[part.task][part.split] for part in PARTS}


def write_submission(archive: Path, *, folder: str, runs: Mapping[str, Path]) -> tuple[str, ...]:
    """Write the archive; return notes for its reader, a line each.

    Args:
        archive: a name that ends in .zip.
        folder: GLUE's folder, or `hub`: the test sets with their indices.
        runs: the run folder that predicts, by task. WNLI, which the paper leaves out, has its majority class without
            one.

    Raises:
        ConfigError, MissingInputError: as `require_tables`, or a run did not predict. DataError: predictions that do
            not fit the test set. StorageError: it cannot be written.
    """
    contents, notes = {}, []
    for part, examples in require_tables(archive, folder=folder, tasks=runs).items():
        row, indices = ROWS[part.task], _indices(examples)
        if part.task in runs:
            predicted = _predicted(runs[part.task], part, len(examples), row)
            notes.append(f"{part.file}: from {runs[part.task]}")
        else:
            counts = Counter(one.label for one in GlueTask(folder=folder, task=row.name, test=False).load().train)
            predicted = [max(row.layout.labels, key=lambda label: counts[label])] * len(indices)
            notes.append(f"{part.file}: NOT PREDICTED: {predicted[0]!r} for every row, the training set's majority.")
        if len(indices) != part.rows:
            notes.append(f"{part.file}: {len(indices):,} rows, GLUE has {part.rows:,}: the server will not take it.")
        contents[part.file] = HEADER + "".join(
            f"{index}\t{one}\n" for index, one in zip(indices, predicted, strict=True)
        )
    replace_durably(archive, zipped(contents))
    return tuple(notes)


def zipped(contents: Mapping[str, str]) -> bytes:
    """An archive of texts: no times, not compressed, so that its bytes follow from the texts on every machine."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as file:
        for name, text in contents.items():
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            file.writestr(entry, text.encode())
    return made.getvalue()


def _indices(examples: Sequence[TextExample]) -> list[str]:
    """Indices from the file, or row numbers."""
    indices = [str(number) if example.id is None else example.id for number, example in enumerate(examples)]
    known: set[str] = set()
    for example, index in zip(examples, indices, strict=True):
        if not index.isdecimal() or index in known:
            raise DataError(f"{example.place}: index {index!r}: expected a unique number. Fetch the file again.")
        known.add(index)
    return indices


def _predicted(run: Path, part: Part, rows: int, row: GlueRow) -> list[str]:
    """Predictions as the server reads them."""
    path = run / "predictions" / f"{part.split}.jsonl"
    lines = read_file(path, limit=MOST_TEXT).decode("utf-8", errors="replace").removesuffix("\n").split("\n")
    if len(lines) != rows:
        raise DataError(
            f"{path}: {len(lines):,} predictions, the test set has {rows:,} rows. It has changed since: give the "
            "folder that the run read."
        )
    return [_written(line, row, where=f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _written(line: str, row: GlueRow, *, where: str) -> str:
    labels, again = row.layout.labels, "Remove the run's folder and run it again."
    try:
        predicted: Any = json.loads(line)["label" if labels else "value"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{where}: not a prediction of {row.folder}. {again}") from None
    if labels:
        if predicted not in labels:
            raise DataError(f"{where}: label {predicted!r}: expected one of {', '.join(labels)}.")
        return str(predicted)
    if not isinstance(predicted, int | float) or not math.isfinite(predicted):
        raise DataError(f"{where}: value {predicted!r}: expected a finite number. {again}")
    low, high = row.layout.bounds
    return f"{min(max(float(predicted), low), high):.4f}"
