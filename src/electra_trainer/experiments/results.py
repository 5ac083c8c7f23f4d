"""What a fine-tuning run came to, and its file: written last, so that it says that the run is finished. No torch here."""

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

from electra_trainer.errors import DataError
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import read_table

RESULT = "result.json"
_TIMING = "timing.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to."""

    task: str
    seed: int
    steps: int
    scores: dict[str, dict[str, float]]
    """By split, then metric: shares from 0 to 1, correlations, and thresholds, whose names say so."""
    doubts: tuple[str, ...] = ()
    failed: str | None = None
    """Why it has no scores, if it diverged."""
    rows: int = 0
    """Training rows."""
    seconds: float = field(default=0.0, compare=False)
    """Of training; it stands in timing.json, so that result.json is the same bytes whenever and however it came about."""


def is_threshold(metric: str) -> bool:
    """Whether it is the place at which something was scored, instead of a score."""
    return metric.endswith("threshold")


def printed(value: float, metric: str) -> str:
    """A share or correlation x100, with one decimal; a threshold as it is, with two."""
    return f"{value:.2f}" if is_threshold(metric) else f"{100 * value:.1f}"


def write_result(folder: RunFolder, result: Result) -> None:
    """Say that a run is finished; its checkpoints are not needed any more."""
    plain = asdict(result)
    folder.write_json(_TIMING, {"seconds": plain.pop("seconds")})
    folder.write_json(RESULT, plain)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)


def read_result(out: Path) -> Result:
    """The result of a finished run.

    Raises:
        DataError: result.json is not one.
    """
    table = read_table(out / RESULT)
    timing = read_table(out / _TIMING) if (out / _TIMING).is_file() else {}
    try:
        return Result(**{**table, **timing, "doubts": tuple(table["doubts"])})
    except (TypeError, KeyError) as error:
        raise DataError(f"{out / RESULT}: not a result of this version: {error}.") from None
