"""From the results on disk to the summary of an experiment: means, paired differences to the reference, what is missing.

The declared contrasts are those of all trained arms to the reference on the declared metrics; Holm's correction is over them, once.
All other metrics are in the summary too, uncorrected. Differences of held-out metrics are taken where they are of like networks at the same tokens,
or where they were declared by name: an ELECTRA 15 % whose loss counts masked tokens only has another loss, whatever it learned.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from electra_trainer.cost.parameters import learned_generator
from electra_trainer.experiments.compared import UNTRAINED, Cell, Experiment, cells, read
from electra_trainer.experiments.compared_results import FACTS, read_result
from electra_trainer.experiments.statistics import Group, Paired, compare_paired, describe, holm
from electra_trainer.files.durable import replace_durably
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, SentenceContrast

_HELD_OUT = ("generator_loss", "discriminator_loss", "discriminator_auc", "encoder_loss")


@dataclass(frozen=True, kw_only=True)
class CellState:
    """What became of a cell."""

    arm: str
    seed: int
    state: Literal["done", "failed", "missing"]
    run: str
    """Run folder, relative to the experiment's."""
    message: str | None
    """Why it failed."""
    values: dict[str, float]
    """Facts and metrics by name."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """An arm against the reference on one metric."""

    metric: str
    arm: str
    reference: str
    declared: bool
    found: Paired
    p_holm: float | None
    """Corrected over the declared contrasts."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All that an experiment says."""

    preset: str
    match: str
    amount: float
    seeds: tuple[int, ...]
    reference: str
    declared: tuple[str, ...]
    cells: list[CellState]
    arms: dict[str, dict[str, Group]]
    """Arm -> metric -> mean and SD over its seeds."""
    contrasts: list[Contrast]

    def plain(self) -> dict[str, Any]:
        """The same as summary.json has it."""
        table = {"version": 1, **asdict(self)}
        table["differences"] = [{**one, **one.pop("found")} for one in table.pop("contrasts")]
        return table


def summarize(folder: Path) -> Summary:
    """The summary of whatever cells are in an experiment's folder.

    Raises:
        MissingInputError: no experiment is there. DataError: a result.json is not one.
    """
    experiment = read(folder)
    states = [_state(cell) for cell in cells(folder, arms=list(experiment.arms), seeds=experiment.seeds)]
    by_arm: dict[str, dict[str, dict[int, float]]] = {arm: {} for arm in experiment.arms}
    for state in states:
        for name, value in state.values.items():
            by_arm[state.arm].setdefault(name, {})[state.seed] = value
    names = list(dict.fromkeys(name for state in states for name in state.values))
    declared = declared_metrics(experiment, names)
    return Summary(
        preset=experiment.preset,
        match=experiment.match,
        amount=experiment.amount,
        seeds=experiment.seeds,
        reference=experiment.reference,
        declared=declared,
        cells=states,
        arms={
            arm: {name: describe(list(values[name].values())) for name in names if name in values}
            for arm, values in by_arm.items()
        },
        contrasts=_contrasts(experiment, by_arm, names, declared),
    )


def comparable(metric: str, one: Config, other: Config) -> bool:
    """Whether a metric says the same of two arms. A held-out one does of like networks, judged at the same tokens; other probes always do."""
    probe, _, name = metric.partition("/")
    return probe != "held-out" or _judged(name, one) == _judged(name, other)


def _judged(name: str, config: Config) -> object:
    """What a held-out metric is of: a network, and the tokens that it is asked about."""
    objective = config.objective
    if name.startswith("generator_"):
        network: object = learned_generator(config) if objective.uses_generator else config.model
    elif name in ("fake_rate", "discriminator_auc", "discriminator_loss", "discriminator_constant_loss"):
        over = objective.loss_over if isinstance(objective, RTD) else "all"
        unchanged = objective.unchanged if isinstance(objective, SentenceContrast) else 0.0
        network = (objective.keeps, config.model, over, unchanged)
    else:
        network = (config.model, objective)
    return config.masking, network


def declared_metrics(experiment: Experiment, names: list[str]) -> tuple[str, ...]:
    """The metrics that were declared; by default what probes say that all arms share, and held-out metrics only without any."""
    if experiment.metrics:
        return experiment.metrics
    shared = tuple(name for name in names if name == "pos/accuracy" or name.startswith(("minimal-pairs/", "glue/")))
    return shared or tuple(name for name in names if name in {f"held-out/{metric}" for metric in _HELD_OUT})


def _contrasts(
    experiment: Experiment,
    by_arm: Mapping[str, Mapping[str, Mapping[int, float]]],
    names: list[str],
    declared: tuple[str, ...],
) -> list[Contrast]:
    reference = experiment.reference
    found: dict[tuple[str, str], Paired] = {}
    for name in [*declared, *(n for n in names if n not in declared and n not in FACTS)]:
        for arm in by_arm:
            pair = compare_paired(by_arm[arm].get(name, {}), by_arm[reference].get(name, {}))
            wanted = name in experiment.metrics or comparable(name, experiment.arms[arm], experiment.arms[reference])
            if arm != reference and pair is not None and wanted:
                found[name, arm] = pair
    family = {
        (name, arm): pair.p
        for (name, arm), pair in found.items()
        if name in declared and arm != UNTRAINED and pair.p is not None
    }
    corrected = holm(family)
    return [
        Contrast(
            metric=name,
            arm=arm,
            reference=reference,
            declared=name in declared and arm != UNTRAINED,
            found=pair,
            p_holm=corrected.get((name, arm)),
        )
        for (name, arm), pair in found.items()
    ]


def _state(cell: Cell) -> CellState:
    missing = CellState(arm=cell.arm, seed=cell.seed, state="missing", run=cell.run_name, message=None, values={})
    result = read_result(cell)
    if result is None:
        return missing
    if result.failed is not None:  # what a failed run took is no cost of the arm
        return replace(missing, state="failed", message=result.failed)
    facts = {name: float(value) for name, value in result.facts.items()}
    return replace(missing, state="done", values=facts | result.metrics)


def write_summary(folder: Path, summary: Summary) -> None:
    """Write summary.json and summary.md."""
    from electra_trainer.experiments.compared_pages import markdown

    replace_durably(folder / "summary.json", (json.dumps(summary.plain(), indent=1) + "\n").encode())
    replace_durably(folder / "summary.md", markdown(summary).encode())
