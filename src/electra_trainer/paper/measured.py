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
from electra_trainer.experiments import sweep
from electra_trainer.experiments.cell import Cell, Declared, Row
from electra_trainer.experiments.result import FACTS, Result, environment_of
from electra_trainer.experiments.statistics import Q, Spread, spread_of
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.finetuning import glue_table
from electra_trainer.finetuning.glue_tasks import PAPER
from electra_trainer.inspection.report import read_run
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
    Q,
    "pos/accuracy",
    "held-out/discriminator_auc",
    "held-out/generator_accuracy",
    "held-out/generator_loss",
)
"""Metrics of figures: of those that most arms have, the first is shown."""
_GLUE = {task: f"glue/{column}" for task, column in zip(PAPER, GLUE_TASKS, strict=True)}
"""Task of GLUE -> column of the paper's tables."""
_BASE_INFER_FLOPS = 2.9e10  # BERT-Base, the reference of Table 1's speedups


_PLACE = ("step", "tokens", "flops", "flops_real", "seconds")
"""Fields of a row of metrics.jsonl that are not measured on held-out rows."""


def read_experiment(path: Path) -> Summary:
    """The summary of an experiment folder; a run folder of `electra pretrain` is an experiment of one arm and seed,
    with the held-out metrics of its last evaluation.

    Raises:
        MissingInputError: no folder, or neither an experiment.json nor a run in it.
        DataError: experiment.json, a result.json or the run is damaged; says where.
    """
    if not (path / "config.json").is_file() or (path / "experiment.json").exists():
        return summarize(path)
    found, file = read_run(path), path / "config.json"
    one = records.read(Config, records.read_table(file), where=str(file), error=DataError)
    last = max((row for rows in (found.train[-1:], found.valid[-1:]) for row in rows), key=lambda row: row["step"])
    steps, arm = int(last["step"]), arms.arm_of(one) or arms.PRESET
    flops, held_out = run_flops(one, steps=steps), found.valid[-1] if found.valid else {}
    costs = (
        steps,
        steps * one.tokens_per_step,
        flops.paper,
        flops.real,
        last.get("seconds", 0.0),
        parameters(one).joint,
    )
    metrics = {
        f"held-out/{name}": value for name, value in held_out.items() if name not in _PLACE and math.isfinite(value)
    }
    facts = dict(zip(FACTS, costs, strict=True))
    result = Result(key=arm, seed=one.seed, facts=facts, scores=metrics, environment=environment_of(path))
    declared = Declared(
        verb="compare", facts={"preset": one.preset}, rows={arm: Row(settings=records.to_dict(one))}, seeds=(one.seed,)
    )
    note = (
        f"{path.resolve().name}: a run: held-out metrics are those of its last evaluation, on {one.evaluation.rows:,} "
        "rows at most."
    )
    return Summary(path=path, declared=declared, results={arm: {one.seed: result}}, notes=(note,))


def notes_of(summary: Summary) -> list[str]:
    """Sentences on cells that are not done or failed, and on configurations that cannot be read."""
    name, notes = summary.name, [*summary.notes]
    for row in summary.declared.rows:
        failed = summary.failed.get(row, {}).items()
        notes += [f"{name}: {row}: seed {seed} failed, and is left out: {why}" for seed, why in failed]
        if missing := summary.missing(row):
            notes.append(f"{name}: {row}: not done: seed {', '.join(map(str, missing))}.")
        plain = _plain_config(summary, row)
        if plain is not None and (config := _config(plain, f"{summary.path}: {row}")) and isinstance(config, str):
            notes.append(f"{config} Its parameters and sizes are left out.")
    return [*dict.fromkeys(notes)]


def _plain_config(summary: Summary, row: str) -> Any:
    """Configuration of an arm's pre-training, or of the encoder that was fine-tuned, as a table; None: not known."""
    if summary.declared.verb == "compare":
        return summary.declared.rows[row].settings
    return (summary.declared.about.get("encoder") or {}).get("config")


def _config(plain: Any, where: str) -> Config | str:
    try:
        return records.read(Config, plain, where=where)
    except ConfigError as error:
        return str(error)


def config_of(summary: Summary, row: str) -> Config | None:
    """Configuration of an arm's pre-training; None where it cannot be read."""
    plain = _plain_config(summary, row)
    found = None if plain is None else _config(plain, row)
    return found if isinstance(found, Config) else None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The content of a row of ours: an arm of `electra compare`, or a fine-tuned encoder, with a finished seed."""

    experiment: Summary
    arm: str
    results: tuple[Result, ...]
    """One for each seed; of a fine-tuned encoder with the scores of all tasks and the cost of its pre-training."""
    preset: str
    """The preset that the pre-training began from; the name of an encoder whose folder does not say."""
    config: Config | None
    """The configuration of the pre-training; None where it cannot be read."""
    chosen: bool = False
    """Whether its swept values are those that the declared rule chose."""

    @property
    def method(self) -> str:
        """The arm whose row of a table it fills: of chosen values the arm that was swept."""
        return sweep.arm_of_row(self.arm) if self.chosen else self.arm

    @property
    def tuned(self) -> bool:
        """Whether its numbers are medians over fine-tuning seeds, as the paper's are (§3.1)."""
        return self.experiment.declared.verb != "compare"

    @property
    def size(self) -> str:
        """The preset's size in the paper's words: `bert_small` and `small_50` train the same network as `small`."""
        return models.SIZES.get(self.preset, self.preset)

    def kept(self, result: Result) -> Path:
        """Folder of a seed's run."""
        return Cell(root=self.experiment.path, key=result.key, seed=result.seed).kept

    @property
    def folder(self) -> Path:
        """The run, or the folder that holds one for each seed; of several tasks the experiment's."""
        if self.tuned and len(self.experiment.declared.rows) > 1:
            return self.experiment.path
        if len(self.results) == 1:
            return self.kept(self.results[0])
        return self.experiment.path / "cells" / self.results[0].key

    @property
    def run(self) -> Path | None:
        """Run folder whose checkpoint was fine-tuned, where it is known."""
        model = self.experiment.declared.about.get("model") if self.tuned and self.config is not None else None
        return records.run_and_step(model)[0] if model else None

    @property
    def unfinished(self) -> str:
        """The step of a checkpoint from before the end of its run, in words; it has not decayed as a shorter run
        has.
        """
        steps = self.facts("steps")
        whole = not self.tuned and self.kept(self.results[0]) != self.experiment.path
        if whole or self.config is None or not steps or min(steps) >= self.config.schedule.steps:
            return ""
        return f"step {min(steps):,.0f} of {self.config.schedule.steps:,}"

    def facts(self, name: str) -> list[float]:
        """A cost of pre-training, of each seed that has it."""
        return [one.facts[name] for one in self.results if name in one.facts]

    def metric(self, name: str) -> list[float]:
        """A metric of each seed that has it."""
        return [one.scores[name] for one in self.results if name in one.scores]

    @property
    def share_trained(self) -> float | None:
        """Share of the FLOPs of the full ELECTRA of this size (as the paper counts); None for another preset."""
        spent = spread_of(self.facts("flops_paper"))
        if self.size not in models.PRESETS or spent is None or spent.mean <= 0:
            return None
        return spent.mean / run_flops(models.preset(self.size)).paper


def preset_of(summary: Summary) -> str:
    """The preset that its pre-training began from, or the encoder's name."""
    about = summary.declared.about
    encoder = (about.get("encoder") or {}).get("config", {}).get("preset") or Path(about.get("model") or "encoder").name
    return str(summary.declared.facts.get("preset", encoder))


def entries(experiments: Sequence[Summary]) -> list[Entry]:
    """All arms and encoders that have a finished cell, in the order of the experiments and of their arms."""
    found: list[Entry] = []
    for one in experiments:
        if one.declared.verb != "compare":
            found += _tuned(one)
            continue
        for key, by_seed in one.results.items():
            q = one.values[key].get(Q, {})
            results = tuple(
                replace(result, scores=result.scores | ({Q: q[seed]} if seed in q else {}))
                for seed, result in by_seed.items()
                if result.failed is None
            )
            config = config_of(one, key)
            arm = (arms.arm_of(config) if config is not None and key == arms.PRESET else None) or key
            if results:
                found.append(
                    Entry(
                        experiment=one,
                        arm=arm,
                        results=results,
                        preset=preset_of(one),
                        config=config,
                        chosen=key in one.chosen.values(),
                    )
                )
    return found


def _tuned(experiment: Summary) -> list[Entry]:
    """An encoder that was fine-tuned: the cells of each seed as one."""
    about, rows = experiment.declared.about, experiment.declared.rows
    done = [
        result
        for key, by_seed in experiment.results.items()
        for result in by_seed.values()
        if result.failed is None and rows[key].reference is None
    ]
    if not done:
        return []
    config = config_of(experiment, done[0].key)
    known = about.get("encoder") or {}
    facts = {name: value for name, value in known.items() if name in FACTS}
    environment = known.get("environment") or environment_of(records.run_and_step(about["model"])[0])
    results = []
    for seed in sorted({one.seed for one in done}):
        of_tasks = [one for one in done if one.seed == seed]
        metrics = {name: value for one in of_tasks for name, value in _columns_of(rows[one.key], one).items()}
        if all(column in metrics for column in _GLUE.values()):
            metrics["glue/average"] = statistics.fmean(metrics[column] for column in _GLUE.values())
        results.append(replace(of_tasks[0], facts=facts, scores=metrics, environment=environment))
    test = glue_table.read_scores(experiment.path)  # of each task the seed that was best on dev
    results[0] = replace(results[0], scores=results[0].scores | test)
    arm = "fine-tuned" if config is None else arms.arm_of(config) or "another"
    preset = preset_of(experiment)
    return [Entry(experiment=experiment, arm=arm, results=tuple(results), preset=preset, config=config)]


def _columns_of(row: Row, result: Result) -> dict[str, float]:
    """A fine-tuning run's scores by the paper's columns; of other tasks the main one as TASK/METRIC."""
    split, _, metric = row.metrics[0].partition("/")
    names = SQUAD.get(result.key) or {metric: _GLUE.get(result.key, f"{result.key}/{metric}")}
    found = {column: result.scores.get(f"{split}/{name}") for name, column in names.items()}
    return {column: value for column, value in found.items() if value is not None}


def _metric_names(known: Sequence[Entry]) -> list[str]:
    """All metrics, in the order in which they are first met."""
    return list(dict.fromkeys(name for entry in known for one in entry.results for name in one.scores))


def _unknown(flag: str, word: str, names: Sequence[str]) -> ConfigError:
    known = ", ".join(names) or "none is there yet"
    return ConfigError(f"{flag} {word}: no such metric.{did_you_mean(word, names)} Known: {known}.")


def extra_metrics(experiments: Sequence[Summary], patterns: Sequence[str], *, columns: Sequence[str]) -> list[str]:
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


def choose_metric(experiments: Sequence[Summary], wanted: str | None) -> str:
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
        if wrong := [value for value in values if abs(value) > 1]:
            raise DataError(
                f"{entry.folder}: {name} = {wrong[0]}: expected a share between -1 and 1, not points (result.json)."
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
    machines = dict.fromkeys(machine for one in entry.results if (machine := _machine(one.environment)))
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
    """Factor of a share on the paper's axes: GLUE and SQuAD are shown in points."""
    return 100.0 if metric.startswith(PUBLISHED_SCORES) else 1.0


def readings(experiments: Sequence[Summary], metric: str) -> list[Reading]:
    """Arms that have the metric."""
    found = []
    for entry in entries(experiments):
        results = [one for one in entry.results if metric in one.scores and "flops_paper" in one.facts]
        score = spread_of([factor(metric) * one.scores[metric] for one in results])
        if score is not None:
            flops = sum(one.facts["flops_paper"] for one in results) / len(results)
            curves = tuple(_curve(entry.kept(one), metric) for one in results)
            found.append(Reading(entry=entry, score=score, flops=flops, curves=curves))
    return found


def _curve(run: Path, metric: str) -> tuple[tuple[float, float], ...]:
    """The held-out rows of a run that have the metric, under its name or without "held-out/"."""
    try:
        rows = read_run(run).valid
    except (MissingInputError, DataError):
        return ()  # a cell without its run folder still has its result
    values = [row.get(metric, row.get(metric.removeprefix("held-out/"), math.nan)) for row in rows]
    return tuple(
        (row["flops"], factor(metric) * value)
        for row, value in zip(rows, values, strict=True)
        if math.isfinite(value) and row.get("flops", 0.0) > 0
    )


def _planned(experiment: Summary) -> list[str]:
    return [*experiment.declared.rows] if experiment.declared.verb == "compare" else []


def missing_arms(experiments: Sequence[Summary], shown: Sequence[Reading], also: Sequence[str] = ()) -> list[str]:
    """Arms that were planned, or belong into the figure (`also`), and are not shown."""
    entries_shown = [reading.entry for reading in shown]
    there = {(entry.experiment.path, name) for entry in entries_shown for name in (entry.arm, entry.results[0].key)}
    return [
        f"{experiment.name}: {arm}" if len(experiments) > 1 else arm
        for experiment in experiments
        for arm in also or _planned(experiment)
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
        {found.seed: found.scores[metric] for found in reading.entry.results if metric in found.scores}
        for reading in (mine, other)
    )
    return spread_of([factor(metric) * (one[seed] - two[seed]) for seed in one if seed in two])
