"""Result of a cell, the only schema of result.json: facts, scores, and why there are none. No torch here.

The file is written last: without it a cell is not done. An arm's scores are those of its probes, those of a fine-tuning
run or a baseline are of the splits that it was scored on.
"""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from electra_trainer.errors import DataError, ElectraError
from electra_trainer.files.durable import replace_durably
from electra_trainer.settings import records

RESULT = "result.json"
FACTS = ("steps", "tokens", "flops_paper", "flops_real", "seconds", "parameters")
"""Facts of pre-training; metrics like others, but never compared."""
_ENVIRONMENT = (
    "electra_trainer", "git", "python", "torch", "numpy", "tokenizers", "platform", "cpu", "cpu_capability", "threads",
    "gpu",
)  # fmt: skip
"""Part of a run's environment.json that goes into a record: source, versions and hardware, but no path."""
_LARGEST = 1e100


@dataclass(frozen=True, kw_only=True)
class Result:
    """Outcome of a cell."""

    key: str
    """The row: an arm, a task or a baseline."""
    seed: int
    facts: dict[str, float] = field(default_factory=dict)
    """Cost of the run: steps, seconds and so on."""
    scores: dict[str, float] = field(default_factory=dict)
    """Finite numbers as PART/METRIC, the part a probe or a split: shares, correlations, losses, thresholds."""
    failed: str | None = None
    """Reason for a run that diverged; it counts in no mean."""
    doubts: tuple[str, ...] = ()
    """Sentences on what looks wrong."""
    environment: dict[str, Any] = field(default_factory=dict, compare=False)
    """Source, versions and hardware, by the names in environment.json."""

    @property
    def parts(self) -> set[str]:
        """Probes or splits that have a score."""
        return {name.partition("/")[0] for name in self.scores}

    @property
    def by_split(self) -> dict[str, dict[str, float]]:
        """Scores by split, then metric."""
        found: dict[str, dict[str, float]] = {}
        for name, value in self.scores.items():
            split, _, metric = name.partition("/")
            found.setdefault(split, {})[metric] = value
        return found


def joined(by_split: dict[str, dict[str, float]]) -> dict[str, float]:
    """Scores as SPLIT/METRIC, from scores by split."""
    return {f"{split}/{metric}": value for split, found in by_split.items() for metric, value in found.items()}


def is_threshold(metric: str) -> bool:
    """Whether it is the place at which something was scored, instead of a score."""
    return metric.endswith("threshold")


def printed(value: float, metric: str) -> str:
    """A share or correlation x100, with one decimal; a threshold as it is, with two."""
    return f"{value:.2f}" if is_threshold(metric) else f"{100 * value:.1f}"


def write_result(folder: Path, result: Result) -> None:
    """Write result.json whole."""
    replace_durably(folder / RESULT, (json.dumps(asdict(result), indent=1) + "\n").encode())


def read_result(folder: Path) -> Result:
    """Read result.json; DataError: it is damaged."""
    file = folder / RESULT
    found = records.read(
        Result, records.read_object(file), where=str(file), error=DataError, complete=True, remedy=records.AGAIN
    )
    for name, value in (found.facts | found.scores).items():
        if not (math.isfinite(value) and abs(value) < _LARGEST):
            raise DataError(f"{file}: {name} = {value:g}: expected a finite number. {records.AGAIN}")
    return found


def environment_of(run: Path) -> dict[str, Any]:
    """Source, versions and hardware of a run; empty where its environment.json is gone or cannot be read."""
    try:
        table = records.read_table(run / "environment.json")
    except ElectraError:
        return {}
    return {name: table[name] for name in _ENVIRONMENT if name in table}
