"""What a cell came to, as its result.json has it, and all results of an experiment for tables and figures. No torch
here.

result.json is written last: its absence says "not done yet". An arm's holds what the run took and what the probes
found; that of a fine-tuning run its scores.
"""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra_trainer.cost.flops import run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, ElectraError
from electra_trainer.experiments.folder import Cell, Declared, read
from electra_trainer.files.durable import replace_durably
from electra_trainer.inspection.run_read import read_run
from electra_trainer.presets.arms import PRESET, arm_of
from electra_trainer.settings import config, records

if TYPE_CHECKING:
    from electra_trainer.runs.run_folder import RunFolder

FACTS = ("steps", "tokens", "flops_paper", "flops_real", "seconds", "parameters")
"""What pre-training took; metrics like others, but never contrasts by default."""
_ARM: dict[str, Any] = {
    **dict.fromkeys(FACTS, int | float),
    "probes": list[str],
    "metrics": dict[str, int | float | None],
    "failed": str | None,
    "environment": dict[str, Any],
}
"""Fields of an arm's result.json."""
RESULT = "result.json"
_ENVIRONMENT = (
    "electra_trainer", "git", "python", "torch", "numpy", "tokenizers", "platform", "cpu", "cpu_capability", "threads", "gpu",
)  # fmt: skip
"""What of a run's environment.json goes with its numbers into a record: source, versions and hardware, but no path."""
_TIMING = "timing.json"
_LARGEST = 1e100


Scores = dict[str, dict[str, float]]
"""Scores by split, then metric: see `Result.scores`."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a fine-tuning run came to."""

    task: str
    seed: int
    steps: int
    scores: Scores
    """By split, then metric: shares from 0 to 1, correlations, and thresholds, whose names say so."""
    doubts: tuple[str, ...] = ()
    failed: str | None = None
    """Why it has no scores, if it diverged."""
    rows: int = 0
    """Training rows."""
    seconds: float = field(default=0.0, compare=False)
    """Of training; kept in timing.json, so that result.json has the same bytes whenever and however it came about."""
    environment: dict[str, Any] = field(default_factory=dict, compare=False)
    """Source, versions and hardware, by the names in environment.json; kept there too."""


@dataclass(frozen=True, kw_only=True)
class _Timing:
    """A run's timing.json; runs of an earlier version have none."""

    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)


def is_threshold(metric: str) -> bool:
    """Whether it is the place at which something was scored, instead of a score."""
    return metric.endswith("threshold")


def printed(value: float, metric: str) -> str:
    """A share or correlation x100, with one decimal; a threshold as it is, with two."""
    return f"{value:.2f}" if is_threshold(metric) else f"{100 * value:.1f}"


def write_result(folder: "RunFolder", result: Result) -> None:
    """Say that a run is finished; its checkpoints are not needed any more."""
    plain = asdict(result)
    del plain["environment"]
    folder.write_json(_TIMING, {"seconds": plain.pop("seconds"), "environment": environment_of(folder.path)})
    folder.write_json(RESULT, plain)
    shutil.rmtree(folder.checkpoints, ignore_errors=True)


def read_result(run: Path) -> Result:
    """The result of a finished fine-tuning run.

    Raises:
        DataError: result.json or timing.json is damaged.
    """
    timing = records.read_object(run / _TIMING) if (run / _TIMING).is_file() else {}
    timed = records.read(_Timing, timing, where=str(run / _TIMING), error=DataError, remedy=records.AGAIN)
    table = {**records.read_object(run / RESULT), **vars(timed)}
    result = records.read(Result, table, where=str(run / RESULT), error=DataError, remedy=records.AGAIN)
    _require_finite(result.scores, run / RESULT)
    return result


def _require_finite(scores: Scores, where: object) -> None:
    """DataError unless all scores are numbers that can be averaged."""
    for split, found in scores.items():
        for metric, value in found.items():
            if not abs(value) < _LARGEST:
                raise DataError(f"{where}: {split} {metric} = {value:g}: expected a finite number. {records.AGAIN}")


def read_task(cell: Cell) -> Result | None:
    """The result of a cell of fine-tuning; None where it is not done.

    Raises:
        DataError: it is not a result of this cell.
    """
    if not cell.result.is_file():
        return None
    result = read_result(cell.folder)
    if (result.task, result.seed) != (cell.key, cell.seed):
        raise DataError(f"{cell.result}: is not the result of {cell}. Delete it, and the run is repeated.")
    return result


def read_floors(cell: Cell) -> dict[str, Any] | None:
    """Scores of baselines without an encoder by name, and notes; None where they are not measured yet. DataError: the
    file is damaged.
    """
    if not cell.result.is_file():
        return None
    table = {"notes": [], **records.read_object(cell.result)}
    records.require_fields(
        {name: list[str] if name == "notes" else Scores | None for name in table}, table, cell.result
    )
    for name, scores in table.items():
        _require_finite(scores or {} if name != "notes" else {}, f"{cell.result}: {name}")
    return table


@dataclass(frozen=True, kw_only=True)
class Measured(Cell):
    """A cell that was run: an arm with a seed, or a fine-tuning run."""

    facts: dict[str, float]
    """What the run took; of an arm by the names in FACTS."""
    parts: tuple[str, ...] = ()
    """Probes that were read."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite numbers as PART/NAME, the part a probe or a split; scores are shares."""
    failed: str | None = None
    """Why the run diverged, if it did."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Source, versions and hardware of pre-training, by the names in environment.json; empty where nothing says
    them.
    """

    @property
    def kept(self) -> Path:
        """The run folder; the cell's own where the run was not kept; the root where it is a run itself."""
        return next((path for path in (self.run, self.folder) if path.is_dir()), self.root)


def environment_of(run: Path) -> dict[str, Any]:
    """Source, versions and hardware of a run; empty where its environment.json is gone or cannot be read."""
    try:
        table = records.read_table(run / "environment.json")
    except ElectraError:
        return {}
    return {name: table[name] for name in _ENVIRONMENT if name in table}


def write_arm(result: Measured) -> None:
    """Write an arm's result.json whole."""
    plain = {
        "arm": result.key,
        "seed": result.seed,
        "run": result.named(result.run),
        **result.facts,
        "probes": list(result.parts),
        "metrics": result.metrics,
        "failed": result.failed,
        "environment": result.environment,
    }
    replace_durably(result.result, (json.dumps(plain, indent=1) + "\n").encode())


def read_arm(cell: Cell) -> Measured | None:
    """The result of an arm's cell; None where it is not done. Metrics that are null or not finite are not measurements,
    and left out.

    Raises:
        DataError: it is not a result of this cell; says what is wrong.
    """
    file = cell.result
    if not file.is_file():
        return None
    table = {"probes": [], "failed": None, "environment": {}} | records.read_object(file)
    said, expected = [table.get(name) for name in ("arm", "seed", "run")], [cell.key, cell.seed, cell.named(cell.run)]
    if said != expected:
        raise DataError(
            f"{file}: says arm, seed and run {said}, expected {expected}. Was it copied? Delete it and run electra "
            "compare again."
        )
    records.require_fields(_ARM, table, file)
    metrics = {name: value for name, value in table["metrics"].items() if value is not None and math.isfinite(value)}
    facts = {name: table[name] for name in FACTS}
    environment = table["environment"] or environment_of(cell.run)
    return Measured(
        **vars(cell),
        facts=facts,
        parts=tuple(table["probes"]),
        metrics=metrics,
        failed=table["failed"],
        environment=environment,
    )


def _read_any(cell: Cell, declared: Declared) -> Measured | None:
    if declared.of == "compare":
        return read_arm(cell)
    found = read_task(cell)
    if found is None:
        return None
    scores = {f"{split}/{name}": value for split, one in found.scores.items() for name, value in one.items()}
    facts = {"steps": float(found.steps), "rows": float(found.rows), "seconds": found.seconds}
    return Measured(**vars(cell), facts=facts, metrics=scores, failed=found.failed, environment=found.environment)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What an experiment folder holds, for tables and figures."""

    path: Path
    declared: Declared
    configs: dict[str, config.Config | None]
    """Of `electra compare`: by arm, in the order of experiment.json; None where it cannot be read (a note says why)."""
    encoder: config.Config | None = None
    """Of fine-tuning: the configuration of the encoder's pre-training; None where its folder does not say, or it cannot
    be read.
    """
    cells: dict[str, list[Measured]]
    """Finished cells by arm or task, by seed; one without any has an empty list."""
    failed: tuple[str, ...] = ()
    """Arms or tasks with a run that diverged."""
    notes: tuple[str, ...] = ()
    """What is not done or could not be read, in words."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def preset(self) -> str:
        """The preset that its pre-training began from, or the encoder's name."""
        about = self.declared.about
        encoder = (about.get("encoder") or {}).get("config", {}).get("preset") or Path(about.get("model") or "").name
        return str(self.declared.facts.get("preset", encoder))


def read_experiment(path: Path) -> Findings:
    """Read an experiment folder. Unlike a command that resumes it, this takes what it finds: a configuration of another
    version is a note, and so is a cell that is not done or failed; seeds on disk count though nobody declared them.

    A run folder of `electra pretrain` is an experiment of one arm and seed, with the held-out metrics of its last
    evaluation.

    Raises:
        MissingInputError: no folder, or neither an experiment.json nor a run in it.
        DataError: experiment.json, a result.json or the run is not what it should be; says which and what was expected.
    """
    if (path / "config.json").is_file() and not (path / "experiment.json").exists():
        return _read_run(path)
    declared, name, about = read(path), path.resolve().name, f"{path / 'experiment.json'}: "
    cells: dict[str, list[Measured]] = {}
    configs: dict[str, config.Config | None] = {}
    of_cells, of_configs, diverged = [], [], []

    def config_of(plain: Any, where: str, done: Sequence[Measured] = ()) -> config.Config | None:
        """The configuration that ran, fitted to its data; the planned one where no run is there."""
        file = next((cell.run / "config.json" for cell in done if (cell.run / "config.json").is_file()), None)
        try:
            if file is not None:
                return records.read(config.Config, records.read_table(file), where=str(file))
            return records.read(config.Config, plain, where=where)
        except ConfigError as error:
            of_configs.append(f"{error} Its parameters and sizes are left out.")
            return None

    for key, row in declared.rows.items():
        cells[key], missing, failed = _cells(path, key, declared)
        of_cells += [f"{name}: {key}: {line}" for line in failed]
        diverged += [key] if failed else []
        if missing:
            of_cells.append(f"{name}: {key}: not done: seed {', '.join(map(str, missing))}.")
        if declared.of == "compare":
            configs[key] = config_of(row, f"{about}arms: {key}", cells[key])
    plain = (declared.about.get("encoder") or {}).get("config")
    encoder = None if plain is None else config_of(plain, f"{about}encoder")
    notes = (*of_cells, *of_configs)
    return Findings(
        path=path, declared=declared, configs=configs, encoder=encoder, cells=cells, failed=tuple(diverged), notes=notes
    )


def _read_run(path: Path) -> Findings:
    """A run as an experiment of one cell: what it took up to its last row of metrics, and its last held-out row."""
    found = read_run(path)
    one = records.read(
        config.Config, records.read_table(path / "config.json"), where=str(path / "config.json"), error=DataError
    )
    last = max((row for rows in (found.train[-1:], found.valid[-1:]) for row in rows), key=lambda row: row["step"])
    steps, arm = int(last["step"]), arm_of(one) or PRESET
    flops, held_out = run_flops(one, steps=steps), found.valid[-1] if found.valid else {}
    facts = {
        "steps": steps,
        "tokens": steps * one.tokens_per_step,
        "flops_paper": flops.paper,
        "flops_real": flops.real,
        "seconds": last.get("seconds", 0.0),
        "parameters": parameters(one).joint,
    }
    metrics = {
        f"held-out/{name}": value for name, value in held_out.items() if name not in _PLACE and math.isfinite(value)
    }
    cell = Measured(root=path, key=arm, seed=one.seed, facts=facts, metrics=metrics, environment=environment_of(path))
    declared = Declared(
        of="compare",
        facts={"preset": one.preset, "amount": float(one.schedule.steps), "match": "steps"},
        rows={arm: records.to_dict(one)},
        seeds=(one.seed,),
    )
    rows = (
        f"{path.resolve().name}: a run: held-out metrics are those of its last evaluation, on "
        f"{one.evaluation.rows:,} rows at most."
    )
    return Findings(path=path, declared=declared, configs={arm: one}, cells={arm: [cell]}, notes=(rows,))


_PLACE = ("step", "tokens", "flops", "flops_real", "seconds")
"""Of a row of metrics.jsonl, what is not measured on held-out rows."""


def _cells(path: Path, key: str, declared: Declared) -> tuple[list[Measured], list[int], list[str]]:
    """Finished cells by seed, the seeds that are not done, and in words those that failed: what they took is not a cost
    of the arm.
    """
    names = [folder.name.removeprefix("seed-") for folder in (path / "cells" / key).glob("seed-*")]
    found = {int(name) for name in names if name.isdecimal()}
    done, missing, failed = [], [], []
    for seed in sorted(found | set(declared.seeds)):
        result = _read_any(Cell(root=path, key=key, seed=seed), declared)
        if result is None:
            missing.append(seed)
        elif result.failed is not None:
            failed.append(f"seed {seed} failed, and is left out: {result.failed}")
        else:
            done.append(result)
    return done, missing, failed
