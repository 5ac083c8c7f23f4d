"""Tables 1, 2, 3, 4 and 7 with our rows under the paper's, as Markdown, LaTeX or CSV. No torch here.

The paper's rows keep their order. A row that this package can train (an ELECTRA or the paper's own BERT) is followed by
one row for every experiment that has it, or by one row that says it is missing. Runs that match no row of the paper
come last. Every number of ours links to its run; nothing that is missing is blank or zero.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.results import Findings
from electra_trainer.files.table_writer import Cell, Link, Table
from electra_trainer.files.wording import escape_markdown
from electra_trainer.finetuning.glue.glue_tasks import PAPER_COLUMNS
from electra_trainer.paper.measured import Entry, entries, extra_metrics, measured, share_trained
from electra_trainer.paper.published import TABLES, PublishedRow

Format = Literal["md", "tex", "csv"]
Kind = Literal["score", "metric", "flops", "ratio", "count", "words"]
ABSENT = "—"
"""In Markdown and LaTeX. A CSV has `NA`, which readers of CSV know."""
ABSENT_CSV = "NA"
_LEGEND = (
    f"{ABSENT}: missing. In a row of the paper: it prints no number, or the transcribed copy is illegible there; "
    "in a row of ours: not trained or not measured.",
    "ours: mean ± standard deviation over the seeds, which are counted under “seeds”; a link leads to the runs. "
    "Training FLOPs, inference FLOPs and parameters as the paper counts them. "
    "Rows of the paper without “ours” are other people's systems.",
)
_TUNED = (
    "Of encoders that were fine-tuned (electra glue, squad, finetune): the median over the seeds instead of the mean, "
    "as the paper's."
)
_ON_DEV = (
    "dev: ours on the dev sets; GLUE keeps the answers of its test sets (electra glue --predict writes what it scores)."
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
    count: int | None = None
    """Seeds behind the number, where they are not the row's."""
    words: str | None = None
    at_least: bool = False
    """The number is a lower bound."""

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
    """By column; a column that is not there is missing."""
    seeds: int = 0
    folder: Path | None = None
    """Where the links of our numbers lead."""
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


class _Place(NamedTuple):
    """What an entry must be to match a row of the paper."""

    arm: str
    size: str | None = None
    """small, base or large; None: any."""
    share: float | None = 1
    """Of the size's full training; None: any."""

    def fits(self, entry: Entry) -> bool:
        if entry.arm != self.arm or (self.size is not None and entry.size != self.size):
            return False
        trained = share_trained(entry)
        # within 15 %: the paper's BERT-Small costs 1.10 of ELECTRA-Small by the authors' own count
        return self.share is None or (trained is not None and abs(math.log(trained / self.share)) < math.log(1.15))


_PLACES: dict[int, dict[str, _Place]] = {
    1: {
        "BERT-Small": _Place("mlm", "small"),
        "BERT-Base": _Place("mlm", "base"),
        "ELECTRA-Base": _Place("electra", "base"),
        "ELECTRA-Small": _Place("electra", "small"),
    }
    | {f"ELECTRA-Small, {part:g}% trained": _Place("electra", "small", part / 100) for part in (50, 25, 12.5, 6.25)},
    2: {"BERT (ours)": _Place("mlm", "large"), "ELECTRA": _Place("electra", "large")},
    3: {
        "BERT (ours)": _Place("mlm", "large"),
        "ELECTRA-Base": _Place("electra", "base"),
        "ELECTRA": _Place("electra", "large"),
    },
    4: {
        "ELECTRA": _Place("electra", share=None),
        "All-Tokens MLM": _Place("all-tokens-mlm", share=None),
        "Replace MLM": _Place("replace-mlm", share=None),
        "ELECTRA 15%": _Place("electra-15", share=None),
        "BERT": _Place("mlm", share=None),
    },
    7: {"ELECTRA-Small": _Place("electra", "small"), "ELECTRA-Base": _Place("electra", "base")},
}
"""By table, the rows of the paper that can be trained here."""
_COLUMNS: dict[str, tuple[str, Kind]] = {
    "train_flops": ("Train FLOPs", "flops"),
    "infer_flops": ("Infer FLOPs", "flops"),
    "train_ratio": ("Ratio", "ratio"),
    "train_speedup": ("Train speedup", "ratio"),
    "infer_speedup": ("Infer speedup", "ratio"),
    "parameters": ("Params", "count"),
    "time_and_hardware": ("Train time + hardware", "words"),
    **{f"glue/{title.lower()}": (title, "score") for title in PAPER_COLUMNS.values()},
    "glue/average": ("Avg.", "score"),
    "squad1/em": ("SQuAD 1.1 EM", "score"),
    "squad1/f1": ("SQuAD 1.1 F1", "score"),
    "squad2/em": ("SQuAD 2.0 EM", "score"),
    "squad2/f1": ("SQuAD 2.0 F1", "score"),
}
_TITLE_OF_AVERAGE = {1: "GLUE", 4: "GLUE score"}


def _columns(number: int) -> Iterator[Column]:
    keys = TABLES[number].columns
    for key in keys if "train_flops" in keys else (*keys, "train_flops"):
        title, kind = _COLUMNS[key]
        yield Column(key, _TITLE_OF_AVERAGE.get(number, title) if key == "glue/average" else title, kind)


def build_table(number: int, experiments: Sequence[Findings], *, metrics: Sequence[str] = ()) -> PaperTable:
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
    table, places = TABLES[number], _PLACES[number]
    known, several = entries(experiments), len(experiments) > 1
    columns = (*_columns(number), *(Column(name, name, "metric") for name in extra_metrics(experiments, metrics)))

    def ours(model: str, entry: Entry, split: str) -> PaperRow:
        if number == 7 and not any(name.startswith("glue-test/") for cell in entry.cells for name in cell.metrics):
            split = "dev"
        return _ours(model, entry, columns, table.reference_flops, split, several)

    rows: list[PaperRow] = []
    placed: set[int] = set()
    for row in table.rows:
        rows.append(_paper(row))
        place = places.get(row.model)
        if place is None:
            continue
        fitting = [index for index, entry in enumerate(known) if place.fits(entry)]
        placed.update(fitting)
        rows += [ours(row.model, known[index], row.split) for index in fitting]
        if not fitting:
            rows.append(PaperRow(model=row.model, source="ours", split=row.split, values={}))
    split = {2: "dev", 7: "test"}.get(number, "")
    rows += [ours(_name(entry), entry, split) for index, entry in enumerate(known) if index not in placed]
    notes = tuple(note for experiment in experiments for note in experiment.notes)
    if any(entry.tuned for entry in known):
        notes = (*notes, _TUNED)
    if number == 7 and any(row.split == "dev" for row in rows):
        notes = (*notes, _ON_DEV)
    return PaperTable(number=number, caption=table.caption, columns=columns, rows=tuple(rows), notes=notes)


def _ours(model: str, entry: Entry, columns: Sequence[Column], reference: float, split: str, several: bool) -> PaperRow:
    values = {}
    for column in columns:
        found = measured(entry, column.key, reference=reference, test=split == "test", score=column.kind == "score")
        if isinstance(found, str):
            values[column.key] = Value(words=found)
        elif found is not None:
            count = found.n if found.n != len(entry.cells) else None
            values[column.key] = Value(number=found.mean, sd=found.sd, count=count)
    return PaperRow(
        model=model,
        source=f"ours ({entry.preset}{f', {entry.experiment.name}' if several else ''})",
        split=split,
        values=values,
        seeds=len(entry.cells),
        folder=entry.folder,
        runs=tuple((cell.seed, cell.kept) for cell in entry.cells),
    )


def _name(entry: Entry) -> str:
    """The name of an arm that the paper's table does not have."""
    trained = share_trained(entry)
    part = "" if trained is None or abs(trained - 1) < 0.15 else f", {100 * trained:.3g}% trained"
    return f"{entry.preset} (ours): {entry.arm}{part}"


def _paper(row: PublishedRow) -> PaperRow:
    values = {
        key: Value(words=value) if isinstance(value, str) else Value(number=value, at_least=key in row.at_least)
        for key, value in row.values.items()
    }
    return PaperRow(model=row.model, source="paper", split=row.split, values=values)


def write(table: PaperTable, form: Format, *, base: Path) -> str:
    """The table's text.

    Args:
        base: folder that links are relative to.
    """
    split = any(row.split for row in table.rows)
    if form == "csv":
        return _exact_table(table, split, base).csv()
    head = ["Model", "From", *(["Set"] if split else []), *(column.title for column in table.columns), "seeds", "Runs"]
    shown = Table(head=head, rows=[_cells(row, table, split, base) for row in table.rows], words=3 if split else 2)
    caption, notes = f"{table.caption}, as the paper prints it and as measured here.", (*_LEGEND, *table.notes)
    if form == "tex":
        return shown.latex(caption=caption, notes=notes)
    title = f"**Table {table.number}.** {escape_markdown(caption)}"
    return "\n".join([title, "", shown.markdown(), "", *(f"- {escape_markdown(note)}" for note in notes), ""])


def _relative(path: Path, base: Path) -> str:
    """`path` seen from the folder `base`, with forward slashes."""
    return Path(os.path.relpath(path.resolve(), base.resolve())).as_posix()


def _cells(row: PaperRow, table: PaperTable, split: bool, base: Path) -> list[Cell]:
    cells: list[Cell] = [row.model, row.source, *([row.split] if split else [])]
    for column in table.columns:
        value = row.values.get(column.key, Value())
        text = _shown(value, column)
        linked = row.folder is not None and not value.missing
        cells.append([Link(text, _relative(row.folder, base))] if linked and row.folder is not None else text)
    runs = [Link(str(seed), _relative(run, base)) for seed, run in row.runs]
    return [*cells, str(row.seeds) if row.seeds else ABSENT, runs or ABSENT]


def _shown(value: Value, column: Column) -> str:
    """A cell as the paper prints it: 85.0, 1.4e18, 45x, 14M."""
    if value.number is None:
        return ABSENT if value.words is None else value.words
    text = _number(value.number, column.kind) + ("+" if value.at_least else "")
    if column.spreads and value.sd is not None:
        text += f" ± {_number(value.sd, column.kind)}"
    return text + (f" (n={value.count})" if column.spreads and value.count is not None else "")


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


def _exact_table(table: PaperTable, split: bool, base: Path) -> Table:
    """Unrounded numbers, with means, SDs and seeds in separate columns; `runs` holds the run folders."""

    def exact(number: float | None) -> str:
        return ABSENT_CSV if number is None else f"{number:.10g}"

    head = ["model", "from", *(["set"] if split else [])]
    for column in table.columns:
        head += [column.key, *([f"{column.key} sd", f"{column.key} seeds"] if column.spreads else [])]
    rows = []
    for row in table.rows:
        cells: list[Cell] = [row.model, row.source, *([row.split or ABSENT_CSV] if split else [])]
        for column in table.columns:
            value = row.values.get(column.key, Value())
            cells.append(exact(value.number) if value.words is None else value.words)
            if column.spreads:
                count = row.seeds if value.count is None else value.count
                cells += [exact(value.sd), str(count) if count and not value.missing else ABSENT_CSV]
        runs = [Link("", _relative(run, base)) for _, run in row.runs]
        rows.append([*cells, str(row.seeds or ABSENT_CSV), runs or ABSENT_CSV])
    return Table(head=[*head, "seeds", "runs"], rows=rows)
