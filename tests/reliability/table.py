"""`python -m tests.reliability.table [FIGURES]`: the tables of docs/reliability.md, from the JSON lines of the tests and from sabotages.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.reliability.sabotages import ALL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
SABOTAGES_BEGIN, SABOTAGES_END = "<!-- sabotages: begin -->\n", "<!-- sabotages: end -->\n"


def table(lines: list[str]) -> str:
    """A row a line: the test, what was measured, and its control."""
    rows = []
    for line in lines:
        figures = json.loads(line)
        test = figures.pop("test")
        controls = {name: value for name, value in figures.items() if "control" in name}
        rows.append(
            f"| `{test}` | {_words(figures.keys() - controls.keys(), figures)} | {_words(controls.keys(), figures)} |"
        )
    return "\n".join(["| test | measured | negative control |", "|---|---|---|", *sorted(rows)]) + "\n"


def _words(names: object, figures: dict[str, object]) -> str:
    kept = [name for name in figures if name in names]  # type: ignore[operator]
    return ", ".join(f"{name.replace('_', ' ')} {_plain(figures[name])}" for name in kept) or "–"


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value).replace("|", "/")


def sabotages() -> str:
    """A row a sabotage: its name, what it takes away and where, and the tests that must fail."""
    rows = [
        f"| `{one.name}` | {one.takes_away} | `{one.file}` | {', '.join(f'`{_short(test)}`' for test in one.caught_by)} |"
        for one in ALL
    ]
    return "\n".join(["| sabotage | takes away that | in | must fail |", "|---|---|---|---|", *rows]) + "\n"


def _short(test: str) -> str:
    file, name = test.split("::")
    return f"{Path(file).stem}::{name}"


def _put(page: str, begin: str, end: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main(figures: str | None = None) -> None:
    """Write the tables into the page; that of the figures only where their file is given."""
    page = _put(PAGE.read_text(encoding="utf-8"), SABOTAGES_BEGIN, SABOTAGES_END, sabotages())
    if figures is not None:
        page = _put(page, BEGIN, END, table(Path(figures).read_text(encoding="utf-8").splitlines()))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
