"""`python -m tests.reliability.table`: the tables of docs/reliability.md, from RECORD, which `make reliability` writes, and from sabotages.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.reliability.sabotage import ALL

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RECORD = ROOT / "records" / "2026-11-22-reliability" / "figures.jsonl"
"""What the page shows: the long forms, all of one run."""
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
SABOTAGES_BEGIN, SABOTAGES_END = "<!-- sabotages: begin -->\n", "<!-- sabotages: end -->\n"


def table(lines: list[str]) -> str:
    """A row a line: the test, what was measured, and its control."""
    rows = []
    for figures in _summed([json.loads(line) for line in lines]):
        controls = {name: value for name, value in figures.items() if "control" in name}
        measured = figures.keys() - controls.keys() - {"test"}
        rows.append(f"| `{figures['test']}` | {_words(measured, figures)} | {_words(controls.keys(), figures)} |")
    return "\n".join(["| test | measured | negative control |", "|---|---|---|", *sorted(rows)]) + "\n"


def _summed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for all parsers."""
    parsers = [line for line in lines if line["test"] == "fuzz"]
    counts = [name for name, value in parsers[0].items() if not isinstance(value, str)] if parsers else []
    total = {"test": "fuzz", "parsers": len(parsers), **{name: sum(one[name] for one in parsers) for name in counts}}
    return [line for line in lines if line["test"] != "fuzz"] + [total] * bool(parsers)


def _words(names: object, figures: dict[str, object]) -> str:
    kept = [name for name in figures if name in names]  # type: ignore[operator]
    return ", ".join(f"{name.replace('_', ' ')} {_plain(figures[name])}" for name in kept) or "–"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).replace("|", "/")


def sabotages(lines: list[str]) -> str:
    """How many there are and the record has, and a row each: its name, what it takes away and where, and the tests that must fail."""
    run = next(one for one in map(json.loads, lines) if one["test"] == "sabotage")
    count = f"There are {len(ALL)}. The run of the record had the {run['sabotages']} that there were then, {run['caught']} of them caught.\n\n"
    rows = [
        f"| `{one.name}` | {one.takes_away} | `{one.file}` | {', '.join(f'`{_short(test)}`' for test in one.caught_by)} |"
        for one in ALL
    ]
    return count + "\n".join(["| sabotage | takes away that | in | must fail |", "|---|---|---|---|", *rows]) + "\n"


def _short(test: str) -> str:
    file, name = test.split("::")
    return f"{Path(file).stem}::{name}"


def _put(page: str, begin: str, end: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main() -> None:
    """Write the tables into the page."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    page = _put(PAGE.read_text(encoding="utf-8"), SABOTAGES_BEGIN, SABOTAGES_END, sabotages(lines))
    page = _put(page, BEGIN, END, table(lines))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
