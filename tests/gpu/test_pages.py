"""docs/gpu.md and gpu_audit.md: every test that their tables name is there, and the table of memory is what memory_bytes says."""

import re
from pathlib import Path

from electra_trainer.cost.parameters import memory_bytes
from electra_trainer.presets import models
from electra_trainer.settings.config import changed

ROOT = Path(__file__).resolve().parents[2]
PAGE, AUDIT = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("gpu.md", "gpu_audit.md"))


def rows_of(page: str, heading: str) -> list[list[str]]:
    section = page.split(f"## {heading}")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line][2:]


def test_every_machine_and_finding_has_a_test() -> None:
    for page, heading, count in ((PAGE, "Fourteen machines", 14), (AUDIT, "Second audit", 10)):
        assert len(rows_of(page, heading)) == count
        for row in rows_of(page, heading):
            words = re.findall(r"`([^`]+)`", row[-1])
            assert words, row
            file = ""
            for word in words:
                path, colons, test = word.partition("::")
                file = path if path.endswith(".py") else file if colons else "tests/gpu/test_rehearsal.py"
                text = (ROOT / file).read_text(encoding="utf-8")
                name = test if colons else "" if path.endswith(".py") else path
                assert not name or f"def {name}(" in text, (row[0], word)


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
