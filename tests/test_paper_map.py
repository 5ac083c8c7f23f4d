"""docs/paper_map.md names only what exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "paper_map.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and not line.startswith("|---")
][1:]


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_table_was_read() -> None:
    assert len(ROWS) >= 18
    assert all(len(row) == 6 for row in ROWS)


def test_code_exists() -> None:
    cells = [row[2] for row in ROWS if row[2] != "not yet"]
    assert cells
    for cell in cells:
        match = re.fullmatch(r"`([\w/]+\.py):(\w+)`", cell)
        assert match, cell
        path = ROOT / "src" / "electra_trainer" / match[1]
        assert match[2] in names_in(path), cell


def test_tests_exist() -> None:
    for row in ROWS:
        if row[2] != "not yet":
            assert re.fullmatch(r"`tests/[\w/]+\.py`", row[4]), row[4]
            assert (ROOT / row[4].strip("`")).is_file(), row[4]
