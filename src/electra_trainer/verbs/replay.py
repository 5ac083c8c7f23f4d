"""`electra replay RUN --step 1000`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.errors import ConfigError

if TYPE_CHECKING:
    from electra_trainer.replay import Replayed
    from electra_trainer.replay_rows import ReplayedRow

_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One step of a run again: its rows with the documents that they are from, what was masked and replaced, and its losses, compared to the
    last bit with metrics.jsonl. From the nearest checkpoint before it; nothing is written into the run.

    In the text `[meal→food]` was masked and read as food, `[meal]` was masked and came out as it was.
    """

    run: tyro.conf.Positional[Path]
    """Run folder."""
    step: int
    """Which step, from 1, as in metrics.jsonl and log.txt."""
    data: Path | None = None
    """Prepared folder that the run was trained on; default: where it was when the run began."""
    rows: int | None = None
    """Rows that are shown, at most; default: 4, with --json all."""
    lane: int | None = None
    """Only the rows of this lane, from 0."""
    row: int | None = None
    """Only this row, by its number in train.bin."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto (the run's), cpu, cuda or cuda:N."""


def run(arguments: Arguments) -> None:
    """Print the step."""
    from electra_trainer.replay import replay
    from electra_trainer.replay_text import as_json, print_replayed

    if arguments.rows is not None and arguments.rows < 0:
        raise ConfigError(f"--rows {arguments.rows}: expected 0 or more.")
    found = replay(
        arguments.run,
        step=arguments.step,
        data=arguments.data,
        device=arguments.device,
        tell=lambda line: print(f"electra: {line}", file=sys.stderr),
    )
    rows = _chosen(arguments, found)
    if arguments.json:
        print(json.dumps(as_json(found, rows[: arguments.rows])))
        return
    print_replayed(found, rows[: _SHOWN if arguments.rows is None else arguments.rows])


def _chosen(arguments: Arguments, found: Replayed) -> list[ReplayedRow]:
    """The rows that were asked for; ConfigError when the step has none such."""
    rows = [
        row
        for row in found.rows
        if arguments.lane in (None, row.lane) and arguments.row in (None, row.row)
    ]  # fmt: skip
    if not rows:
        asked = f"--lane {arguments.lane}" if arguments.row is None else f"--row {arguments.row}"
        have = ", ".join(str(row.row) for row in found.rows[:12])
        raise ConfigError(
            f"{asked}: step {arguments.step} has no such row. It has lanes 0 to {found.rows[-1].lane}, and rows {have}"
            + (", ..." if len(found.rows) > 12 else ".")
        )
    return rows
