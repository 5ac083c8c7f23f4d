"""What the figures show, before it is drawn: which metric, which arms, their points and curves. No torch here."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from electra_trainer.errors import ConfigError, DataError, MissingInputError, did_you_mean
from electra_trainer.experiments.results import Findings, Measured
from electra_trainer.experiments.statistics import Spread, spread_of
from electra_trainer.inspection.run_read import read_run
from electra_trainer.paper import measured, published
from electra_trainer.settings.config import generator_shape
from electra_trainer.settings.methods import RTD, Joint, Learned, Uniform, Unigram

# The first that all arms share is shown
_PREFERRED = (
    "glue/average", "pos/accuracy", "held-out/discriminator_auc", "held-out/generator_accuracy",
    "held-out/generator_loss",
)  # fmt: skip
_POINTS = ("glue/", "glue-test/", "squad1/", "squad2/")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An arm's metric after training, and during it."""

    entry: measured.Entry
    score: Spread
    flops: float
    """Mean training FLOPs of the seeds, as the paper counts."""
    curves: tuple[tuple[tuple[float, float], ...], ...]
    """For each seed (FLOPs, metric) during training; empty where the run did not measure it."""


def choose_metric(experiments: Sequence[Findings], wanted: str | None) -> str:
    """The metric to show: the requested one, else the first preferred that all arms share, else the one that most have.

    Raises:
        ConfigError: no cell has the requested metric.
        DataError: no cell is finished, or none has a metric.
    """
    names = measured.metric_names(experiments)
    if not names:
        where = " ".join(str(experiment.path) for experiment in experiments)
        raise DataError(f"{where}: no cell is finished, or none has a metric. Run electra compare again; it resumes.")
    if wanted is not None:
        if wanted not in names:
            raise ConfigError(
                f"--metric {wanted}: no such metric.{did_you_mean(wanted, names)} Known: {', '.join(names)}."
            )
        return wanted
    order = [name for name in _PREFERRED if name in names]
    order += [name for name in names if name.endswith("accuracy") and name not in order]
    order += [name for name in names if name not in order]

    def owners(name: str) -> int:
        return sum(any(name in cell.metrics for cell in entry.cells) for entry in measured.entries(experiments))

    return max(order, key=owners)  # the first of the largest


def factor(metric: str) -> float:
    """What the paper's axes multiply a share with: GLUE and SQuAD are shown in points."""
    return 100.0 if metric.startswith(_POINTS) else 1.0


def readings(experiments: Sequence[Findings], metric: str) -> list[Reading]:
    """Arms that have the metric."""
    return [reading for entry in measured.entries(experiments) if (reading := _reading(entry, metric)) is not None]


def _reading(entry: measured.Entry, metric: str) -> Reading | None:
    scale = factor(metric)
    cells = [cell for cell in entry.cells if metric in cell.metrics and "flops_paper" in cell.facts]
    score = spread_of([scale * cell.metrics[metric] for cell in cells])
    if score is None:
        return None
    flops = sum(cell.facts["flops_paper"] for cell in cells) / len(cells)
    return Reading(entry=entry, score=score, flops=flops, curves=tuple(_curve(cell, metric, scale) for cell in cells))


def _curve(cell: Measured, metric: str, scale: float) -> tuple[tuple[float, float], ...]:
    """The held-out rows of a run that have the metric, under its name or without "held-out/"."""
    try:
        rows = read_run(cell.kept).valid
    except (MissingInputError, DataError):
        return ()  # a cell without its run folder still has its result
    found = []
    for row in rows:
        value = row.get(metric, row.get(metric.removeprefix("held-out/"), math.nan))
        if math.isfinite(value) and row.get("flops", 0.0) > 0:
            found.append((row["flops"], scale * value))
    return tuple(found)


def missing_arms(experiments: Sequence[Findings], shown: Sequence[Reading], also: Sequence[str] = ()) -> list[str]:
    """Arms that were planned, or belong into the figure (`also`), and are not shown."""
    there = {(reading.entry.experiment.path, reading.entry.arm) for reading in shown}
    names = []
    for experiment in experiments:
        wanted = list(dict.fromkeys([*also, *(arm for arm in experiment.configs if not also or arm in also)]))
        absent = [arm for arm in wanted if (experiment.path, arm) not in there]
        names += [f"{experiment.name}: {arm}" if len(experiments) > 1 else arm for arm in absent]
    return names


@dataclass(frozen=True, kw_only=True)
class GeneratorSize:
    """A place on the axis of the left of Figure 3."""

    order: float
    """Hidden units; below 0 for a generator without any."""
    label: str


def generator_size(reading: Reading) -> GeneratorSize | None:
    """An arm's place in the left of Figure 3; None if it differs from ELECTRA in more than its generator's size."""
    config = reading.entry.config
    if config is None or type(config.objective) is not RTD or config.objective.loss_over != "all":
        return None
    generator = config.generator
    if not isinstance(config.phases, Joint) or generator.disallow_correct:
        return None
    if isinstance(generator, Unigram | Uniform):
        first = isinstance(generator, Uniform)
        return GeneratorSize(order=-2.0 if first else -1.0, label="uniform" if first else "unigram")
    assert isinstance(generator, Learned)
    if generator.temperature != 1 or generator.depth != 1 or config.sharing != "embeddings":
        return None
    shape = generator_shape(config)
    return GeneratorSize(
        order=shape.hidden_size, label=f"{shape.hidden_size}\n({shape.hidden_size / config.model.hidden_size:.3g}x)"
    )


def paired_gain(mine: Reading, other: Reading, metric: str) -> Spread | None:
    """Mean and SD over the seeds that both arms have of `mine` minus `other`."""
    theirs = {cell.seed: cell.metrics[metric] for cell in other.entry.cells if metric in cell.metrics}
    return spread_of(
        [
            factor(metric) * (cell.metrics[metric] - theirs[cell.seed])
            for cell in mine.entry.cells
            if metric in cell.metrics and cell.seed in theirs
        ]
    )


def published_points() -> dict[str, list[tuple[float, float, str]]]:
    """Figure 1's points from Tables 1 and 2 (dev sets): (training FLOPs, GLUE score, name) by family."""
    found: dict[str, list[tuple[float, float, str]]] = {"ELECTRA": [], "BERT": [], "others": []}

    def add(row: published.PublishedRow, name: str) -> None:
        family = next((known for known in ("ELECTRA", "BERT") if row.model.startswith(known)), "others")
        flops, score = row.number("train_flops"), row.number("glue/average")
        if flops is not None and score is not None:  # DistilBERT: not printed
            found[family].append((flops, score, name))

    for small in published.TABLES[1].rows:
        add(small, small.model.removeprefix("ELECTRA-Small, ").removesuffix(" trained"))
    names = {"BERT": "BERT-Large", "BERT (ours)": "BERT-Large (paper's own)", "ELECTRA": "ELECTRA-Large"}
    for large in published.TABLES[2].rows:
        if large.split == "dev":
            add(large, names.get(large.model, large.model))
    return {family: sorted(points) for family, points in found.items()}
