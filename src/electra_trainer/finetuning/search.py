"""`--search`: learning rate, layer decay and epochs of each task, chosen on a tenth of its training rows. Dev sets are
not looked at.

First every rate with every decay, at the recipe's epochs; then the best of each task with more epochs and with fewer.
All trials are rows of one experiment of one seed in OUT/search; with baselines, fresh weights are searched in the same
way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments import cell, sweep
from electra_trainer.experiments.cell import PLUS
from electra_trainer.files import durable
from electra_trainer.finetuning import experiment
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.randomness import drawn

RATES = (1.0, 2.0, 10 / 3)
"""Learning rates, as multiples of the recipe's: 3e-4, 6e-4 and 1e-3 for Small."""
NO_DECAY = 1.0
"""Layer decay that is tried next to the recipe's own."""
EPOCHS = (3.0, 1 / 3)
"""Trials with other epochs than the task's, as multiples of them."""
MOST_ROWS = 10_000
"""Rows that larger training sets are searched on, at the task's own epochs: the best number for fewer rows would be too
high.
"""
_FIELDS = ("learning_rate", "layer_decay", "epochs")


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """A task's training rows alone: a tenth of them is what its runs are scored on."""

    source: TaskSource

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def epochs(self) -> float:
        return self.source.epochs

    @property
    def wrapped(self) -> type:
        """The class of the task's own source."""
        return type(self.source)

    @property
    def max_length(self) -> int | None:
        """As the task's own."""
        return getattr(self.source, "max_length", None)

    def load(self) -> TaskData:
        """Read the task; see `TaskSource`."""
        data = self.source.load()
        try:
            train, held_out = data.task.hold_out(_some(data.train, self.name), where=self.name)
        except DataError as error:
            raise DataError(f"--search: {error} Or leave --search out.") from None
        note = f"{len(held_out):,} training rows were held out to score on, and {len(train):,} trained on."
        return replace(data, train=train, dev={"held-out": held_out}, test={}, notes=(note,))


def searched(plan: experiment.Plan, *, out: Path, device: str, parallel: int | None, quiet: bool) -> experiment.Plan:
    """The plan with the choices of the search for each task, and for fresh weights. Finished trials are read.

    Raises:
        ConfigError: all three are given, so there is nothing to search. ElectraError: as `run_plan`.
    """
    if plan.given.keys() >= set(_FIELDS):
        raise ConfigError("--search: learning rate, layer decay and epochs are all given. Leave one of them out.")
    begun = out / cell.SEARCH
    if cell.exists(out) and not begun.is_dir():
        raise ConfigError(f"--out {out}: the experiment there began without --search. Choose another --out.")
    # faults of the experiment are reported before hours of search
    declared = experiment.FineTuning(plan, device=device, quiet=True).declare(None)
    with cell.declaring(out):
        durable.make_folder(begun)
    tasks = tuple(TrainingRows(source=task) for task in plan.tasks)
    asked = replace(plan, tasks=tasks, seeds=(1,), baselines=False, keep_weights=False)
    rows = [f"{task.name}{end}" for task in tasks for end in ("", PLUS + experiment.UNTRAINED)[: 1 + plan.baselines]]

    def best(trials: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Mapping[str, float]]:
        """The best of each row's trials; none where all diverged."""
        summary = experiment.run_plan(
            replace(asked, trials=trials), out=begun, device=device, parallel=parallel, quiet=quiet
        )
        found: dict[str, Mapping[str, float]] = {}
        for row, choices in trials.items():
            scores = {sweep.named(row, one): summary.main(sweep.named(row, one)) for one in choices}
            able = [one for one in choices if scores[sweep.named(row, one)] is not None]
            if able:
                found[row] = max(able, key=lambda one: scores[sweep.named(row, one)].median)  # type: ignore[union-attr]
        return found

    base = experiment.Settings.of(
        next(iter(declared.rows.values()))
    ).recipe  # of any task: its rate and decay are alike
    rates = [float(f"{base.learning_rate * factor:.2g}") for factor in RATES]
    axes = {"learning_rate": rates, "layer_decay": [base.layer_decay, NO_DECAY]}
    first = [*sweep.combinations({name: values for name, values in axes.items() if name not in plan.given})]
    chosen = best(dict.fromkeys(rows, first))
    longer = {
        row: [chosen[row], *({**chosen[row], "epochs": factor * task.epochs} for factor in EPOCHS)]
        for row in chosen
        for task in tasks
        if row.partition(PLUS)[0] == task.name
        and declared.rows[task.name].settings["train_rows"] <= MOST_ROWS
        and "epochs" not in plan.given
    }
    return replace(plan, chosen=chosen | (best(longer) if longer else {}))


def _some(train: Sequence[Any], task: str) -> list[Any]:
    return [train[index] for index in np.sort(drawn(f"searched rows/{task}", count=MOST_ROWS, total=len(train)))]
