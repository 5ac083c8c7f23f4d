"""Tables 1, 2, 3, 4 and 7: the paper's rows in the paper's order, under each of them ours. No torch here.

A row of the paper that this package can train (an ELECTRA or the paper's own BERT) is followed by one row for every
experiment that has it, or by one row that says it is missing. What fits no row of the paper stands at the end.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from electra_trainer.errors import ConfigError
from electra_trainer.experiments.read_experiment import Findings
from electra_trainer.paper.measured import Entry, entries, extra_metrics, measured, share_trained
from electra_trainer.paper.published import (
    GLUE_TASKS,
    SQUAD_MEASURES,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_7,
    GlueModel,
)

Kind = Literal["score", "metric", "flops", "ratio", "count", "words"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; `kind` says how its numbers are written."""

    key: str
    title: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Value:
    """A cell of a table. No number and no words: it is missing."""

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


MISSING = Value()


@dataclass(frozen=True, kw_only=True)
class Row:
    """A model in a table, the paper's or ours."""

    model: str
    source: str
    """The word "paper", or "ours" with the preset."""
    split: str = ""
    """"dev" or "test" where the table has both."""
    values: dict[str, Value]
    """By column; a column that is not there is missing."""
    seeds: int = 0
    folder: Path | None = None
    """What our numbers are linked to."""
    runs: tuple[tuple[int, Path], ...] = ()
    """(seed, run folder)."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, ready to be written."""

    number: int
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """What an entry must be to stand under a row of the paper."""

    arm: str
    size: str | None = None
    """small, base or large; None: any."""
    share: float | None = None
    """Of the size's full training; None: any."""

    def fits(self, entry: Entry) -> bool:
        if entry.arm != self.arm or (self.size is not None and entry.size != self.size):
            return False
        trained = share_trained(entry)
        # within 15 %: the paper's BERT-Small costs 1.10 of ELECTRA-Small by the authors' own count
        return self.share is None or (trained is not None and abs(math.log(trained / self.share)) < math.log(1.15))


_Paper = tuple[Row, _Place | None]
_GLUE_TITLES = ("CoLA", "SST", "MRPC", "STS", "QQP", "MNLI", "QNLI", "RTE")
_SCORE_OF_GLUE = tuple(
    Column(key=f"glue/{task}", title=title, kind="score") for task, title in zip(GLUE_TASKS, _GLUE_TITLES, strict=True)
)
_FLOPS = Column(key="train_flops", title="Train FLOPs", kind="flops")
_RATIO = Column(key="train_ratio", title="Ratio", kind="ratio")
_PARAMETERS = Column(key="parameters", title="Params", kind="count")


def build_table(number: int, experiments: Sequence[Findings], *, metrics: Sequence[str] = ()) -> Table:
    """Table `number` of the paper with the experiments' cells.

    Args:
        metrics: patterns (`pos/*`) of the metrics in the extra columns; all of a table's first two levels if empty.

    Raises:
        ConfigError: no such table, or a pattern that fits no metric.
        DataError: a GLUE or SQuAD score that is no share.
    """
    if number not in TABLES:
        raise ConfigError(
            f"table {number}: expected one of {', '.join(map(str, TABLES))}. Table 5 is: electra show small"
        )
    caption, columns, make, reference = TABLES[number]
    known = entries(experiments)
    paper = make()
    rows: list[Row] = []
    placed: set[int] = set()
    extra = tuple(Column(key=name, title=name, kind="metric") for name in extra_metrics(experiments, metrics))
    all_columns = (*columns, *extra)
    several = len(experiments) > 1
    for row, place in paper:
        rows.append(row)
        if place is None:
            continue
        fitting = [index for index, entry in enumerate(known) if place.fits(entry)]
        placed |= set(fitting)
        rows += [_ours(row.model, known[index], all_columns, reference, row.split, several) for index in fitting]
        if not fitting:
            rows.append(Row(model=row.model, source="ours", split=row.split, values={}))
    split = "dev" if number == 2 else "test" if number == 7 else ""
    rest = [entry for index, entry in enumerate(known) if index not in placed]
    rows += [_ours(_name(entry), entry, all_columns, reference, split, several) for entry in rest]
    notes = tuple(note for experiment in experiments for note in experiment.notes)
    return Table(number=number, caption=caption, columns=all_columns, rows=tuple(rows), notes=notes)


def _ours(model: str, entry: Entry, columns: Sequence[Column], reference: float, split: str, several: bool) -> Row:
    values = {}
    for column in columns:
        found = measured(entry, column.key, reference=reference, test=split == "test", score=column.kind == "score")
        if isinstance(found, str):
            values[column.key] = Value(words=found)
        elif found is not None:
            count = found.n if found.n != len(entry.cells) else None
            values[column.key] = Value(number=found.mean, sd=found.sd, count=count)
    size = f"{entry.preset}, {entry.experiment.name}" if several else entry.preset
    return Row(
        model=model,
        source=f"ours ({size})",
        split=split,
        values=values,
        seeds=len(entry.cells),
        folder=entry.folder,
        runs=tuple((cell.seed, cell.kept) for cell in entry.cells),
    )


def _name(entry: Entry) -> str:
    """What an arm that the paper's table does not have is called there."""
    trained = share_trained(entry)
    part = "" if trained is None or abs(trained - 1) < 0.15 else f", {100 * trained:.3g}% trained"
    return f"{entry.preset} (ours): {entry.arm}{part}"


def _paper(model: str, values: Mapping[str, float | str | None], *, split: str = "", at_least: bool = False) -> Row:
    return Row(
        model=model,
        source="paper",
        split=split,
        values={
            key: Value(words=value)
            if isinstance(value, str)
            else Value(number=value, at_least=at_least and key in ("train_flops", "train_ratio"))
            for key, value in values.items()
            if value is not None
        },
    )


def _table_1() -> list[_Paper]:
    places = {
        "BERT-Small": _Place(arm="mlm", size="small", share=1),
        "BERT-Base": _Place(arm="mlm", size="base", share=1),
        "ELECTRA-Base": _Place(arm="electra", size="base", share=1),
        "ELECTRA-Small": _Place(arm="electra", size="small", share=1),
    } | {
        f"ELECTRA-Small, {percent:g}% trained": _Place(arm="electra", size="small", share=percent / 100)
        for percent in (50, 25, 12.5, 6.25)
    }
    return [
        (
            _paper(
                row.model,
                {
                    "train_flops": row.train_flops, "infer_flops": row.infer_flops, "train_speedup": row.train_speedup,
                    "infer_speedup": row.infer_speedup, "parameters": row.parameters,
                    "time_and_hardware": row.time_and_hardware, "glue/average": row.glue,
                },
            ),
            places.get(row.model),
        )
        for row in TABLE_1
    ]  # fmt: skip


def _glue_rows(rows: Sequence[GlueModel], places: dict[str, _Place]) -> list[_Paper]:
    return [
        (
            _paper(
                row.model,
                {
                    "train_flops": row.train_flops, "train_ratio": row.train_ratio, "parameters": row.parameters,
                    **dict(zip((f"glue/{task}" for task in GLUE_TASKS), row.scores, strict=True)),
                    "glue/average": row.average,
                },
                split=row.split,
                at_least=row.at_least,
            ),
            places.get(row.model),
        )
        for row in rows
    ]  # fmt: skip


def _table_2() -> list[_Paper]:
    large = {
        "BERT (ours)": _Place(arm="mlm", size="large", share=1),
        "ELECTRA": _Place(arm="electra", size="large", share=1),
    }
    return _glue_rows(TABLE_2, large)


def _table_3() -> list[_Paper]:
    places = {
        "BERT (ours)": _Place(arm="mlm", size="large", share=1),
        "ELECTRA-Base": _Place(arm="electra", size="base", share=1),
        "ELECTRA": _Place(arm="electra", size="large", share=1),
    }
    return [
        (
            _paper(
                row.model,
                {
                    "train_flops": row.train_flops, "train_ratio": row.train_ratio, "parameters": row.parameters,
                    **dict(zip(SQUAD_MEASURES, row.scores, strict=True)),
                },
            ),
            places.get(row.model),
        )
        for row in TABLE_3
    ]  # fmt: skip


def _table_4() -> list[_Paper]:
    arms = {
        "ELECTRA": "electra", "All-Tokens MLM": "all-tokens-mlm", "Replace MLM": "replace-mlm",
        "ELECTRA 15%": "electra-15", "BERT": "mlm",
    }  # fmt: skip
    return [(_paper(row.model, {"glue/average": row.glue}), _Place(arm=arms[row.model])) for row in TABLE_4]


def _table_7() -> list[_Paper]:
    return _glue_rows(
        TABLE_7,
        {
            "ELECTRA-Small": _Place(arm="electra", size="small", share=1),
            "ELECTRA-Base": _Place(arm="electra", size="base", share=1),
        },
    )


_AVERAGE = Column(key="glue/average", title="Avg.", kind="score")
_GLUE_COLUMNS = (_FLOPS, _RATIO, _PARAMETERS, *_SCORE_OF_GLUE, _AVERAGE)

# number: (caption, columns, the paper's rows, the FLOPs that ratios and speedups refer to)
TABLES: dict[int, tuple[str, tuple[Column, ...], Callable[[], list[_Paper]], float]] = {
    1: (
        "Comparison of small models on the GLUE dev set",
        (
            _FLOPS,
            Column(key="infer_flops", title="Infer FLOPs", kind="flops"),
            Column(key="train_speedup", title="Train speedup", kind="ratio"),
            Column(key="infer_speedup", title="Infer speedup", kind="ratio"),
            _PARAMETERS,
            Column(key="time_and_hardware", title="Train time + hardware", kind="words"),
            Column(key="glue/average", title="GLUE", kind="score"),
        ),
        _table_1,
        6.4e19,
    ),
    2: ("Comparison of large models on the GLUE dev and test sets", _GLUE_COLUMNS, _table_2, 7.1e20),
    3: (
        "Results on the SQuAD dev sets",
        (
            _FLOPS,
            _RATIO,
            _PARAMETERS,
            *(
                Column(key=key, title=title, kind="score")
                for key, title in zip(
                    SQUAD_MEASURES, ("SQuAD 1.1 EM", "SQuAD 1.1 F1", "SQuAD 2.0 EM", "SQuAD 2.0 F1"), strict=True
                )
            ),
        ),
        _table_3,
        7.1e20,
    ),
    4: (
        "Compute-efficiency experiments (§3.5)",
        (Column(key="glue/average", title="GLUE score", kind="score"), _FLOPS),
        _table_4,
        6.4e19,
    ),
    7: ("Results on the GLUE test set", _GLUE_COLUMNS, _table_7, 1.4e18),
}
