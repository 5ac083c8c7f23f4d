"""Our side of tables and figures: an arm of an experiment as one entry, its value in each column, its points and
curves. No torch here.
"""

import fnmatch
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.results import FACTS, Findings, Measured, environment_of
from electra_trainer.experiments.statistics import Spread, spread_of
from electra_trainer.finetuning.glue import submission
from electra_trainer.finetuning.glue.glue_tasks import PAPER
from electra_trainer.inspection.run_read import read_run
from electra_trainer.paper import composite, sweep
from electra_trainer.paper.published import GLUE_TASKS, SQUAD
from electra_trainer.presets import arms, models
from electra_trainer.settings import methods, records
from electra_trainer.settings.config import Config, generator_shape

PUBLISHED_SCORES = ("glue/", "glue-test/", "squad1/", "squad2/")
"""How metrics begin that have a column of their own in some table of the paper; it prints them in points."""
_TOTAL_LOSS = "held-out/loss"
"""A weighted sum of other terms in each objective: shown on request only."""
_PREFERRED = (
    "glue/average",
    composite.NAME,
    "pos/accuracy",
    "held-out/discriminator_auc",
    "held-out/generator_accuracy",
    "held-out/generator_loss",
)
"""Metrics of figures: of those that most arms have, the first is shown."""
_GLUE = {task: f"glue/{column}" for task, column in zip(PAPER, GLUE_TASKS, strict=True)}
"""Task of GLUE -> column of the paper's tables."""
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
    chosen: bool = False
    """Of arms that were swept: its values are those that the declared rule chose."""

    @property
    def method(self) -> str:
        """The arm whose row of a table it fills: of chosen values the arm that was swept."""
        return sweep.arm_of_row(self.arm) if self.chosen else self.arm

    @property
    def tuned(self) -> bool:
        """Whether its numbers are medians over fine-tuning seeds, as the paper's are (§3.1)."""
        return self.experiment.declared.of == "finetune"

    @property
    def size(self) -> str:
        """The preset's size in the paper's words: `bert_small` and `small_50` train the same network as `small`."""
        return models.SIZES.get(self.preset, self.preset)

    @property
    def folder(self) -> Path:
        """The run, or the folder that holds one for each seed; of several tasks the experiment's."""
        if self.tuned and len(self.experiment.cells) > 1:
            return self.experiment.path
        return self.cells[0].kept if len(self.cells) == 1 else self.cells[0].folder.parent

    @property
    def run(self) -> Path | None:
        """Of a fine-tuned encoder the run folder whose checkpoint it is, where it is one's."""
        model = self.experiment.declared.about.get("model") if self.tuned and self.config is not None else None
        return records.run_and_step(model)[0] if model else None

    @property
    def unfinished(self) -> str:
        """The step of a checkpoint from before the end of its run, in words; it has not decayed as a shorter run
        has.
        """
        steps, whole = self.facts("steps"), not self.tuned and self.cells[0].kept != self.experiment.path
        if whole or self.config is None or not steps or min(steps) >= self.config.schedule.steps:
            return ""
        return f"step {min(steps):,.0f} of {self.config.schedule.steps:,}"

    def facts(self, name: str) -> list[float]:
        """What pre-training took, of each seed that says it."""
        return [cell.facts[name] for cell in self.cells if name in cell.facts]

    def metric(self, name: str) -> list[float]:
        """A metric of each seed that has it."""
        return [cell.metrics[name] for cell in self.cells if name in cell.metrics]

    @property
    def share_trained(self) -> float | None:
        """Share of the FLOPs of the full ELECTRA of this size (as the paper counts); None for another preset."""
        spent = spread_of(self.facts("flops_paper"))
        if self.size not in models.PRESETS or spent is None or spent.mean <= 0:
            return None
        return spent.mean / run_flops(models.preset(self.size)).paper


def entries(experiments: Sequence[Findings]) -> list[Entry]:
    """All arms and encoders that have a finished cell, in the order of the experiments and of their arms."""
    found: list[Entry] = []
    for one in experiments:
        done = [cell for cells in one.cells.values() for cell in cells]
        if one.declared.of == "finetune":
            found += [_tuned(one, done)] if done else []
            continue
        by_arm = _by_arm(one)
        chosen, q = _chosen(one, by_arm), composite.composite(by_arm, reference=next(iter(by_arm)))
        for key, done_cells in one.cells.items():
            of_arm = {seed: {composite.NAME: value} for seed, value in q.get(key, {}).items()}
            cells = [replace(cell, metrics=cell.metrics | of_arm.get(cell.seed, {})) for cell in done_cells]
            config = one.configs[key]
            arm = (arms.arm_of(config) if config is not None and key == arms.PRESET else None) or key
            if cells:
                entry = Entry(experiment=one, arm=arm, cells=tuple(cells), preset=one.preset, config=config)
                found.append(replace(entry, chosen=key in chosen))
    return found


def _by_arm(experiment: Findings) -> dict[str, dict[str, dict[int, float]]]:
    """Row -> metric -> seed -> value."""
    found: dict[str, dict[str, dict[int, float]]] = {row: {} for row in experiment.cells}
    for row, cells in experiment.cells.items():
        for cell in cells:
            for name, value in cell.metrics.items():
                found[row].setdefault(name, {})[cell.seed] = value
    return found


def _chosen(experiment: Findings, by_arm: Mapping[str, Mapping[str, Mapping[int, float]]]) -> set[str | None]:
    """The rows that the declared rule chose of each arm that was swept."""
    metric, seeds = experiment.declared.facts.get("choose"), experiment.declared.seeds
    if metric is None:
        return set()
    values = {row: metrics.get(metric, {}) for row, metrics in by_arm.items()}
    return set(sweep.choices([*by_arm], metric, values, seeds=seeds, failed=experiment.failed).values())


def _tuned(experiment: Findings, done: Sequence[Measured]) -> Entry:
    """An encoder that was fine-tuned: the cells of each seed as one."""
    about, config = experiment.declared.about, experiment.encoder
    known = about.get("encoder") or {}
    facts = {name: value for name, value in known.items() if name in FACTS}
    environment = known.get("environment") or environment_of(records.run_and_step(about["model"])[0])
    cells = []
    for seed in sorted({cell.seed for cell in done}):
        of_tasks = [cell for cell in done if cell.seed == seed]
        metrics = {name: value for cell in of_tasks for name, value in _columns_of(experiment, cell).items()}
        if all(column in metrics for column in _GLUE.values()):
            metrics["glue/average"] = statistics.fmean(metrics[column] for column in _GLUE.values())
        first = Measured(root=experiment.path, key=of_tasks[0].key, seed=seed, facts=facts, metrics=metrics)
        cells.append(replace(first, environment=environment))
    if cells and (test := submission.read_scores(experiment.path)):  # of each task the seed that was best on dev
        cells[0] = replace(cells[0], metrics=cells[0].metrics | test)
    name, arm = Path(about.get("model") or "encoder").name, "fine-tuned"
    if config is not None:
        name, arm = config.preset, arms.arm_of(config) or "another"
    return Entry(experiment=experiment, arm=arm, cells=tuple(cells), preset=name, config=config)


def _columns_of(experiment: Findings, cell: Measured) -> dict[str, float]:
    """A fine-tuning run's scores by the paper's columns; of other tasks the main one as TASK/METRIC."""
    row = experiment.declared.rows[cell.key]
    names = SQUAD.get(cell.key) or {row["metric"]: _GLUE.get(cell.key, f"{cell.key}/{row['metric']}")}
    found = {column: cell.metrics.get(f"{row['dev'][0]}/{name}") for name, column in names.items()}
    return {column: value for column, value in found.items() if value is not None}


def _metric_names(known: Sequence[Entry]) -> list[str]:
    """All metrics, in the order in which they are first met."""
    return list(dict.fromkeys(name for entry in known for cell in entry.cells for name in cell.metrics))


def _unknown(flag: str, word: str, names: Sequence[str]) -> ConfigError:
    known = ", ".join(names) or "none is there yet"
    return ConfigError(f"{flag} {word}: no such metric.{did_you_mean(word, names)} Known: {known}.")


def extra_metrics(experiments: Sequence[Findings], patterns: Sequence[str], *, columns: Sequence[str]) -> list[str]:
    """Metrics without a column in the table: those that match a pattern, or all of at most two levels that are in no
    table of the paper, but the total loss.

    Args:
        columns: of the table.

    Raises:
        ConfigError: a pattern that matches nothing.
    """
    names = _metric_names(entries(experiments))
    if not patterns:
        own = [name for name in names if not name.startswith(PUBLISHED_SCORES)]
        return [name for name in own if name.count("/") <= 1 and name != _TOTAL_LOSS]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise _unknown("--metrics", pattern, names)
    own = [name for name in names if name not in columns]
    return [name for name in own if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def choose_metric(experiments: Sequence[Findings], wanted: str | None) -> str:
    """The metric of a figure: the requested one, else of those that most arms have the first preferred.

    Raises:
        ConfigError: no cell has the requested metric.
        DataError: no cell is finished, or none has a metric.
    """
    known = entries(experiments)
    names = _metric_names(known)
    if not names:
        where = " ".join(str(experiment.path) for experiment in experiments)
        raise DataError(f"{where}: no cell is finished, or none has a metric. Run electra compare again; it resumes.")
    if wanted is not None:
        if wanted not in names:
            raise _unknown("--metric", wanted, names)
        return wanted
    owners = Counter(name for entry in known for name in _metric_names([entry]))
    preferred = [name for name in _PREFERRED if name in names] + [name for name in names if name.endswith("accuracy")]
    return max(dict.fromkeys([*preferred, *names]), key=owners.__getitem__)  # the first of the largest


def measured(entry: Entry, key: str, *, reference: float, test: bool, score: bool) -> Spread | str | None:
    """An entry's value in a column; None: it has none.

    Args:
        reference: training FLOPs that ratios and speedups refer to.
        test: the row's scores are of the test sets.
        score: in points, as the paper prints.

    Raises:
        DataError: a score that is not a share between -1 and 1.
    """
    spent = entry.facts("flops_paper")
    match key:
        case "train_flops":
            return spread_of(spent)
        case "train_ratio":
            return spread_of([flops / reference for flops in spent])
        case "train_speedup":
            return spread_of([reference / flops for flops in spent if flops > 0])
        case "time_and_hardware":
            return _time_and_hardware(entry)
        case "infer_flops" | "infer_speedup" | "parameters":
            return _counted(entry.config, key)
    name = key.replace("glue/", "glue-test/", 1) if test and key.startswith("glue/") else key
    values = entry.metric(name)
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
        of_tasks = (measured(entry, task, reference=reference, test=test, score=score) for task in _GLUE.values())
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
    seconds = spread_of(entry.facts("seconds"))
    if seconds is None:
        return None
    machines = dict.fromkeys(machine for cell in entry.cells if (machine := _machine(cell.environment)))
    return f"{_duration(seconds.mean)} on {' and '.join(machines) or 'a machine that is not recorded'}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.2g}{unit}" if seconds < 99 * length else f"{seconds / length:.0f}{unit}"
    return f"{seconds:.2g}s"


def _machine(facts: Mapping[str, Any]) -> str | None:
    """The GPU, or the CPU's threads and instructions, as environment.json has them."""
    if isinstance(facts.get("gpu"), str):
        return str(facts["gpu"])
    threads, kind = facts.get("threads"), facts.get("cpu_capability")
    if not isinstance(threads, int):
        return None
    return f"{threads} CPU thread{'s' if threads != 1 else ''}" + (f" ({kind})" if isinstance(kind, str) else "")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An arm's metric after training, and during it."""

    entry: Entry
    score: Spread
    flops: float
    """Mean training FLOPs of the seeds, as the paper counts."""
    curves: tuple[tuple[tuple[float, float], ...], ...]
    """For each seed (FLOPs, metric) during training; empty where the run did not measure it."""


def factor(metric: str) -> float:
    """What the paper's axes multiply a share with: GLUE and SQuAD are shown in points."""
    return 100.0 if metric.startswith(PUBLISHED_SCORES) else 1.0


def readings(experiments: Sequence[Findings], metric: str) -> list[Reading]:
    """Arms that have the metric."""
    found = []
    for entry in entries(experiments):
        cells = [cell for cell in entry.cells if metric in cell.metrics and "flops_paper" in cell.facts]
        score = spread_of([factor(metric) * cell.metrics[metric] for cell in cells])
        if score is not None:
            flops = sum(cell.facts["flops_paper"] for cell in cells) / len(cells)
            curves = tuple(_curve(cell, metric) for cell in cells)
            found.append(Reading(entry=entry, score=score, flops=flops, curves=curves))
    return found


def _curve(cell: Measured, metric: str) -> tuple[tuple[float, float], ...]:
    """The held-out rows of a run that have the metric, under its name or without "held-out/"."""
    try:
        rows = read_run(cell.kept).valid
    except (MissingInputError, DataError):
        return ()  # a cell without its run folder still has its result
    values = [row.get(metric, row.get(metric.removeprefix("held-out/"), math.nan)) for row in rows]
    return tuple(
        (row["flops"], factor(metric) * value)
        for row, value in zip(rows, values, strict=True)
        if math.isfinite(value) and row.get("flops", 0.0) > 0
    )


def missing_arms(experiments: Sequence[Findings], shown: Sequence[Reading], also: Sequence[str] = ()) -> list[str]:
    """Arms that were planned, or belong into the figure (`also`), and are not shown."""
    entries_shown = [reading.entry for reading in shown]
    there = {(entry.experiment.path, name) for entry in entries_shown for name in (entry.arm, entry.cells[0].key)}
    return [
        f"{experiment.name}: {arm}" if len(experiments) > 1 else arm
        for experiment in experiments
        for arm in also or experiment.configs
        if (experiment.path, arm) not in there
    ]


class GeneratorSize(NamedTuple):
    """A place on the axis of the left of Figure 3."""

    order: float
    """Hidden units; below 0 for a generator without any."""
    label: str


def generator_size(reading: Reading) -> GeneratorSize | None:
    """An arm's place in the left of Figure 3; None if it differs from ELECTRA in more than its generator's size."""
    config = reading.entry.config
    if config is None or type(config.objective) is not methods.RTD or config.objective.loss_over != "all":
        return None
    generator = config.generator
    if not isinstance(config.phases, methods.Joint) or generator.disallow_correct:
        return None
    if isinstance(generator, methods.Uniform):
        return GeneratorSize(-2.0, "uniform")
    if isinstance(generator, methods.Unigram):
        return GeneratorSize(-1.0, "unigram")
    if generator.temperature != 1 or config.sharing != "embeddings":
        return None
    shape, main = generator_shape(config), config.model
    width, layers = shape.hidden_size, shape.num_hidden_layers
    depth = "" if layers == main.num_hidden_layers else f", {layers} of {main.num_hidden_layers} layers"
    return GeneratorSize(width, f"{width}\n({width / main.hidden_size:.3g}x{depth})")


def paired_gain(mine: Reading, other: Reading, metric: str) -> Spread | None:
    """Mean and SD over the seeds that both arms have of `mine` minus `other`."""
    one, two = (
        {cell.seed: cell.metrics[metric] for cell in reading.entry.cells if metric in cell.metrics}
        for reading in (mine, other)
    )
    return spread_of([factor(metric) * (one[seed] - two[seed]) for seed in one if seed in two])
