"""Fine-tuning experiments: tasks and their baselines as rows, every run a cell that can be stopped and resumed.

`run_plan` hands a `FineTuning` to the engine, which does the cells here or in several processes; then `export_best`
exports the best run, with the scores of all its seeds, and writes its predictions.
"""

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

import torch

from electra_trainer import errors
from electra_trainer.errors import ConfigError
from electra_trainer.experiments import engine, sweep
from electra_trainer.experiments.cell import PLUS, Cell, Declared, Result, Row, environment_of, joined, write_result
from electra_trainer.experiments.engine import Event, Reports
from electra_trainer.experiments.summary import Summary, summarize
from electra_trainer.files import durable, processes
from electra_trainer.finetuning import model_folder, recipe, run
from electra_trainer.finetuning.examples import Prediction, read_predictions
from electra_trainer.finetuning.task import TaskData, TaskSource, findings_of
from electra_trainer.finetuning.texts.tasks import with_pooling
from electra_trainer.pretrained.source import Source, load_source, untrained
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import is_run, read, run_and_step, to_dict
from electra_trainer.train.device import choose_device, choose_precision

UNTRAINED = "untrained"
"""Name of the baseline that is the same encoder with fresh weights."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Request for an experiment."""

    model: str
    """A run folder, an exported folder or a Hub name: see source.py."""
    tasks: tuple[TaskSource, ...]
    recipe: str = "paper"
    """`paper` or `released`: see recipe.py."""
    changes: Mapping[str, object] = field(default_factory=dict)
    """Overrides of the recipe, in all rows."""
    chosen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Overrides of single rows, `TASK` or `TASK+untrained`; see search.py."""
    trials: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    """Overrides that a search tries, by row: there are rows for these alone."""
    seeds: tuple[int, ...] = (1,)
    baselines: bool = False
    """Measure the baselines too: the untrained encoder with the same seeds, majority, bag of words."""
    keep_weights: bool = False
    """Whether weights stay on disk; `export_best` leaves those of the best run."""

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


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a row: everything that a score depends on, but the encoder, the device and the threads."""

    source: str
    """Name of the task's source."""
    task: dict[str, Any]
    data_sha256: str
    recipe: recipe.Recipe
    dev: tuple[str, ...]
    """Names of the splits with answers, the main one first."""
    train_rows: int
    baseline: str | None = None
    """`untrained`, or the name of a baseline without an encoder; None: the encoder itself."""

    @classmethod
    def of(cls, row: Row) -> Self:
        """Settings of a row of experiment.json; DataError: they are damaged."""
        return read(cls, row.settings, where="experiment.json", error=errors.DataError, complete=True)


def run_plan(
    plan: Plan,
    *,
    out: Path,
    device: str = "auto",
    parallel: int | None = None,
    shard: tuple[int, int] = (1, 1),
    quiet: bool = False,
    data: TaskData | None = None,
) -> Summary:
    """Run what is not yet done of a plan, and sum up all that is there.

    Precision is settled when a task begins, is part of its recipe, and is kept where none is named; another one is
    refused. The number of threads that a run computes with is settled when the experiment begins: the order of sums
    depends on it, so another number would be other bits. It is OMP_NUM_THREADS where that is set, else the cores
    divided by the runs that are asked for then. It does not depend on `parallel`, which changes no bit and may differ
    from one command to the next.

    Args:
        out: the experiment's folder: a new one, or one to resume or extend (more seeds or tasks, or the baselines).
        device: auto, cpu, cuda (all GPUs) or cuda:N. An experiment stays on the device that it began on.
        parallel, shard: as in `run_experiment`.
        data: the data of the only task, where they are loaded already.

    Raises:
        ConfigError, Interrupted, ElectraError: as `run_experiment`; as the tasks and runs.
    """
    tuning = FineTuning(plan, device=device, data=data, quiet=quiet)
    return engine.run_experiment(tuning, out, device=device, parallel=parallel, shard=shard, quiet=quiet)


class FineTuning(engine.Work):
    """The work of a plan. Encoder and task stay loaded between cells."""

    verb = "finetune"

    def __init__(self, plan: Plan, *, device: str, data: TaskData | None = None, quiet: bool = False) -> None:
        self._plan, self._device, self._quiet = plan, device, quiet
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
        rows = {key: row for task in plan.tasks for key, row in self._rows(task, source, where, old).items()}
        runs = sum(len(plan.seeds) for row in rows.values() if row.seeded)
        return Declared(
            verb=self.verb,
            facts={
                "model_sha256": source.sha256,
                "recipe": plan.recipe,
                "device": str(where),
                "threads": _threads(runs) if old is None else old.facts["threads"],
            },
            rows=rows,
            seeds=tuple(sorted(plan.seeds)),
            about={"model": plan.model, "encoder": _encoder_facts(plan.model)},
        )

    def _rows(self, task: TaskSource, source: Source, where: torch.device, old: Declared | None) -> dict[str, Row]:
        """A task's own row and those of its baselines; of a search those of its trials."""
        plan, data = self._plan, self._load(task.name)
        if not data.dev:
            raise errors.DataError(f"{data.task.name}: has no examples with answers to score on. Give it a dev set.")
        fresh = f"{task.name}{PLUS}{UNTRAINED}"
        rows: dict[str, Row] = {}
        for key in (task.name, fresh):
            baseline = UNTRAINED if key == fresh else None
            for trial in plan.trials.get(key, ()):
                row = self._row(task, data, source, self._recipe(task, source, where, old, trial), baseline)
                rows[sweep.named(key, trial)] = row
        if plan.trials:
            return rows
        own = self._recipe(task, source, where, old, plan.chosen.get(task.name, {}))
        main = self._row(task, data, source, own, None)
        findings = findings_of(
            data, source.text(own.fitted(source.length).max_length), reader=plan.model, longest=source.length
        )
        for finding in () if self._quiet else findings:
            errors.tell(f"{task.name}: {finding}")
        rows[task.name] = replace(main, notes=(*main.notes, *findings))
        if not plan.baselines:
            return rows
        other = self._recipe(task, source, where, old, plan.chosen.get(fresh, plan.chosen.get(task.name, {})))
        against: dict[str, Any] = {"reference": task.name, "metrics": main.metrics}
        rows[fresh] = replace(
            self._row(task, data, source, other, UNTRAINED), baseline="the untrained encoder", notes=(), **against
        )
        for name, one in with_pooling(data, own)[0].task.baselines(data.train).items():
            settings = replace(Settings.of(main), baseline=name)
            notes = (one.note,) if one.note else ()
            rows[f"{task.name}{PLUS}{name}"] = Row(
                settings=asdict(settings), seeded=False, baseline=one.title, notes=notes, **against
            )
        return rows

    def _recipe(
        self, task: TaskSource, source: Source, where: torch.device, old: Declared | None, chosen: Mapping[str, float]
    ) -> recipe.Recipe:
        """Precision is as asked for; else as the task, or the experiment, began."""
        own: dict[str, Any] = {"epochs": task.epochs, "max_length": getattr(task, "max_length", None)}
        changes: dict[str, Any] = own | dict(chosen) | self._plan.given
        if changes.get("precision") in (None, "auto"):
            begun = old and old.rows.get(task.name, next(iter(old.rows.values())))
            changes["precision"] = begun.settings["recipe"]["precision"] if begun else choose_precision("auto", where)
        return recipe.recipe(self._plan.recipe, hidden_size=source.model.hidden_size, **changes)

    def _row(self, task: TaskSource, data: TaskData, source: Source, asked: recipe.Recipe, baseline: str | None) -> Row:
        data, asked = with_pooling(data, asked)
        settled = asked.fitted(source.length)
        chosen = self._plan.chosen.get(task.name, {})
        notes = data.notes_for(self._plan.given.keys() | chosen.keys())
        if settled != asked:
            notes.append(
                f"rows have up to {source.length} tokens, the longest that the encoder was trained on, and not "
                f"{asked.max_length} (--max-length)."
            )
        if chosen:
            first = ", ".join(f"{name.replace('_', '-')} {value:g}" for name, value in chosen.items())
            notes.append(f"{task.name}: searched on training rows: {first}.")
        named = recipe.recipe(self._plan.recipe, hidden_size=source.model.hidden_size, epochs=task.epochs)
        base = replace(named, max_length=getattr(task, "max_length", None) or named.max_length).fitted(source.length)
        if changed := recipe.deviations(settled, base):
            notes.append(f"Recipe `{self._plan.recipe}` with {changed}.")
        settings = Settings(
            source=task.name,
            task=data.task.described(),
            data_sha256=data.sha256,
            recipe=settled,
            dev=tuple(data.dev),
            train_rows=len(data.train),
            baseline=baseline,
        )
        metric = f"{next(iter(data.dev))}/{data.task.metric}"
        return Row(settings=asdict(settings), metrics=(metric,), notes=tuple(notes))

    def identity(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything a score depends on. Pooling is taken from the task, not from the recipe."""
        return {**settings, "recipe": {**settings["recipe"], "pooling": None}}

    def todo(self, cells: Sequence[Cell], declared: Declared) -> list[Cell]:
        """Cells that are not done, task by task."""
        order = list(self._tasks)
        sources = {cell: order.index(Settings.of(declared.rows[cell.key]).source) for cell in cells}
        return sorted((cell for cell in cells if not cell.is_done), key=sources.__getitem__)

    def units(self, cell: Cell, declared: Declared) -> float:
        """Training rows (for the progress bar). Baselines without an encoder cost nothing by comparison."""
        settings = Settings.of(declared.rows[cell.key])
        return settings.train_rows * settings.recipe.epochs if declared.rows[cell.key].seeded else 0.0

    def do(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        """See `Work`."""
        settings = Settings.of(declared.rows[cell.key])
        data = self._load(settings.source)
        if data.sha256 != settings.data_sha256:
            raise ConfigError(f"{cell.key}: its data changed after the experiment began. Choose another --out.")
        if settings.baseline not in (None, UNTRAINED):
            durable.make_folder(cell.folder)
            task = with_pooling(data, settings.recipe)[0].task
            predict = task.baselines(data.train)[settings.baseline].predict
            scores = {split: task.score(rows, predict(rows)) for split, rows in data.dev.items()}
            write_result(cell.folder, Result(key=cell.key, seed=cell.seed, scores=joined(scores)))
            return
        source = self._encoder()
        if source.sha256 != declared.facts["model_sha256"]:
            raise ConfigError(
                f"{self._plan.model}: its weights changed after the experiment began. Give a folder that stays as it "
                "is, such as an export, and another --out."
            )
        if fresh := settings.baseline == UNTRAINED:
            source = untrained(source, seed=cell.seed)
        job = run.Job(source=source, data=data, recipe=settings.recipe, seed=cell.seed, key=cell.key)
        try:
            run.finetune_run(
                job,
                out=cell.folder,
                device=device,
                keep_weights=self._plan.keep_weights and not fresh,
                display=lambda steps: _Relay(steps, reports, lines=not fresh),
                stop=reports.stop,
            )
        except errors.Diverged as error:
            write_result(cell.folder, Result(key=cell.key, seed=cell.seed, failed=str(error)))
            shutil.rmtree(RunFolder(cell.folder).checkpoints, ignore_errors=True)
            reports.say(f"FAILED: {error}", style="bold red")
        except RuntimeError as error:
            if not errors.out_of_memory(error):
                raise
            raise ConfigError(
                "not enough memory. Do fewer runs at once with --parallel 1, or read fewer rows at once with "
                "--micro-batch 8 or --max-length 64."
            ) from None

    def ended(self, cell: Cell, declared: Declared) -> tuple[str, float] | None:
        """The main score."""
        result, (metric, *_) = cell.result(), declared.rows[cell.key].metrics
        return (metric.partition("/")[2], result.scores[metric]) if result and metric in result.scores else None

    def alone(self) -> str | None:
        """A class in the script itself cannot be imported by other processes."""
        for name, task in self._tasks.items():
            its: type = getattr(task, "wrapped", type(task))
            if its.__module__ == "__main__" or "<locals>" in its.__qualname__:
                return (
                    f"{name}: its class is in the script itself, where other processes cannot import it: one run at a "
                    "time"
                )
        return None

    def _encoder(self) -> Source:
        if self._source is None:
            self._source = load_source(self._plan.model)
        return self._source

    def _load(self, task: str) -> TaskData:
        if self._loaded is None or self._loaded[0] != task:
            self._loaded = None  # before the next is read: they need not both fit
            self._loaded = task, self._tasks[task].load()
        return self._loaded[1]


def _threads(runs: int) -> int:
    return engine.threads_given() or max(1, processes.cores() // runs)


def _encoder_facts(model: str) -> dict[str, Any] | None:
    """The pre-training of an encoder, up to the checkpoint that is used, for tables and figures; None where its folder
    does not say.
    """
    if not is_run(model):
        return None
    at, step = run_and_step(model)
    config = to_dict(RunFolder(at).config())
    return {"config": config, **engine.run_facts(at, step=step), "environment": environment_of(at)}


class _Relay:
    """Passes on the progress of a run; while it is entered there is something to save."""

    def __init__(self, steps: int, reports: Reports, *, lines: bool) -> None:
        self._steps, self._reports, self._first, self._lines = steps, reports, True, lines

    def __enter__(self) -> Self:
        self._reports.saving(True)
        return self

    def __exit__(self, *error: object) -> None:
        self._reports.saving(False)

    def say(self, line: str, *, style: str | None = None) -> None:
        if self._lines:  # fresh weights may collapse: the run has its log
            self._reports.say(line, style=style)

    warn = say

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        if self._first:  # every tenth step is reported: a later first one is of a run that resumes
            self._first = False
            self._reports.send(Event(kind="progress", share=done / self._steps if done > 10 else 0.0))
        self._reports.send(Event(kind="progress", share=done / self._steps))


@dataclass(frozen=True, kw_only=True)
class BestExport:
    """The exported best run of a task."""

    model: Path
    """Folder that transformers loads."""
    predictions: Path | None
    """For the unlabelled file, if there was one."""
    confusion: Counter[tuple[str, str]]
    """(true, predicted) label -> count, of the best run on the main development split."""


def export_best(source: TaskSource, data: TaskData, *, model: str, out: Path) -> BestExport:
    """Write OUT/model from the best run of a task, and delete the weights of the others; for an unlabelled file also
    OUT/predictions.csv (predictions.conll for tagging).

    Args:
        source, data: the task and its data.
        model: the encoder, where it is now.
        out: the experiment's folder.

    Raises:
        ElectraError: as `export_finetuned`.
    """
    summary = summarize(out)
    best = summary.best(source.name).folder
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for name, by_seed in summary.values[source.name].items():
        split, slash, metric = name.partition("/")
        if slash:
            scores.setdefault(split, {})[metric] = by_seed
    pair = getattr(data.train[0], "pair", None) is not None
    facts = model_folder.Facts(scores=scores, notes=data.notes, pair=pair)
    folder = model_folder.export_finetuned(
        best, out=out / "model", facts=facts, columns=data.columns, model=model, own=[type(data.task)]
    )
    for other in (best.parent / f"seed-{seed}" / "weights" for seed in summary.results[source.name]):
        if other.parent != best:
            shutil.rmtree(other, ignore_errors=True)
    predictions = None
    if data.test and data.written is not None:
        name, write = data.written
        predictions = out / name
        durable.replace_durably(predictions, write(_predictions(best, *next(iter(data.test.items())))).encode())
    split, examples = next(iter(data.dev.items()))
    return BestExport(
        model=folder, predictions=predictions, confusion=confusions(examples, _predictions(best, split, examples))
    )


def _predictions(best: Path, split: str, examples: Sequence[Any]) -> list[Prediction]:
    again = f"Delete {best} and repeat the command: that run is done again."
    return read_predictions(best / "predictions" / f"{split}.jsonl", examples, remedy=again)


def confusions(examples: Sequence[Any], predictions: Sequence[Prediction]) -> Counter[tuple[str, str]]:
    """(true, predicted) label -> count, of texts or of words; empty for tasks without labels."""
    pairs: list[tuple[str | None, str]] = []
    for example, prediction in zip(examples, predictions, strict=True):
        if "label" in prediction:
            pairs.append((example.label, prediction["label"]))
        elif "tags" in prediction:
            pairs += zip(example.labels, prediction["tags"], strict=True)
    return Counter((truth, content) for truth, content in pairs if truth is not None)
