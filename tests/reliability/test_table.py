"""The record of the long forms shows what was measured: every test with a figure, each beside its control, and the figures of the record."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.faults.test_faults import GROUPS
from tests.reliability import table

LINES = table.RECORD.read_text(encoding="utf-8").splitlines()


def test_the_page_shows_the_record() -> None:
    """Written by `python -m tests.reliability.table`."""
    page = table.PAGE.read_text(encoding="utf-8")
    assert table.table(LINES) in page


def test_every_test_with_a_figure_is_in_the_record() -> None:
    tests = [path for room in ("reliability", "faults") for path in (Path(__file__).parents[1] / room).glob("*.py")]
    reported = {name for path in tests for name in re.findall(r'\breport\(\s*"(\w+)"', path.read_text())} | {*GROUPS}
    assert reported == {json.loads(line)["test"] for line in LINES} and len(reported) > 30


def test_every_figure_has_a_control() -> None:
    assert [line for line in LINES if not any("control" in name for name in json.loads(line))] == []


def test_parsers_are_one_row() -> None:
    lines = [json.dumps({"test": "fuzz", "parser": name, "cases": 2, "control": 1}) for name in "ab"]
    assert "| `fuzz` | parsers 2, cases 4 | control 2 |" in table.table(lines)
