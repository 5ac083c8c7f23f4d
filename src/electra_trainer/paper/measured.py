"""Our side of a table: an arm of an experiment as one entry, and its value in each column. No torch here."""

import fnmatch
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, ElectraError, did_you_mean
from electra_trainer.experiments.results import Findings, Measured
from electra_trainer.experiments.statistics import Spread, spread_of
from electra_trainer.finetuning.glue.glue_tasks import PAPER
from electra_trainer.paper.published import GLUE_TASKS
from electra_trainer.presets.arms import arm_of
from electra_trainer.presets.paper_rows import PRESETS, preset
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import read_table

# Metrics with a column of their own in some table of the paper
_PUBLISHED = ("glue/", "glue-test/", "squad1/", "squad2/")
_GLUE = {task: f"glue/{column}" for task, column in zip(PAPER, GLUE_TASKS, strict=True)}
"""Task of GLUE -> column of the paper's tables."""
_SQUAD = {
    "squad-1.1": {"exact_match": "squad1/em", "f1": "squad1/f1"},
    "squad-2.0": {"best_exact_match": "squad2/em", "best_f1": "squad2/f1"},
}
_BASE_INFER_FLOPS = 2.9e10  # BERT-Base, the reference of Table 1's speedups


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The content of a row of ours: an arm of `electra compare`, or a fine-tuned encoder, with a finished seed."""

    experiment: Findings
    arm: str
    cells: tuple[Measured, ...]
    """Of a fine-tuned encoder one for each seed, with the scores of all tasks and the cost of its pre-training."""
    preset: str
    """The preset that the pre-training began from; the name of an encoder whose folder does not say."""
    config: Config | None
    """The configuration of the pre-training; None where it cannot be read."""

    @property
    def tuned(self) -> bool:
        """Whether its numbers are medians over fine-tuning seeds, as the paper's are (§3.1)."""
        return self.experiment.declared.of == "finetune"

    @property
    def size(self) -> str:
        """The preset's size in the paper's words: `bert_small` trains the same network as `small`."""
        return self.preset.removeprefix("bert_")

    @property
    def folder(self) -> Path:
        """The run, or the folder that holds one for each seed; of several tasks the experiment's."""
        if self.tuned and len(self.experiment.cells) > 1:
            return self.experiment.path
        return self.cells[0].kept if len(self.cells) == 1 else self.cells[0].folder.parent


def entries(experiments: Sequence[Findings]) -> list[Entry]:
    """All arms and encoders that have a finished cell, in the order of the experiments and of their arms."""
    found: list[Entry] = []
    for experiment in experiments:
        if experiment.declared.of == "finetune":
            found += _tuned(experiment)
            continue
        for arm, cells in experiment.cells.items():
            preset, config = str(experiment.declared.facts["preset"]), experiment.configs[arm]
            found += [Entry(experiment=experiment, arm=arm, cells=tuple(cells), preset=preset, config=config)] * bool(
                cells
            )
    return found


def _tuned(experiment: Findings) -> list[Entry]:
    """An encoder that was fine-tuned, if a seed is done."""
    by_seed: dict[int, list[Measured]] = {}
    for cells in experiment.cells.values():
        for cell in cells:
            by_seed.setdefault(cell.seed, []).append(cell)
    if not by_seed:
        return []
    about = experiment.declared.about
    facts = dict(about.get("encoder") or {})
    facts.pop("config", None)
    config = experiment.encoder
    name = Path(about.get("model") or "encoder").name
    cells = []
    for seed, of_tasks in sorted(by_seed.items()):
        metrics = {name: value for cell in of_tasks for name, value in _columns_of(experiment, cell).items()}
        if all(f"glue/{task}" in metrics for task in GLUE_TASKS):
            metrics["glue/average"] = statistics.fmean(metrics[f"glue/{task}"] for task in GLUE_TASKS)
        cells.append(Measured(root=experiment.path, key=of_tasks[0].key, seed=seed, facts=facts, metrics=metrics))
    return [
        Entry(
            experiment=experiment, arm="fine-tuned" if config is None else arm_of(config) or "another",
            cells=tuple(cells), preset=name if config is None else config.preset, config=config,
        )
    ]  # fmt: skip


def _columns_of(experiment: Findings, cell: Measured) -> dict[str, float]:
    """A fine-tuning run's scores by the paper's columns; of other tasks the main one as TASK/METRIC."""
    row = experiment.declared.rows[cell.key]
    split = row["dev"][0]
    names = _SQUAD.get(cell.key) or {row["metric"]: _GLUE.get(cell.key, f"{cell.key}/{row['metric']}")}
    found = {column: cell.metrics.get(f"{split}/{name}") for name, column in names.items()}
    return {column: value for column, value in found.items() if value is not None}


def share_trained(entry: Entry) -> float | None:
    """Share of the FLOPs of the full ELECTRA of this size (as the paper counts); None for another preset."""
    if entry.size not in PRESETS:
        return None
    full = preset(entry.size)
    spent = spread_of(_facts(entry, "flops_paper"))
    return spent.mean / run_flops(full).paper if spent is not None and spent.mean > 0 else None


def _facts(entry: Entry, name: str) -> list[float]:
    return [cell.facts[name] for cell in entry.cells if name in cell.facts]


_TOTAL_LOSS = "held-out/loss"
"""A weighted sum of other terms in each objective: shown on request only."""


def metric_names(experiments: Sequence[Findings]) -> list[str]:
    """All metrics, in the order in which they are first met."""
    return list(dict.fromkeys(name for entry in entries(experiments) for cell in entry.cells for name in cell.metrics))


def extra_metrics(experiments: Sequence[Findings], patterns: Sequence[str]) -> list[str]:
    """Metrics without a column in the paper: those that match a pattern, or all of at most two levels but the total
    loss.

    Raises:
        ConfigError: a pattern that matches nothing.
    """
    names = metric_names(experiments)
    own = [name for name in names if not name.startswith(_PUBLISHED)]
    if not patterns:
        return [name for name in own if name.count("/") <= 1 and name != _TOTAL_LOSS]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            known = ", ".join(names) or "none is there yet"
            raise ConfigError(f"--metrics {pattern}: no such metric.{did_you_mean(pattern, names)} Known: {known}.")
    return [name for name in own if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def measured(entry: Entry, key: str, *, reference: float, test: bool, score: bool) -> Spread | str | None:
    """An entry's value in a column; None: it has none.

    Args:
        reference: training FLOPs that ratios and speedups refer to.
        test: the row's scores are of the test sets.
        score: in points, as the paper prints.

    Raises:
        DataError: a score that is not a share between -1 and 1.
    """
    match key:
        case "train_flops":
            return spread_of(_facts(entry, "flops_paper"))
        case "train_ratio":
            return spread_of([flops / reference for flops in _facts(entry, "flops_paper")])
        case "train_speedup":
            return spread_of([reference / flops for flops in _facts(entry, "flops_paper") if flops > 0])
        case "time_and_hardware":
            return _time_and_hardware(entry)
        case "infer_flops" | "infer_speedup" | "parameters":
            return _counted(entry.config, key)
    name = key.replace("glue/", "glue-test/", 1) if test and key.startswith("glue/") else key
    values = [cell.metrics[name] for cell in entry.cells if name in cell.metrics]
    if score:
        for cell in entry.cells:
            if abs(cell.metrics.get(name, 0.0)) > 1:
                raise DataError(
                    f"{cell.result}: {name} = {cell.metrics[name]}: expected a share between -1 and 1, not points."
                )
        values = [100 * value for value in values]
    found = spread_of(values)
    if found is None or not entry.tuned:
        return found
    if name == "glue/average":  # as the paper: of the tasks' medians
        of_tasks = (measured(entry, f"glue/{task}", reference=reference, test=test, score=score) for task in GLUE_TASKS)
        return replace(found, mean=statistics.fmean(task.mean for task in of_tasks if isinstance(task, Spread)))
    return replace(found, mean=found.median)


def _counted(config: Config | None, key: str) -> Spread | None:
    """From the configuration alone; parameters are those of the exported network, as the paper counts them."""
    if config is None:
        return None
    if key == "parameters":
        return spread_of([parameters(config).kept])
    cost = infer_flops(config).paper
    return spread_of([cost if key == "infer_flops" else _BASE_INFER_FLOPS / cost])


def _time_and_hardware(entry: Entry) -> str | None:
    """Mean time of pre-training, and every machine that a seed ran on."""
    seconds = spread_of(_facts(entry, "seconds"))
    if seconds is None:
        return None
    runs = [Path(entry.experiment.declared.about["model"])] if entry.tuned else [cell.kept for cell in entry.cells]
    machines = dict.fromkeys(machine for run in runs if (machine := _machine(run)))
    return f"{_duration(seconds.mean)} on {' and '.join(machines) or 'a machine that is not recorded'}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.2g}{unit}" if seconds < 99 * length else f"{seconds / length:.0f}{unit}"
    return f"{seconds:.2g}s"


def _machine(run: Path) -> str | None:
    """The GPU, or the CPU's threads and instructions, as environment.json has them."""
    try:
        facts = read_table(run / "environment.json")
    except ElectraError:
        return None
    if isinstance(facts.get("gpu"), str):
        return str(facts["gpu"])
    threads, kind = facts.get("threads"), facts.get("cpu_capability")
    if not isinstance(threads, int):
        return None
    return f"{threads} CPU thread{'s' if threads != 1 else ''}" + (f" ({kind})" if isinstance(kind, str) else "")
