"""Fine-tuning experiments: several tasks, each with several seeds, every run a cell that can be stopped and resumed.

`run_plan` hands a `FineTuning` to the engine of experiments/runner.py, which does the cells here or in several
processes; then `export_best` exports the best run, with the scores of all its seeds, and writes what it predicted.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import torch

from electra_trainer import errors
from electra_trainer.errors import ConfigError
from electra_trainer.experiments import runner
from electra_trainer.experiments.folder import Cell, Declared, Event, Of, Order, Reports
from electra_trainer.experiments.results import Result, environment_of, read_result, write_result
from electra_trainer.files import durable, processes
from electra_trainer.finetuning import confusion, model_folder, recipe, run, task_summary
from electra_trainer.finetuning.examples import Prediction, read_predictions
from electra_trainer.finetuning.task import TaskData, TaskSource, findings_of, measure_baselines
from electra_trainer.finetuning.texts.tasks import with_pooling
from electra_trainer.pretrained.source import Source, load_source, untrained
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import is_run, run_and_step, to_dict
from electra_trainer.train.device import choose_device, choose_precision

Keep = Literal["none", "best", "all"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DROPPED = ".weights-dropped"


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
    chosen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same of single tasks, by name; see search.py."""
    chosen_untrained: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The same for the untrained encoder, where that has a recipe of its own."""
    grid: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Values that `search` tries, by field of the recipe; empty: its own. See search.py."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What is to be said of single tasks, by name."""
    fresh: bool = False
    """The encoder begins with fresh weights."""
    seeds: tuple[int, ...] = (1,)
    floors: bool = False
    """Measure the baselines too: the untrained encoder with the same seeds, majority, bag of words."""
    keep: Keep = "none"
    """Whose weights stay on disk: no run's, those of the best of each task (by its main dev score), or every run's."""

    @property
    def given(self) -> dict[str, Any]:
        """The changes that are not None."""
        return {name: value for name, value in self.changes.items() if value is not None}

    def __post_init__(self) -> None:
        names, known = [task.name for task in self.tasks], [one.name for one in fields(recipe.Recipe)]
        if not names or not self.seeds:
            raise ConfigError("expected at least one task and one seed, for example --seeds 3.")
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"task {name}: is given twice.")
            if not _NAME.fullmatch(name):
                raise ConfigError(f"task {name!r}: expected a name of letters, digits, '.', '_' and '-'.")
        for seed in self.seeds:
            if seed < 0 or self.seeds.count(seed) > 1:
                raise ConfigError(f"--seeds: {seed}: expected numbers of at least 0, each of them once.")
        for name in self.changes:
            if name not in known:
                near = errors.did_you_mean(name, known)
                raise ConfigError(f"recipe: {name}: unknown.{near} Known: {', '.join(known)}.")
        if self.keep not in ("none", "best", "all"):
            raise ConfigError(f"--keep {self.keep}: expected none, best or all.")


def run_plan(
    plan: Plan,
    *,
    out: Path,
    device: str = "auto",
    parallel: int | None = None,
    shard: tuple[int, int] = (1, 1),
    quiet: bool = False,
    data: TaskData | None = None,
) -> task_summary.Summary:
    """Run what is not yet done of a plan, and sum up all that is there.

    Precision is settled when a task begins, is part of its recipe, and is kept where none is named; another one is
    refused. The number of threads that a run computes with is settled when the experiment begins, is in
    experiment.json, and is used
    ever after: the order of sums depends on it, so another number would be other bits. It is OMP_NUM_THREADS where that
    is set,
    else the cores divided by the runs that are asked for then: one each where there are many runs, all of them for a
    single one.
    It does not depend on `parallel`, which changes no bit and may differ from one command to the next.

    Args:
        out: the experiment's folder: a new one, or one to resume or extend (more seeds or tasks, or the baselines).
        device: auto, cpu, cuda (all GPUs) or cuda:N. An experiment stays on the device that it began on.
        parallel, shard: as in `run_experiment`.
        data: what the only task loads, where it is loaded already.

    Raises:
        ConfigError, Interrupted, ElectraError: as `run_experiment`; as the tasks and runs.
    """
    tuning = FineTuning(plan, device=device, data=data, sharded=shard[1] > 1, quiet=quiet)
    runner.run_experiment(tuning, out, device=device, parallel=parallel, shard=shard, quiet=quiet)
    return task_summary.summarize(out)


class FineTuning:
    """The work of a plan: an encoder fine-tuned, an untrained one, or words counted. Encoder and task stay loaded
    between cells.
    """

    of: Of = "finetune"
    own_display = False

    def __init__(self, plan: Plan, *, device: str, data: TaskData | None, sharded: bool, quiet: bool = False) -> None:
        self._plan, self._device, self._sharded, self._quiet = plan, device, sharded, quiet
        self._tasks = {task.name: task for task in plan.tasks}
        self._source: Source | None = None
        self._loaded: tuple[str, TaskData] | None = None if data is None else (plan.tasks[0].name, data)

    def __getstate__(self) -> dict[str, Any]:
        """Another process loads its own copy."""
        return {**vars(self), "_source": None, "_loaded": None}

    def declare(self, old: Declared | None) -> Declared:
        """See `Work`."""
        plan = self._plan
        where = choose_device(old.facts["device"] if old is not None and self._device == "auto" else self._device)
        source = self._encoder()
        rows = {task.name: self._row(task, source, where, old) for task in plan.tasks}
        runs = len(rows) * len(plan.seeds) * (2 if plan.floors else 1)
        return Declared(
            of=self.of,
            facts={
                "model_sha256": source.sha256,
                "recipe": plan.recipe,
                "device": str(where),
                "threads": _threads(runs) if old is None else old.facts["threads"],
            },
            rows=rows,
            seeds=tuple(sorted(plan.seeds)),
            parts={"floors": self._floors(rows, old)} if plan.floors else {},
            about={"model": plan.model, "encoder": _encoder_facts(plan.model)},
        )

    def _row(self, task: TaskSource, source: Source, where: torch.device, old: Declared | None) -> dict[str, Any]:
        """What is known of a task before anything is trained. Precision is as asked for; else as the task, or the
        experiment, began.
        """
        own: dict[str, Any] = {"epochs": task.epochs, "max_length": getattr(task, "max_length", None)}
        changes: dict[str, Any] = own | dict(self._plan.chosen.get(task.name, {})) | self._plan.given
        if changes.get("precision") in (None, "auto"):
            begun = old and old.rows.get(task.name, next(iter(old.rows.values())))
            changes["precision"] = begun["recipe"]["precision"] if begun else choose_precision("auto", where)
        named, width = self._plan.recipe, source.model.hidden_size
        asked = recipe.recipe(named, hidden_size=width, **changes)
        base = recipe.recipe(named, hidden_size=width, **own)
        data = self._load(task.name)
        if not data.dev:
            raise errors.DataError(f"{data.task.name}: has no examples with answers to score on. Give it a dev set.")
        data, asked = with_pooling(data, asked)
        given = self._plan.given.keys() | self._plan.chosen.get(task.name, {}).keys()
        settled, notes = asked.fitted(source.length), data.notes_for(given)
        if settled != asked:
            notes.append(
                f"rows have up to {source.length} tokens, the longest that the encoder was trained on, and not "
                f"{asked.max_length} (--max-length)."
            )
        findings = findings_of(data, source.text(settled.max_length), reader=self._plan.model, longest=source.length)
        notes += findings
        for finding in () if self._quiet else findings:
            errors.tell(f"{task.name}: {finding}")
        if task.name in self._plan.notes:
            notes.append(f"{task.name}: {self._plan.notes[task.name]}")
        return {
            "task": data.task.described(),
            "data_sha256": data.sha256,
            "recipe": asdict(settled),
            "metric": data.task.metric,
            "dev": list(data.dev),
            "train_rows": len(data.train),
            "notes": notes,
            "changed": recipe.deviations(settled, base.fitted(source.length)),
            "baselines": {name: one.title for name, one in data.task.baselines(data.train).items()}
            if data.train
            else {},
        }

    def _floors(self, rows: Mapping[str, Mapping[str, Any]], old: Declared | None) -> dict[str, Any]:
        """What experiment.json says of the baselines: recipes of the untrained encoder that are its own."""
        said = old.parts.get("floors", {}).get("recipes", {}) if old is not None else {}
        mine = {
            name: rows[name]["recipe"] | {"epochs": self._plan.given.get("epochs", self._tasks[name].epochs)} | own
            for name, own in self._plan.chosen_untrained.items()
        }
        return {"recipes": mine | said} if mine or said else {}

    def identity(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything a score depends on. Pooling is taken from the task, not from the recipe."""
        return {
            **row,
            "recipe": recipe.completed(row["recipe"]) | {"pooling": None},
            "notes": [],
            "changed": {},
            "baselines": {},
        }

    def orders(self, cells: Sequence[Cell], declared: Declared) -> list[Order]:
        """Cells that are not done; when all are, the best of each task if its weights are to be kept and were not."""
        self._drop_weights(cells, declared)
        keep = self._plan.keep
        orders = [Order(cell=cell, keep_weights=cell.kind == "encoder" and keep != "none") for cell in cells]
        missing = [order for order in orders if not _is_done(order.cell, weights=order.keep_weights and keep == "all")]
        if missing or keep != "best" or self._sharded:
            return missing
        best = [task_summary.best_cell(cell, declared) for cell in cells]
        return [
            Order(cell=cell, keep_weights=True)
            for cell in dict.fromkeys(best)
            if cell and not _is_done(cell, weights=True)
        ]

    def units(self, cell: Cell, declared: Declared) -> float:
        """Rows to be trained on; counting words is as nothing."""
        row = declared.rows[cell.key]
        epochs = float(task_summary.recipe_of(cell, declared)["epochs"])
        return 0.0 if cell.kind == "floors" else row["train_rows"] * epochs

    def do(self, order: Order, declared: Declared, *, device: str, reports: Reports) -> None:
        """See `Work`."""
        cell, data = order.cell, self._load(order.cell.key)
        settings = recipe.Recipe(**task_summary.recipe_of(cell, declared))
        if data.sha256 != declared.rows[cell.key]["data_sha256"]:
            raise ConfigError(f"{cell.key}: its data changed after the experiment began. Choose another --out.")
        if cell.kind == "floors":
            cell.folder.mkdir(parents=True, exist_ok=True)
            found = measure_baselines(with_pooling(data, settings)[0])
            durable.replace_durably(cell.result, (json.dumps(found, indent=1) + "\n").encode())
            return
        source = self._encoder()
        if source.sha256 != declared.facts["model_sha256"]:
            raise ConfigError(
                f"{self._plan.model}: its weights changed after the experiment began. Give a folder that stays as it "
                "is, "
                "such as an export, and another --out."
            )
        trained = cell.kind == "encoder" and not self._plan.fresh
        encoder = source if trained else untrained(source, seed=cell.seed)
        job = run.Job(source=encoder, data=data, recipe=settings, seed=cell.seed)
        try:
            run.finetune_run(
                job,
                out=cell.folder,
                device=device,
                keep_weights=order.keep_weights,
                display=lambda steps: _Relay(steps, reports),
                stop=reports.stop,
            )
        except errors.Diverged as error:
            failed = Result(task=cell.key, seed=cell.seed, steps=0, scores={}, failed=str(error), rows=len(data.train))
            write_result(RunFolder(cell.folder), failed)
            reports.tell(Event(kind="said", text=f"FAILED: {error}", style="bold red"))
        except RuntimeError as error:
            if not errors.out_of_memory(error):
                raise
            raise ConfigError(
                "not enough memory. Do fewer runs at once with --parallel 1, or read fewer rows at once with "
                "--micro-batch 8 or "
                "--max-length 64."
            ) from None

    def ended(self, cell: Cell, declared: Declared) -> tuple[str, float] | None:
        """Drop weights that are not the best any more; the main score."""
        self._drop_weights([cell], declared)
        row = declared.rows[cell.key]
        scores = {} if cell.kind == "floors" else read_result(cell.folder).scores
        return (row["metric"], scores[row["dev"][0]][row["metric"]]) if scores else None

    def alone(self) -> str | None:
        """A class in the script itself cannot be imported by other processes."""
        for name, task in self._tasks.items():
            its: type = getattr(task, "wrapped", type(task))
            if its.__module__ == "__main__" or "<locals>" in its.__qualname__:
                return (
                    f"{name}: its class is in the script itself, where other processes cannot import it: one run "
                    "at a time"
                )
        return None

    def sum_up(self, out: Path) -> object:
        """See `Work`."""
        return task_summary.write_summary(out)

    def _drop_weights(self, cells: Sequence[Cell], declared: Declared) -> None:
        """Delete all weights but the best run's once those are saved. Rename first, so that a half-deleted folder is
        never taken for weights.
        """
        if self._plan.keep != "best":
            return
        for best in dict.fromkeys(task_summary.best_cell(cell, declared) for cell in cells):
            if best is None or not _is_done(best, weights=True):
                continue
            for seed in task_summary.results_of(best.root, best.key, declared, "encoder"):
                folder = replace(best, seed=seed).folder
                shutil.rmtree(folder / _DROPPED, ignore_errors=True)
                if seed != best.seed and (folder / "weights").is_dir():
                    with suppress(FileNotFoundError):  # another machine was faster
                        (folder / "weights").rename(folder / _DROPPED)
                    shutil.rmtree(folder / _DROPPED, ignore_errors=True)

    def _encoder(self) -> Source:
        if self._source is None:
            self._source = load_source(self._plan.model)
        return self._source

    def _load(self, task: str) -> TaskData:
        if self._loaded is None or self._loaded[0] != task:
            self._loaded = None  # before the next is read: they need not both fit
            self._loaded = task, self._tasks[task].load()
        return self._loaded[1]


def _is_done(cell: Cell, *, weights: bool) -> bool:
    return cell.result.is_file() if cell.kind == "floors" else run.is_finished(cell.folder, keep_weights=weights)


def _threads(runs: int) -> int:
    return runner.threads_given() or max(1, processes.cores() // runs)


def _encoder_facts(model: str) -> dict[str, Any] | None:
    """How an encoder was pre-trained, up to the checkpoint that is used, for tables and figures; None where its folder
    does not say.
    """
    if not is_run(model):
        return None
    at, step = run_and_step(model)
    config = to_dict(RunFolder(at).config())
    return {"config": config, **runner.run_facts(at, step=step), "environment": environment_of(at)}


class _Relay:
    """Passes on how a run goes; while it is entered there is something to save."""

    def __init__(self, steps: int, reports: Reports) -> None:
        self._steps, self._reports, self._first = steps, reports, True

    def __enter__(self) -> Self:
        self._reports.saving(True)
        return self

    def __exit__(self, *error: object) -> None:
        self._reports.saving(False)

    def say(self, line: str, *, style: str | None = None) -> None:
        self._reports.tell(Event(kind="said", text=line, style=style))

    warn = say

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        if self._first:  # every tenth step is reported: a later first one is of a run that resumes
            self._first = False
            self._reports.tell(Event(kind="progress", share=done / self._steps if done > 10 else 0.0))
        self._reports.tell(Event(kind="progress", share=done / self._steps))


@dataclass(frozen=True, kw_only=True)
class BestExport:
    """The results of an experiment for its user."""

    model: Path
    """Folder that transformers loads."""
    predictions: Path | None
    """For the unlabelled file, if there was one."""
    confusion: Counter[tuple[str, str]]
    """(true, predicted) label -> count, of the best run on the main development split."""


def export_best(source: TaskSource, data: TaskData, *, model: str, out: Path) -> BestExport:
    """Write OUT/model from the best run of a task; for an unlabelled file also OUT/predictions.csv (predictions.conll
    for tagging).

    Args:
        source, data: the task and its data.
        model: the encoder, where it is now.
        out: the experiment's folder.

    Raises:
        ElectraError: as `export_finetuned`.
    """
    best = task_summary.best_run(out, source.name)
    found = task_summary.summarize(out).task(source.name).scores
    scores = {split: {name: one.by_seed for name, one in metrics.items()} for split, metrics in found.items()}
    pair = getattr(data.train[0], "pair", None) is not None
    facts = model_folder.Facts(scores=scores, notes=data.notes, pair=pair)
    folder = model_folder.export_finetuned(
        best, out=out / "model", facts=facts, columns=data.columns, model=model, own=[type(data.task)]
    )
    predictions = None
    if data.test and data.written is not None:
        name, write = data.written
        predictions = out / name
        durable.replace_durably(predictions, write(_predictions(best, *next(iter(data.test.items())))).encode())
    split, examples = next(iter(data.dev.items()))
    return BestExport(
        model=folder, predictions=predictions, confusion=confusion.counts(examples, _predictions(best, split, examples))
    )


def _predictions(best: Path, split: str, examples: Sequence[Any]) -> list[Prediction]:
    again = f"Delete {best} and repeat the command: that run is done again."
    return read_predictions(best / "predictions" / f"{split}.jsonl", examples, remedy=again)
