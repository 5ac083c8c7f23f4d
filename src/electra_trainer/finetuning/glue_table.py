"""GLUE's scores in the paper's columns (Tables 2 and 7), next to GLUE's own metrics, with notes for their reader. No
torch here.

Scores of a summary are shares or correlations; tables print them x100. An average is of the paper's eight tasks (MNLI
matched, no WNLI), or it is not given. Tasks of the summary that are not GLUE's are left out.

The archive that gluebenchmark.com takes is written here too: eleven tables of test predictions, `index` and
`prediction`. The server turns an archive away that lacks a table or names a label otherwise. The same predictions give
the same bytes.
"""

import io
import json
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from electra_trainer.errors import DataError, MissingInputError
from electra_trainer.experiments.cell import PLUS
from electra_trainer.experiments.summary import Summary, row_remarks
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.reading import MOST_TEXT, read_file
from electra_trainer.files.wording import Printed, Table
from electra_trainer.settings.records import read_object, read_values
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.glue_tasks import PAPER, PAPER_COLUMNS, ROWS, GlueRow, GlueTask

HEADER = "index\tprediction\n"


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
        ConfigError, DataError: it is not this.
    """
    path = out / SCORES
    if not path.is_file():
        return {}
    points = read_values(dict.fromkeys(PAPER, float), read_object(path), where=str(path))
    found = {name.replace("glue/", "glue-test/"): share for name, share in glue_metrics(points).items()}
    return {name: score / 100 for name, score in found.items()}


def require_tables(*, folder: str, tasks: Collection[str]) -> dict[Part, list[TextExample]]:
    """Check, before hours of training, that an archive can be written once `tasks` are trained; return its test sets.

    No fine-tuned encoder beats WNLI's majority class, so that is submitted without a run (Appendix B leaves WNLI out).

    Raises:
        MissingInputError: a table would be missing; names all of them. DataError: an invalid
            test set.
    """
    tests = {task: GlueTask(folder=folder, task=task).tests() for task in dict.fromkeys(part.task for part in PARTS)}
    missing = []
    for part in PARTS:
        if part.split not in tests[part.task]:
            missing.append(f"{part.file} (no test set of {'ax' if part.split == 'ax' else part.task} is there)")
        elif part.task not in (*tasks, "wnli"):
            missing.append(f"{part.file} ({part.task} is not trained)")
    if missing:
        raise MissingInputError(
            f"--predict: the server wants all {len(PARTS)} tables; missing would be {', '.join(missing)}. Train what "
            "is missing, and put the test sets into the folder."
        )
    return {part: tests[part.task][part.split] for part in PARTS}


def write_submission(archive: Path, *, folder: str, runs: Mapping[str, Path]) -> tuple[str, ...]:
    """Write the archive; return notes for its reader, a line each.

    Args:
        archive: the file.
        folder: GLUE's folder, or `hub`: the test sets with their indices.
        runs: the run folder that predicts, by task. WNLI, which the paper leaves out, has its majority class without
            one.

    Raises:
        ConfigError, MissingInputError: as `require_tables`, or a run did not predict. DataError: predictions that do
            not fit the test set. StorageError: it cannot be written.
    """
    contents, notes = {}, []
    for part, examples in require_tables(folder=folder, tasks=runs).items():
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
        lines = (f"{index}\t{one}\n" for index, one in zip(indices, predicted, strict=True))
        contents[part.file] = HEADER + "".join(lines)
    replace_durably(archive, _zipped(contents))
    return tuple(notes)


def _zipped(contents: Mapping[str, str]) -> bytes:
    """An archive of texts: no times, not compressed, so that its bytes follow from the texts on every machine."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as file:
        for name, text in contents.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            file.writestr(entry, text.encode())
    return made.getvalue()


def _indices(examples: Sequence[TextExample]) -> list[str]:
    """Indices from the file, or row numbers."""
    indices = [str(number) if example.id is None else example.id for number, example in enumerate(examples)]
    counts = Counter(indices)
    for example, index in zip(examples, indices, strict=True):
        if not index.isdecimal() or counts[index] > 1:
            raise DataError(f"{example.place}: index {index!r}: expected a unique number. Fetch the file again.")
    return indices


def _predicted(run: Path, part: Part, rows: int, row: GlueRow) -> list[str]:
    """Predictions as the server reads them."""
    path, labels, (low, high) = run / "predictions" / f"{part.split}.jsonl", row.layout.labels, row.layout.bounds
    found: list[Any] = []
    with suppress(ValueError, KeyError, TypeError):
        for line in read_file(path, limit=MOST_TEXT).splitlines():
            one = json.loads(line)["label" if labels else "value"]
            found.append(one if labels else f"{min(max(float(one), low), high):.4f}")
    if len(found) != rows or (labels and not {*found} <= {*labels}) or "nan" in found:
        raise DataError(
            f"{path}: expected {rows:,} lines, each with {'one of ' + ', '.join(labels) if labels else 'a number'}, "
            f"found {len(found):,}. Remove the run's folder, and run it again in the folder that it read."
        )
    return found


COLUMNS = {name: f"glue/{title.lower()}" for name, title in PAPER_COLUMNS.items()}
"""Task of the paper's eight -> its score in the paper's tables."""
ABSENT = "—"
TITLE = "GLUE dev: Matthews (CoLA), Spearman (STS), accuracy (others), x100. Other metrics and tasks: summary.md"
_STATISTICS = ("median", "mean", "SD", "best")
"""Rows of a table; in lower case they are fields of a Spread."""


def glue_metrics(medians: Mapping[str, float]) -> dict[str, float]:
    """Main scores of tasks by the keys of the paper's tables: `glue/cola`, `glue/sst` ... and, if all eight are there,
    `glue/average`; then other tasks, which no average counts, by their names: `glue/wnli`.
    """
    found = {column: medians[name] for name, column in COLUMNS.items() if name in medians}
    average = {"glue/average": fmean(found.values())} if len(found) == len(PAPER) else {}
    return found | average | {f"glue/{name}": median for name, median in medians.items() if name not in PAPER}


def medians(summary: Summary) -> dict[str, float]:
    """The main score of each task that has one, as `glue_metrics` takes it."""
    known = [row for row in summary.declared.rows if row in ROWS]
    return {task: main.median for task in known if (main := summary.main(task)) is not None}


def glue_scores(summary: Summary) -> Table:
    """The paper's columns: statistics over the seeds, the baselines that have a score, and the average."""
    mains = {task: summary.main(task) if task in summary.declared.rows else None for task in PAPER}
    counts = {one.n for one in mains.values() if one is not None}
    lines: dict[str, list[float | None]] = {}
    for name in _STATISTICS:
        label = f"median of {next(iter(counts))}" if name == "median" and len(counts) == 1 else name
        values = [getattr(one, name.lower(), None) for one in mains.values()]  # None: missing, or the SD of one seed
        lines[label] = [*values, None if name == "SD" else _mean(values)]
    titles: dict[str, str] = {}
    for key, row in summary.declared.rows.items():
        titles.setdefault(key.partition(PLUS)[2], row.baseline)
    for name, title in titles.items():
        found = [summary.baselines(task).get(name) for task in PAPER]
        if any(value is not None for value in found):
            lines[title] = [*found, _mean(found)]
    rows = [[label, *map(_points, values)] for label, values in lines.items()]
    return Table(head=("", *PAPER_COLUMNS.values(), "Avg."), rows=rows, words=1)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return fmean(there) if len(there) == len(values) else None


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f}"


def glue_notes(summary: Summary) -> tuple[str, ...]:
    """Notes for a reader of the tables: missing or partial scores, doubts, baselines that are not beaten."""
    missing = [title for name, title in PAPER_COLUMNS.items() if name not in medians(summary)]
    notes = []
    if missing:
        notes.append(f"{ABSENT}: missing. No average is given without {', '.join(missing)}.")
    for key, row in summary.declared.rows.items():
        if (task := ROWS.get(row.reference or key)) is not None:
            notes += row_remarks(summary, key, task.folder)
    for one in summary.contrasts:
        if (task := ROWS.get(one.reference)) is not None and one.verdict != "beats":
            says = "is above {}, but not for certain" if one.verdict == "perhaps" else "DOES NOT BEAT {}"
            numbers = " against ".join(map(_points, reversed(one.medians)))
            notes.append(f"{task.folder} {says.format(summary.declared.rows[one.row].baseline)}: {numbers}.")
    return tuple(dict.fromkeys(notes))


def markdown(summary: Summary) -> str:
    """The table and the notes."""
    table = glue_scores(summary).markdown(escaped="|")
    return "\n".join([f"**{TITLE}**\n\n{table}\n", *(f"- {note}" for note in glue_notes(summary)), ""])


@dataclass(frozen=True, kw_only=True)
class GlueScores(Printed):
    """Result of `electra glue`."""

    summary: Summary
    archive: Path | None = None
    files: tuple[str, ...] = ()
    """The source of each file of the archive."""

    def text(self) -> str:
        """The table, the notes, and the archive."""
        lines = [f"{TITLE}\n{glue_scores(self.summary).text()}\n"]
        lines += [note for note in glue_notes(self.summary) if not note.endswith(self.summary.shown)]
        if self.archive is not None:
            lines += [f"\n{self.archive}: the best of each task's seeds on dev", *(f"  {line}" for line in self.files)]
        return "\n".join([*lines, str(self.summary.path / "glue.md")])

    def as_json(self) -> dict[str, Any]:
        return {
            "summary": str(self.summary.path / "summary.json"),
            "scores": glue_metrics(medians(self.summary)),
            "notes": [*glue_notes(self.summary)],
            "zip": [*self.files] if self.archive else None,
        }
