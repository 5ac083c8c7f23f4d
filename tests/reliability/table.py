"""`python -m tests.reliability.table FIGURES`: the table of docs/reliability.md from the JSON lines of the tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"


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


def main(path: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    PAGE.write_text(before + BEGIN + table(lines) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
