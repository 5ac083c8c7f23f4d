"""Tables 1, 2, 3, 4 and 7 with our rows under the paper's, as Markdown, LaTeX or CSV. No torch here.

The paper's rows keep their order. A row that this package can train (an ELECTRA or the paper's own BERT) is followed by
one row for every experiment that has it, or by one row that says it is missing. Runs that match no row of the paper
come last. Each row of ours links to its runs; nothing that is missing is blank or zero.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.summary import Summary
from electra_trainer.files import table_writer, wording
from electra_trainer.paper.measured import Entry, entries, extra_metrics, measured, notes_of
from electra_trainer.paper.published import PRINTED, TABLES, PublishedRow, PublishedTable

Format = Literal["md", "tex", "csv"]
Kind = Literal["score", "metric", "flops", "ratio", "count", "words"]
ABSENT = "—"
"""In Markdown and LaTeX. A CSV has `NA`, which readers of CSV know."""
ABSENT_CSV = "NA"
_LEGEND = (
    f"{ABSENT}: missing. In a row of the paper: it prints no number, or the transcribed copy is illegible there; in a "
    "row of ours: not trained or not measured.",
    "ours: mean ± standard deviation over the seeds, which are counted under “seeds”; the links of a row lead to them. "
    "Training FLOPs, inference FLOPs and parameters as the paper counts them. Rows of the paper without “ours” are "
    "other people's systems.",
    "Encoders that were fine-tuned (electra glue, squad, finetune): medians over the seeds. test: of each "
    "task the seed that is best on dev, as the server of GLUE scored the archive of electra glue --predict; dev: the "
    "dev sets, where test-scores.json in the experiment's folder has no such scores.",
)


class Column(NamedTuple):
    """A column; `kind` says how its numbers are written."""

    key: str
    title: str
    kind: Kind

    @property
    def spreads(self) -> bool:
        """Whether its numbers have a standard deviation over the seeds."""
        return self.kind in ("score", "metric")


@dataclass(frozen=True, kw_only=True)
class Value:
    """A cell of a table. Neither number nor words: it is missing."""

    number: float | None = None
    """In points (0 to 100) for a score."""
    sd: float | None = None
    words: str | None = None

    @property
    def missing(self) -> bool:
        """Whether there is nothing to show."""
        return self.number is None and self.words is None


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A model in a table, the paper's or ours."""

    model: str
    source: str
    """The word "paper", or "ours" with the preset."""
    split: str = ""
    """"dev" or "test" where the table has both."""
    values: Mapping[str, Value]
    """Values by column; a column that is not there is missing."""
    seeds: int = 0
    runs: tuple[tuple[int, Path], ...] = ()
    """(seed, run folder)."""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """A table, ready to be written."""

    number: int
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[PaperRow, ...]
    notes: tuple[str, ...]


def _fits(entry: Entry, *, arm: str, size: str | None = None, share: float | None = None) -> bool:
    """Whether an entry is what a row of the paper needs: the arm, the size, and the share of the size's full
    training.
    """
    if entry.arm != arm or size not in (None, entry.size):
        return False
    trained = entry.share_trained
    # within 15 %: the paper's BERT-Small costs 1.10 of ELECTRA-Small by the authors' own count
    return share is None or (trained is not None and abs(math.log(trained / share)) < math.log(1.15))


def _columns(table: PublishedTable) -> Iterator[Column]:
    for key in dict.fromkeys([*table.columns, "train_flops"]):
        title, kind = PRINTED["columns"][key]
        yield Column(key, table.average if key == "glue/average" else title, kind)


def build_table(number: int, experiments: Sequence[Summary], *, metrics: Sequence[str] = ()) -> PaperTable:
    """Table `number` of the paper with the experiments' cells.

    Args:
        metrics: patterns of further metrics (`pos/*`), each a column; empty: all of at most two levels.

    Raises:
        ConfigError: no such table, or a pattern that matches nothing. DataError: a score in points where a share is
        expected.
    """
    if number not in TABLES:
        raise ConfigError(
            f"table {number}: expected one of {', '.join(map(str, TABLES))}. Table 5 is: electra show small"
        )
    table, known = TABLES[number], entries(experiments)
    printed = [*_columns(table)]
    more = extra_metrics(experiments, metrics, columns=[column.key for column in printed])
    columns = (*printed, *(Column(name, name, "metric") for name in more))
    several = len(experiments) > 1

    def ours(model: str, entry: Entry, split: str) -> PaperRow:
        if number == 7 and not any(name.startswith("glue-test/") for one in entry.results for name in one.scores):
            split = "dev"
        return _ours(model, entry, columns, table.reference_flops, split, several)

    rows: list[PaperRow] = []
    placed: set[int] = set()
    for row in table.rows:
        rows.append(_paper(row))
        if row.model in table.ours:
            fitting = [index for index, entry in enumerate(known) if _fits(entry, **table.ours[row.model])]
            placed.update(fitting)
            missing = PaperRow(model=row.model, source="ours", split=row.split, values={})
            rows += [ours(row.model, known[index], row.split) for index in fitting] or [missing]
    split = {2: "dev", 7: "test"}.get(number, "")
    rows += [ours(_name(entry), entry, split) for index, entry in enumerate(known) if index not in placed]
    notes = tuple(note for experiment in experiments for note in notes_of(experiment))
    return PaperTable(number=number, caption=table.caption, columns=columns, rows=tuple(rows), notes=notes)


def _ours(model: str, entry: Entry, columns: Sequence[Column], reference: float, split: str, several: bool) -> PaperRow:
    values = {}
    for column in columns:
        found = measured(entry, column.key, reference=reference, test=split == "test", score=column.kind == "score")
        if isinstance(found, str):
            values[column.key] = Value(words=found)
        elif found is not None:
            values[column.key] = Value(number=found.mean, sd=found.sd)
    about = [entry.preset, *([entry.experiment.name] if several else [])]
    about += [entry.unfinished] if entry.unfinished else []
    return PaperRow(
        model=model,
        source=f"ours ({', '.join(about)})",
        split=split,
        values=values,
        seeds=len(entry.results),
        runs=tuple((one.seed, entry.kept(one)) for one in entry.results),
    )


def _name(entry: Entry) -> str:
    """The name of an arm that the paper's table does not have."""
    trained = entry.share_trained
    part = "" if trained is None or abs(trained - 1) < 0.15 else f", {100 * trained:.3g}% trained"
    return f"{entry.preset} (ours): {entry.arm}{part}"


def _paper(row: PublishedRow) -> PaperRow:
    values = {
        key: Value(words=value) if isinstance(value, str) else Value(number=value) for key, value in row.values.items()
    }
    return PaperRow(model=row.model, source="paper", split=row.split, values=values)


def write(table: PaperTable, form: Format, *, base: Path) -> str:
    """The table's text. A CSV has unrounded numbers, with SDs in separate columns, and run folders as `runs`.

    Args:
        base: folder that links are relative to.
    """
    split, exact = any(row.split for row in table.rows), form == "csv"
    rows = [_cells(row, table, split, exact, base) for row in table.rows]
    if exact:
        head = ["model", "from", *(["set"] if split else [])]
        for column in table.columns:
            head += [column.key, *([f"{column.key} sd"] if column.spreads else [])]
        return table_writer.Table(head=[*head, "seeds", "runs"], rows=rows).csv()
    head = ["Model", "From", *(["Set"] if split else []), *(column.title for column in table.columns), "seeds", "Runs"]
    shown = table_writer.Table(head=head, rows=rows, words=3 if split else 2)
    caption, notes = f"{table.caption}, as the paper prints it and as measured here.", (*_LEGEND, *table.notes)
    if form == "tex":
        return shown.latex(caption=caption, notes=notes)
    title = f"**Table {table.number}.** {wording.escape_markdown(caption)}"
    return "\n".join([title, "", shown.markdown(), "", *(f"- {wording.escape_markdown(note)}" for note in notes), ""])


def _cells(row: PaperRow, table: PaperTable, split: bool, exact: bool, base: Path) -> list[table_writer.Cell]:
    absent = ABSENT_CSV if exact else ABSENT
    cells: list[table_writer.Cell] = [row.model, row.source, *([row.split or absent] if split else [])]
    for column in table.columns:
        value = row.values.get(column.key, Value())
        cells += _exact(value, column) if exact else [_shown(value, column)]
    runs = [table_writer.Link(str(seed), _relative(run, base)) for seed, run in row.runs]
    return [*cells, str(row.seeds or absent), runs or absent]


def _relative(path: Path, base: Path) -> str:
    """`path` seen from the folder `base`, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


def _exact(value: Value, column: Column) -> list[str]:
    """The number, and where it has a spread the SD."""
    numbers = [ABSENT_CSV if number is None else f"{number:.10g}" for number in (value.number, value.sd)]
    if value.words is not None:
        numbers[0] = value.words
    return numbers if column.spreads else numbers[:1]


def _shown(value: Value, column: Column) -> str:
    """A cell as the paper prints it: 85.0, 1.4e18, 45x, 14M."""
    if value.number is None:
        return ABSENT if value.words is None else value.words
    text = _number(value.number, column.kind)
    if column.spreads and value.sd is not None:
        text += f" ± {_number(value.sd, column.kind)}"
    return text


def _number(number: float, kind: Kind) -> str:
    match kind:
        case "score":
            return f"{number:.1f}"
        case "metric":
            return f"{number:.3f}"
        case "flops":
            digits, _, exponent = f"{number:.1e}".partition("e")
            return f"{digits}e{int(exponent)}"
        case "ratio":
            if number and not 1e-3 <= number < 1e4:
                return f"{_number(number, 'flops')}x"
            return f"{number:.0f}x" if number >= 10 else f"{number:.2g}x"
        case "count":
            return f"{number / 1e6:.3g}M"
        case "words":
            return f"{number:g}"
