"""Fine-tuning experiments: several tasks, each with several seeds, every run a cell that can be stopped and gone on with.

The line of this file: declare (experiment_file.py), do the cells that are not done (cell_work.py) here or in several processes
(workers.py), sum up (summary.py). The same plan in the same folder goes on, whatever ended it, and comes to the same bytes.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from electra_trainer.errors import ConfigError, DataError, ElectraError, did_you_mean
from electra_trainer.experiments import experiment_file as on_disk
from electra_trainer.experiments.experiment_file import Declared, DeclaredTask
from electra_trainer.experiments.runner import Cells, Keep
from electra_trainer.experiments.summary import Summary, summarize, write_summary
from electra_trainer.files.processes import cores
from electra_trainer.finetuning.recipe import Recipe, deviations, recipe
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.finetuning.texts.tasks import with_pooling
from electra_trainer.pretrained.source import Source, load_source
from electra_trainer.runs.signals import StopRequest
from electra_trainer.train.device import choose_device, choose_precision

if TYPE_CHECKING:
    import torch

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is asked for."""

    model: str
    """A run folder, an exported folder or a Hub name: see source.py."""
    tasks: tuple[TaskSource, ...]
    recipe: str = "paper"
    """`paper` or `released`: see recipe.py."""
    changes: Mapping[str, object] = field(default_factory=dict)
    """Fields of the recipe that are set otherwise, in all tasks."""
    seeds: tuple[int, ...] = (1,)
    floors: bool = False
    """Measure the floors too: the untrained encoder with the same seeds, majority, bag of words."""
    keep: Keep = "none"
    """Whose weights stay on disk: no run's, those of the best of each task (by its main dev score), or every run's."""

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if not names or not self.seeds:
            raise ConfigError("expected at least one task and one seed, for example --seeds 3.")
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"task {name}: stands twice.")
            if not _NAME.fullmatch(name):
                raise ConfigError(f"task {name!r}: expected a name of letters, digits, '.', '_' and '-'.")
        for seed in self.seeds:
            if seed < 0 or self.seeds.count(seed) > 1:
                raise ConfigError(f"--seeds: {seed}: expected numbers of at least 0, each of them once.")
        known = [one.name for one in fields(Recipe)]
        for name in self.changes:
            if name not in known:
                raise ConfigError(f"recipe: {name}: unknown.{did_you_mean(name, known)} Known: {', '.join(known)}.")
        if self.keep not in ("none", "best", "all"):
            raise ConfigError(f"--keep {self.keep}: expected none, best or all.")


def run_plan(
    plan: Plan, *, out: Path, device: str = "auto", parallel: int | None = None, quiet: bool = False
) -> Summary:
    """Run what is not yet done of a plan, and sum up all that is there.

    Precision is settled when a task begins, stands in its recipe, and is kept where none is named; another one is refused.
    The number of threads that a run computes with is settled when the experiment begins, stands in experiment.json, and is used
    ever after: the order of sums depends on it, so another number would be other bits. It is OMP_NUM_THREADS where that is set,
    else the cores divided by the runs that are asked for then: one each where there are many runs, all of them for a single one.
    It does not depend on `parallel`, which changes no bit and may differ from one command to the next.

    Args:
        out: the experiment's folder: a new one, or one to go on with or extend (more seeds or tasks, or the floors).
        device: auto, cpu, cuda (all GPUs) or cuda:N. An experiment stays on the device that it began on.
        parallel: runs at once. Default: as many as the cores have room for, or one a GPU. One is done in this process, more in
            processes of their own.

    Raises:
        ConfigError: another experiment is in `out`, or a setting that cannot be. Interrupted: stopped by a signal, all runs saved;
        the same call goes on. ElectraError: as the tasks and runs, with the name of the run; what is done stays.
    """
    if parallel is not None and parallel < 1:
        raise ConfigError(f"--parallel {parallel}: expected at least 1.")
    with on_disk.writing(out) as lock, StopRequest(at_once=True) as request:
        declared, source = _declare(plan, out, device=device)
        on_disk.write(out, declared)
        asked = replace(
            declared,
            seeds=tuple(sorted(plan.seeds)),
            floors=plan.floors,
            tasks={task.name: declared.tasks[task.name] for task in plan.tasks},
        )
        sources = {task.name: task for task in plan.tasks}
        cells = Cells(out, declared=declared, asked=asked, sources=sources, keep=plan.keep, lock=lock)
        try:
            cells.run(source, request, parallel=parallel, quiet=quiet)
        except (ElectraError, KeyboardInterrupt):
            request.at_once = False
            write_summary(out, summarize(out))
            raise
        request.at_once = False
        summary = summarize(out)
        write_summary(out, summary)
    return summary


def _declare(plan: Plan, out: Path, *, device: str) -> tuple[Declared, Source]:
    """The experiment as it is on disk, extended by the plan; every file is read once, so that what is wrong is said at once."""
    old = on_disk.read(out) if on_disk.exists(out) else None
    where = choose_device(old.device if old is not None and device == "auto" else device)
    source = load_source(plan.model)
    tasks = {}
    for task in plan.tasks:
        own = {"epochs": task.epochs, "max_length": getattr(task, "max_length", None)}
        changes = own | {name: value for name, value in plan.changes.items() if value is not None}
        changes["precision"] = _precision(changes.get("precision"), task.name, where, old=old)
        asked = recipe(plan.recipe, hidden_size=source.model.hidden_size, **changes)  # type: ignore[arg-type]
        base = recipe(plan.recipe, hidden_size=source.model.hidden_size, **own)  # type: ignore[arg-type]
        tasks[task.name] = _describe(task.load(), asked, base, longest=source.length)
    runs = len(tasks) * len(plan.seeds) * (2 if plan.floors else 1)
    new = Declared(
        model=plan.model,
        model_sha256=source.sha256,
        recipe=plan.recipe,
        device=str(where),
        threads=_threads(runs) if old is None else old.threads,
        seeds=tuple(sorted(plan.seeds)),
        floors=plan.floors,
        tasks=tasks,
    )
    return (new if old is None else on_disk.extend(old, new, out=out)), source


def _precision(asked: object, task: str, device: "torch.device", *, old: Declared | None) -> object:
    """What is asked for; else what the task, or the experiment, began with; else what the device is faster with."""
    if asked in (None, "auto"):
        if old is not None:
            return old.tasks.get(task, next(iter(old.tasks.values()))).recipe["precision"]
        return choose_precision("auto", device)
    return asked


def _describe(data: TaskData, asked: Recipe, base: Recipe, *, longest: int) -> DeclaredTask:
    if not data.dev:
        raise DataError(f"{data.task.name}: has no examples with answers to be scored on. Give it a dev set.")
    data, asked = with_pooling(data, asked)
    settled, notes = asked.fitted(longest), data.notes
    if settled != asked:
        notes = (
            *notes,
            f"rows have up to {longest} tokens, the longest that the encoder was trained on, and not {asked.max_length} (--max-length).",
        )
    return DeclaredTask(
        task=data.task.described(),
        data_sha256=data.sha256,
        recipe=asdict(settled),
        changed=deviations(settled, base.fitted(longest)),
        metric=data.task.metric,
        dev=tuple(data.dev),
        train_rows=len(data.train),
        notes=notes,
    )


def _threads(runs: int) -> int:
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // runs)
