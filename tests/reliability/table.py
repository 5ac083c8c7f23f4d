"""`python -m tests.reliability.table`: the table of figures in the page of RECORD, which `make reliability` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "records" / "2026-11-22-reliability" / "figures.jsonl"
"""The long forms, all of one run."""
PAGE = RECORD.parent / "README.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


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


def _put(page: str, begin: str, end: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main() -> None:
    """Write the table into the page."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    page = _put(PAGE.read_text(encoding="utf-8"), BEGIN, END, table(lines))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
