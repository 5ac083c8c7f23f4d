"""The paper's own numbers, read from published.toml. No torch here."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra_trainer.finetuning.glue.glue_tasks import PAPER_COLUMNS

GLUE_TASKS = tuple(title.lower() for title in PAPER_COLUMNS.values())
"""Columns of Tables 2 and 7 in order, as `glue/…`."""


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A model in a table of the paper."""

    model: str
    split: str
    """"dev" or "test" where the table has both, else empty."""
    values: Mapping[str, float | str]
    """By column: scores in points, counts, words. What the paper does not print, or is illegible, is left out."""
    at_least: frozenset[str]
    """Columns whose number is a lower bound (a "+" in print)."""

    def number(self, column: str) -> float | None:
        """The number in a column of numbers; None: there is none."""
        found = self.values.get(column)
        return None if found is None else float(found)


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """A table of the paper."""

    caption: str
    reference_flops: float
    """Training FLOPs that ratios and speedups refer to."""
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]


def _row(columns: Sequence[str], cells: Sequence[float | str]) -> PublishedRow:
    printed = {column: cell for column, cell in zip(columns, cells, strict=True) if cell not in ("–", "?")}
    bounds = {column: cell for column, cell in printed.items() if isinstance(cell, str) and cell.endswith("+")}
    values = printed | {column: float(cell.removesuffix("+")) for column, cell in bounds.items()}
    model, split = str(values.pop("model")), str(values.pop("split", ""))
    return PublishedRow(model=model, split=split, values=values, at_least=frozenset(bounds))


def _table(printed: Mapping[str, Any]) -> PublishedTable:
    return PublishedTable(
        caption=printed["caption"],
        reference_flops=printed["reference_flops"],
        columns=tuple(column for column in printed["columns"] if column not in ("model", "split")),
        rows=tuple(_row(printed["columns"], cells) for cells in printed["rows"]),
    )


PRINTED: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""published.toml as it is."""
TABLES = {number: _table(PRINTED[f"table_{number}"]) for number in (1, 2, 3, 4, 7)}
