"""Our side of a table: an arm of an experiment as one entry, and what it says for a column. No torch here."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, ElectraError, did_you_mean
from electra_trainer.experiments.compared_results import Result
from electra_trainer.experiments.read_experiment import Findings
from electra_trainer.experiments.statistics import Group, describe, spread
from electra_trainer.presets.paper_rows import PRESETS, preset
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import read_table

# Metrics with a column of their own in some table of the paper
_PUBLISHED = ("glue/", "glue-test/", "squad1/", "squad2/")
_BASE_INFER_FLOPS = 2.9e10  # BERT-Base in Table 1, what its speedups refer to


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An arm of one experiment with at least one finished seed."""

    experiment: Findings
    arm: str
    cells: tuple[Result, ...]

    @property
    def preset(self) -> str:
        """The preset that the experiment began from."""
        return self.experiment.preset

    @property
    def size(self) -> str:
        """The preset's size in the paper's words: `bert_small` trains the same network as `small`."""
        return self.preset.removeprefix("bert_")

    @property
    def config(self) -> Config | None:
        """What ran; None where it cannot be read."""
        return self.experiment.configs[self.arm]

    @property
    def folder(self) -> Path:
        """The run, or the folder that holds one for each seed."""
        return self.cells[0].kept if len(self.cells) == 1 else self.cells[0].folder.parent


def entries(experiments: Sequence[Findings]) -> list[Entry]:
    """All arms that have a finished cell, in the order of the experiments and of their arms."""
    return [
        Entry(experiment=experiment, arm=arm, cells=tuple(cells))
        for experiment in experiments
        for arm, cells in experiment.cells.items()
        if cells
    ]


def share_trained(entry: Entry) -> float | None:
    """FLOPs spent, of those of the full ELECTRA of this size (both as the paper counts); None for a preset of one's own."""
    if entry.size not in PRESETS:
        return None
    full = preset(entry.size)
    share = describe([cell.facts["flops_paper"] for cell in entry.cells]).mean / run_flops(full).paper
    return share if share > 0 else None


_TOTAL_LOSS = "held-out/loss"
"""A weighted sum of other terms in each objective: shown where it is asked for."""


def metric_names(experiments: Sequence[Findings]) -> list[str]:
    """All metrics, in the order in which they are first met."""
    return list(dict.fromkeys(name for experiment in experiments for name in experiment.metrics))


def extra_metrics(experiments: Sequence[Findings], patterns: Sequence[str]) -> list[str]:
    """Metrics that are no column of the paper: those that fit a pattern, or all whose names have at most two levels but the total loss.

    Raises:
        ConfigError: a pattern that fits nothing.
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


def measured(entry: Entry, key: str, *, reference: float, test: bool, score: bool) -> Group | str | None:
    """What an entry has for a column; None: nothing.

    Args:
        reference: training FLOPs that ratios and speedups refer to.
        test: the row's scores are of the test sets.
        score: in points, as the paper prints.

    Raises:
        DataError: a score that is no share between -1 and 1.
    """
    match key:
        case "train_flops":
            return describe([cell.facts["flops_paper"] for cell in entry.cells])
        case "train_ratio":
            return describe([cell.facts["flops_paper"] / reference for cell in entry.cells])
        case "train_speedup":
            return spread(
                [reference / cell.facts["flops_paper"] for cell in entry.cells if cell.facts["flops_paper"] > 0]
            )
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
                    f"{cell.file}: {name} = {cell.metrics[name]}: expected a share between -1 and 1, not points."
                )
        values = [100 * value for value in values]
    return spread(values)


def _counted(config: Config | None, key: str) -> Group | None:
    """From the configuration alone; parameters are those of the network that is kept, as the paper counts them."""
    if config is None:
        return None
    if key == "parameters":
        return describe([parameters(config).kept])
    cost = infer_flops(config).paper
    return describe([cost if key == "infer_flops" else _BASE_INFER_FLOPS / cost])


def _time_and_hardware(entry: Entry) -> str:
    """Mean time of a run, and every machine that a seed ran on."""
    seconds = describe([cell.facts["seconds"] for cell in entry.cells])
    machines = dict.fromkeys(machine for cell in entry.cells if (machine := _machine(cell.kept)))
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
