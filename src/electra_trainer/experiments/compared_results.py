"""What a cell's run took and what the probes found: result.json, written last, so its absence says "not done yet". No torch here."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from electra_trainer.errors import DataError
from electra_trainer.experiments.compared import Cell
from electra_trainer.files.durable import replace_durably
from electra_trainer.settings.records import checked, read_object

FACTS = ("steps", "tokens", "flops_paper", "flops_real", "seconds", "parameters")
"""What a run took; metrics like others, but never contrasts by default."""


@dataclass(frozen=True, kw_only=True)
class Result(Cell):
    """A cell that was run."""

    facts: dict[str, float]
    """What the run took, by the names in FACTS."""
    probes: tuple[str, ...] = ()
    """Those that were read."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite numbers by name; shares, so between -1 and 1 for scores."""
    failed: str | None = None
    """Why the run diverged, if it did."""

    @property
    def kept(self) -> Path:
        """The run folder; the cell's own where the run was not kept."""
        return self.run if self.run.is_dir() else self.folder


def write_result(result: Result) -> None:
    """Write result.json whole."""
    plain = {
        "arm": result.arm, "seed": result.seed, "run": result.run_name, **result.facts, "probes": list(result.probes),
        "metrics": result.metrics, "failed": result.failed,
    }  # fmt: skip
    replace_durably(result.file, (json.dumps(plain, indent=1) + "\n").encode())


def read_result(cell: Cell) -> Result | None:
    """The result of a cell; None where it is not done. Metrics that are null or not finite are no measurements, and left out.

    Raises:
        DataError: it is no result of this cell; says what is wrong.
    """
    file = cell.file
    if not file.is_file():
        return None
    table = {"probes": [], "failed": None} | read_object(file)
    said, expected = [table.get(name) for name in ("arm", "seed", "run")], [cell.arm, cell.seed, cell.run_name]
    if said != expected:
        raise DataError(
            f"{file}: says arm, seed and run {said}, expected {expected}. Was it copied? Delete it and run electra compare again."
        )
    metrics = {name: value for name, value in checked(table, "metrics", dict, file).items() if value is not None}
    given = {name: checked(metrics, name, float, file) for name in metrics}
    return Result(
        arm=cell.arm,
        seed=cell.seed,
        root=cell.root,
        facts={name: checked(table, name, float, file) for name in FACTS},
        probes=tuple(checked(table, "probes", list, file)),
        metrics={name: value for name, value in given.items() if math.isfinite(value)},
        failed=None if table["failed"] is None else checked(table, "failed", str, file),
    )
