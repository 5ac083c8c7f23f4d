"""`--search`: learning rate, layer decay and epochs of each task, chosen on a tenth of its training rows. Dev sets are
not looked at.

First every rate with every decay, at the recipe's epochs; then the best of each task with more epochs and with fewer.
`--grid` has values of your own, or the paper's (Appendix B). Every choice is an experiment of one seed in
OUT/search/encoder; with baselines, fresh weights are searched in the same way in OUT/search/untrained.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments import folder
from electra_trainer.files import durable
from electra_trainer.finetuning import experiment, task_summary
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.randomness import drawn

Choice = Mapping[str, float]
"""Fields of the recipe."""
RATES = (1.0, 2.0, 10 / 3)
"""Learning rates, as multiples of the recipe's: 3e-4, 6e-4 and 1e-3 for Small."""
NO_DECAY = 1.0
"""Tried beside the recipe's own layer decay."""
EPOCHS = {"longer": 3.0, "shorter": 1 / 3}
"""Trials with other epochs than the task's, as multiples of them."""
Grid = Mapping[str, tuple[float, ...]]
PAPER_GRIDS: dict[str, Grid] = {
    "paper-small": {"learning_rate": (1e-4, 2e-4, 3e-4, 5e-3)},
    "paper-base": {"learning_rate": (3e-5, 5e-5, 1e-4, 1.5e-4), "layer_decay": (0.9, 0.8, 0.7)},
    "paper-large": {"epochs": (3.0, 10.0)},
}
"""What the paper searched (Appendix B); of Small and Base it used one choice for all tasks, here each task has its
own.
"""
MOST_ROWS = 10_000
"""Larger training sets are searched on so many rows, at the task's own epochs: the best number for fewer rows would be
too high.
"""


def parse_grid(words: Sequence[str]) -> Grid:
    """`["learning-rate=1e-4,3e-4", "epochs=3,10"]`, or the name of one of the paper's, as fields with values.

    Raises:
        ConfigError: no such field, not numbers, or values that are given twice.
    """
    if len(words) == 1 and words[0] in PAPER_GRIDS:
        return PAPER_GRIDS[words[0]]
    grid: dict[str, tuple[float, ...]] = {}
    for word in words:
        name, _, text = word.partition("=")
        field = name.replace("-", "_")
        try:
            values = tuple(float(value) for value in text.split(","))
        except ValueError:
            values = ()
        if field not in _FIELDS or not values or len(set(values)) < len(values) or field in grid:
            raise ConfigError(
                f"--grid {word}: expected one of {', '.join(PAPER_GRIDS)}, or different values of learning-rate, "
                "layer-decay and epochs, each "
                "once, for example learning-rate=1e-4,3e-4 epochs=3,10."
            )
        for value in values:
            Recipe(**{field: value})  # type: ignore[arg-type]  # refuses what cannot be
        grid[field] = values
    return grid


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
    """The plan with what the search chose for each task, and for fresh weights. What is found already is read.

    Raises:
        ConfigError: all three are given, so there is nothing to search. ElectraError: as `run_plan`.
    """
    for name in sorted(plan.grid.keys() & plan.given.keys()):
        flag = name.replace("_", "-")
        raise ConfigError(f"--grid {flag} and --{flag}: give one of the two.")
    if plan.given.keys() >= set(_FIELDS):
        raise ConfigError("--search: learning rate, layer decay and epochs are all given. Leave one of them out.")
    begun = out / folder.SEARCH
    if folder.exists(out) and not begun.is_dir():
        raise ConfigError(f"--out {out}: the experiment there began without --search. Choose another --out.")
    # what the experiment would refuse after the search, this refuses before it
    declared = experiment.FineTuning(plan, device=device, data=None, sharded=False).declare(None)
    with folder.declaring(out, "finetune"):
        durable.make_folder(begun)
    search = partial(
        _search,
        declared=declared,
        run_trial=partial(experiment.run_plan, device=device, parallel=parallel, quiet=quiet),
    )
    asked = replace(plan, seeds=(1,), floors=False, keep="none")
    chosen = search(asked, out=begun / "encoder")
    notes = {task: f"searched on training rows: {_told(choice)}." for task, choice in chosen.items()}
    if not plan.floors:
        return replace(plan, chosen=chosen, notes=notes)
    about = {task.name: "fresh weights, not those of the model." for task in plan.tasks}
    untrained = search(replace(asked, fresh=True, notes=about), out=begun / task_summary.UNTRAINED)
    return replace(plan, chosen=chosen, notes=notes, chosen_untrained=untrained)


def _search(
    plan: experiment.Plan, *, out: Path, declared: folder.Declared, run_trial: Callable[..., task_summary.Summary]
) -> dict[str, Choice]:
    best: dict[str, tuple[float, Choice]] = {}

    def trial(name: str, choices: dict[str, Choice]) -> None:
        """One run of each task, with its choice."""
        tasks = tuple(TrainingRows(source=task) for task in plan.tasks if task.name in choices)
        found = run_trial(replace(plan, tasks=tasks, chosen=choices), out=out / name)
        for task, choice in choices.items():
            main = found.task(task).main  # None: it diverged
            if main is not None and (task not in best or main.median > best[task][0]):
                best[task] = main.median, choice

    for choice in _choices(plan, declared):
        trial(_named(choice), {task.name: choice for task in plan.tasks})
    values = {task.name: _epochs(plan, task) for task in plan.tasks}
    for name in dict.fromkeys(name for own in values.values() for name in own):
        choices: dict[str, Choice] = {
            task: {**best[task][1], "epochs": own[name]}
            for task, own in values.items()
            if name in own and task in best and declared.rows[task]["train_rows"] <= MOST_ROWS
        }
        if choices:
            trial(name, choices)
    return {task: choice for task, (_, choice) in best.items()}


def _epochs(plan: experiment.Plan, task: TaskSource) -> dict[str, float]:
    """Trial -> its epochs: those of the grid, or more and fewer than the task's own, which the first trials have."""
    if "epochs" in plan.given:
        return {}
    if plan.grid:
        return {f"epochs-{value:g}": value for value in plan.grid.get("epochs", ()) if value != task.epochs}
    return {name: factor * task.epochs for name, factor in EPOCHS.items()}


def _choices(plan: experiment.Plan, declared: folder.Declared) -> Iterator[Choice]:
    """Every rate with every decay of the grid, or that the plan leaves open; the recipe's own are those of any task."""
    if plan.grid:
        given = {name: values for name, values in plan.grid.items() if name != "epochs"}
        yield from (dict(zip(given, values, strict=True)) for values in product(*given.values()))
        return
    base = next(iter(declared.rows.values()))["recipe"]
    rates = [float(f"{base['learning_rate'] * factor:.2g}") for factor in RATES]
    axes = {"learning_rate": rates, "layer_decay": [base["layer_decay"], NO_DECAY]}
    open_axes = {name: values for name, values in axes.items() if name not in plan.given}
    yield from (dict(zip(open_axes, values, strict=True)) for values in product(*open_axes.values()))


def _told(choice: Choice) -> str:
    return ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in choice.items()) or "nothing was open"


def _named(choice: Choice) -> str:
    return "-".join(f"{name.replace('_', '-')}-{value:g}" for name, value in choice.items()) or "as-given"


def _some(train: Sequence[Any], task: str) -> list[Any]:
    return [train[index] for index in np.sort(drawn(f"searched rows/{task}", count=MOST_ROWS, total=len(train)))]
