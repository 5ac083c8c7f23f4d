"""docs/gpu.md: the table of memory is what memory_bytes says."""

import re
from pathlib import Path

from electra_trainer.cost.parameters import memory_bytes
from electra_trainer.presets import models
from electra_trainer.settings.config import changed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


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
