"""docs/gpu.md: every test that its table names is there, and the table of memory is what memory_bytes says."""

import re
from pathlib import Path

from electra_trainer.cost.parameters import memory_bytes
from electra_trainer.presets import models
from electra_trainer.settings.config import changed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def test_every_machine_has_a_test() -> None:
    section = PAGE.split("## Fourteen machines")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line][2:]
    assert len(rows) == 14
    for row in rows:
        words = re.findall(r"`([^`]+)`", row[-1])
        assert words, row
        for word in words:
            path, colons, test = word.partition("::")
            text = (ROOT / (path if colons else "tests/gpu/test_rehearsal.py")).read_text(encoding="utf-8")
            assert f"def {test if colons else path}(" in text, (row[0], word)


def test_the_table_of_memory_is_the_estimate() -> None:
    header, *rows = [line for line in PAGE.split("## Memory")[1].split("\n## ")[0].splitlines() if line.startswith("|")]
    lanes = [int(cell) for cell in re.findall(r"\d+", header)]
    for row in rows[1:]:
        name, *cells = [cell.strip(" *") for cell in row.strip("|").split("|")]
        config = models.preset(name.strip("`").split("`")[-1])
        for count, cell in zip(lanes, cells, strict=True):
            if cell:
                estimated = memory_bytes(changed(config, batch={"lanes": count}), gpu=2) / 1e9
                assert f"{estimated:.1f}" == cell, (name, count)
