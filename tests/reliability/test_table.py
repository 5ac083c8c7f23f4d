"""The record of the long forms shows what was measured: every test with a figure, each beside its control, and the figures of the record."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.reliability import table

LINES = table.RECORD.read_text(encoding="utf-8").splitlines()


def test_the_page_shows_the_record() -> None:
    """Written by `python -m tests.reliability.table`."""
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.table(LINES) in page


def test_every_test_with_a_figure_is_in_the_record() -> None:
    """Search for its name in the call of `report` or in a table of cases."""
    rooms = [Path(__file__).parent, Path(__file__).parents[1] / "faults"]
    sources = "".join(path.read_text(encoding="utf-8") for room in rooms for path in room.glob("*.py"))
    recorded = {json.loads(line)["test"] for line in LINES}
    assert {*re.findall(r'\breport\(\s*"(\w+)"', sources)} <= recorded and len(recorded) > 30
    assert [name for name in recorded if f'"{name}"' not in sources] == []


def test_every_figure_has_a_control() -> None:
    assert [line for line in LINES if not any("control" in name for name in json.loads(line))] == []


def test_parsers_are_one_row() -> None:
    lines = [json.dumps({"test": "fuzz", "parser": name, "cases": 2, "control": 1}) for name in "ab"]
    assert "| `fuzz` | parsers 2, cases 4 | control 2 |" in table.table(lines)
