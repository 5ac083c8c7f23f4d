"""Fine-tuning experiments: tasks and their baselines as rows, every run a cell that can be stopped and resumed.

`run_plan` hands a `Plan` to the engine, which does the cells here or in several processes; then `export_best`
exports the best run, with the scores of all its seeds, and writes its predictions.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from electra_trainer import errors
from electra_trainer.errors import ConfigError, DataError
from electra_trainer.experiments import cell as cells
from electra_trainer.experiments import engine, sweep
from electra_trainer.experiments.cell import PLUS, Cell, Declared, DeclaredRow, Result
from electra_trainer.experiments.engine import Reports
from electra_trainer.experiments.summary import Summary
from electra_trainer.files import durable, processes
from electra_trainer.finetuning import labels_curve, model_folder, run
from electra_trainer.finetuning.model_folder import count_learned
from electra_trainer.finetuning.tuning import Tuning
from electra_trainer.pretrained.source import Source, load_source, untrained
from electra_trainer.randomness import drawn
from electra_trainer.runs.progress import Display
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.records import ADDED, is_run, read, run_and_step, to_dict
from electra_trainer.tasks import recipe
from electra_trainer.tasks.examples import Prediction
from electra_trainer.tasks.task import Baseline, OwnFiles, Task, TaskData, TaskSource, findings_of
from electra_trainer.train.device import choose_device, choose_precision

UNTRAINED = "untrained"
"""Name of the baseline that is the same encoder with fresh weights."""
FRESH = f"{PLUS}{UNTRAINED}"
"""End of its row."""
RIVAL = f"{PLUS}against"
"""End of the rows of the model that the encoder is compared with."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TF_IDF = 2.0
"""Epochs of an encoder that take as long as TF-IDF; measured on 300 rows in five folds: 12 in 42 s, TF-IDF in 8 s."""


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
    """Fewer than the task has: drawn by the seed."""
    baseline: str | None = None
    """`untrained`, or the name of a baseline without an encoder; None: the encoder itself."""
    rival: str | None = field(default=None, metadata=ADDED)
    """Hash of the weights of another model, where the row is that model's."""

    @classmethod
    def of(cls, row: DeclaredRow) -> Self:
        """Settings of a row of json. Raises DataError if they are damaged."""
        return read(cls, row.settings, where="json", error=DataError, complete=True)


@dataclass(frozen=True, kw_only=True)
class Plan(engine.Work):
    """An experiment as it was asked for. Encoder and task stay loaded between its cells."""

    verb = "finetune"
    shares_cores = True

    request: Tuning
    """Model, folder, recipe and its overrides, and what the encoder is compared with."""
    tasks: tuple[TaskSource, ...]
    seeds: tuple[int, ...] = (1,)
    labels: tuple[int, ...] = ()
    """Numbers of training rows, drawn anew by each seed: see labels_curve.py. Empty: one row of each task, on all."""
    chosen: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Overrides of single rows, `TASK` or `TASK+untrained`; see search.py."""
    trials: Mapping[str, Sequence[Mapping[str, float]]] = field(default_factory=dict)
    """Overrides that a search tries, by row: there are rows for these alone."""
    keep_weights: bool = False
    """Whether weights stay on disk; `export_best` leaves those of the best run."""
    shown: list[str] = field(default_factory=list, compare=False)
    """Findings that were printed."""
    sources: dict[str, Source] = field(default_factory=dict, compare=False, repr=False)
    """Encoders that are loaded, by name."""
    loaded: dict[str, TaskData] = field(default_factory=dict, compare=False, repr=False)
    """The task that is loaded, by name."""

    @property
    def recipe_name(self) -> str:
        """The recipe; the paper's where no task has another one under `auto`."""
        own = any(task.own_recipe for task in self.tasks)
        return "paper" if self.request.recipe == recipe.AUTO and not own else self.request.recipe

    @property
    def is_own(self) -> bool:
        """Whether its tasks are files of one's own."""
        return all(isinstance(task, OwnFiles) for task in self.tasks)

    def __post_init__(self) -> None:
        for task in self.tasks:
            if not _NAME.fullmatch(task.name):
                raise ConfigError(f"task {task.name!r}: expected a name of letters, digits, '.', '_' and '-'.")

    def __getstate__(self) -> dict[str, Any]:
        """Another process loads its own copy."""
        return {**vars(self), "sources": {}, "loaded": {}}

    def declare(self, old: Declared | None) -> Declared:
        """See `Work`."""
        named = self.request.device
        where = choose_device(old.facts["device"] if old is not None and named == "auto" else named)
        source = self._encoder(self.request.model)
        rows = {key: row for task in self.tasks for key, row in self._rows(task, where, old).items()}
        if old is not None:
            self._require_same(old, rows, source.sha256)
        runs = sum(len(self.seeds) * max(1, len(row.parts)) for row in rows.values() if row.seeded)
        alike = max(1, processes.cores() // runs)
        return Declared(
            verb=self.verb,
            facts={
                "model_sha256": source.sha256,
                "recipe": self.recipe_name,
                "device": str(where),
                "threads": old.facts["threads"] if old is not None else engine.threads_given() or alike,
                **({"rows": "labels curve"} if self.labels else {}),
            },
            rows=rows,
            seeds=tuple(sorted(self.seeds)),
            about={"model": self.request.model, "encoder": _encoder_facts(self.request.model)},
        )

    def _require_same(self, old: Declared, rows: Mapping[str, DeclaredRow], model_sha256: str) -> None:
        """Raise ConfigError where files have changed, of a finished experiment with the command that trains on."""
        root, key = self.request.out, next(iter(rows))
        row, new = old.rows.get(key, rows[key]), rows[key]
        ids = {(one.settings["task"]["kind"], one.settings["data_sha256"]) for one in (row, new)}
        if len(ids) < 2 or len(dict(ids)) > 1 or old.facts["model_sha256"] != model_sha256:
            return  # the same data, another task, another encoder
        known, labels = (one.settings["task"].get("labels") or () for one in (row, new))
        then, now = (one.settings["train_rows"] for one in (row, new))
        classes = ", ".join(repr(label) for label in labels if label not in known)
        found = f"{now:,} training rows (then {then:,}){', new: ' * bool(classes)}{classes}"
        remedy = "To resume, restore what it began with. Otherwise choose another --out."
        if (root / "model").is_dir():
            remedy = (
                f"Learn from all rows beside it: {self.request.beside()}  For other texts: electra predict "
                f"{root / 'model'} FILE"
            )
        files = self._files(new.settings["source"])
        raise ConfigError(f"{root} began with other rows or columns than {files}: {found}. {remedy}")

    def _files(self, task: str) -> str:
        """The files of a task, of a fixed benchmark its name."""
        source = next(one for one in self.tasks if one.name == task)
        return ", ".join(map(str, source.given().values())) if isinstance(source, OwnFiles) else task

    def _rows(self, task: TaskSource, where: torch.device, old: Declared | None) -> dict[str, DeclaredRow]:
        """A task's own rows, one for each number of labels of a curve, and those that they are compared with; of a
        search those of its trials.
        """
        data, against = self._load(task.name), self.request.against
        if not data.dev:
            raise DataError(f"{data.task.name}: has no examples with answers to score on. Give it a dev set.")
        begun = old and old.rows.get(task.name, next(iter(old.rows.values())))
        precision = begun.settings["recipe"]["precision"] if begun else choose_precision("auto", where)

        def row(end: str, chosen: Mapping[str, float], rows: int = len(data.train)) -> DeclaredRow:
            return self._row(task, data, end, chosen, precision, rows)

        if self.trials:
            ends = ("", FRESH, RIVAL)
            trials = {end: self.trials.get(task.name + end, ()) for end in ends}
            return {sweep.named(task.name + end, one): row(end, one) for end in ends for one in trials[end]}
        chosen = self.chosen.get(task.name, {})
        found: dict[str, DeclaredRow] = {}
        for count in labels_curve.checked(self.labels, data) if self.labels else (len(data.train),):
            key = sweep.named(task.name, {"labels": count} if self.labels else {})
            noted, main = not found, row("", chosen, count)
            notes = (*main.notes, *self._findings(task.name, data, main, self.request.model)) if noted else ()
            found[key] = replace(main, notes=notes)
            compared: dict[str, Any] = {"reference": key, "metrics": main.metrics, "apart": main.apart}
            if against is not None:
                rival = row(RIVAL, self.chosen.get(task.name + RIVAL, {}), count)
                notes = (*rival.notes, *self._findings(task.name, data, rival, against)) if noted else ()
                own = tuple(f"{against}: {note}" for note in notes if note not in main.notes)
                found[key + RIVAL] = replace(rival, baseline=against, notes=own, **compared)
            if self.request.baselines:
                fresh = row(FRESH, self.chosen.get(task.name + FRESH, chosen), count)
                found[key + FRESH] = replace(fresh, baseline="the untrained encoder", notes=(), **compared)
            found |= self._baseline_rows(main, data, compared)
        return found

    def _baseline_rows(self, main: DeclaredRow, data: TaskData, compared: dict[str, Any]) -> dict[str, DeclaredRow]:
        """Rows of the simpler predictors that a row is compared with."""
        settled, found = Settings.of(main), dict[str, DeclaredRow]()
        for name, one in data.under(settled.recipe)[0].task.baselines(data.train).items():
            if self.request.baselines or (name == labels_curve.AGAINST and (self.labels or self.is_own)):
                settings = asdict(replace(settled, baseline=name))
                row = DeclaredRow(settings=settings, seeded=bool(self.labels), baseline=one.title, **compared)
                found[f"{compared['reference']}{PLUS}{name}"] = row
        return found

    def _findings(self, name: str, data: TaskData, row: DeclaredRow, model: str) -> list[str]:
        """Find and print texts and letters that the encoder of a row cannot read."""
        settled, source = Settings.of(row).recipe, self._encoder(model)
        as_read, text = data.under(settled)[0], source.text(settled.max_length)
        findings = findings_of(as_read, text, reader=model, longest=source.length)
        dev, test = (next(iter(rows.values()), ()) for rows in (data.dev, data.tested))
        fitted = count_learned(source.folder, dev)
        scored = count_learned(source.folder, test, unknown=False) if test else fitted
        if self.is_own and scored:
            some = f"{cells.SEEN} ({scored:,} of {len(test or dev):,})"
            findings.append(f"warning: {model} {some}: give it --test FILE, or leave {model} out.")
        elif self.is_own and fitted:
            findings.append(
                f"warning: {model} may have learned from rows that probabilities are fitted to ({fitted:,} of "
                f"{len(dev):,}), so they stay as sure as training made them, and `predict --accuracy` cannot be asked "
                f"for. Give other rows with --dev FILE, or leave {model} out."
            )
        for finding in findings:
            if finding not in self.shown:
                errors.tell(f"{name}: {finding}")
                self.shown.append(finding)
        return findings

    def _row(
        self, task: TaskSource, data: TaskData, end: str, chosen: Mapping[str, float], precision: str, rows: int
    ) -> DeclaredRow:
        """A row that trains on `rows` rows. Its precision is as asked for; else as the task or experiment began."""
        name, given = self.recipe_name, self.request.given
        source = self._encoder(str(self.request.against) if end == RIVAL else self.request.model)
        named = recipe.recipe(
            name, hidden_size=source.model.hidden_size, epochs=task.epochs, max_length=task.max_length
        )
        changes = task.recipe_for(rows, source.model.num_hidden_layers) if name == recipe.AUTO else {}
        usual, named = named, data.under(replace(named, **changes))[1] if changes else named
        asked = replace(named, **{**chosen, **given})
        if asked.precision == "auto":
            asked = replace(asked, precision=precision)  # type: ignore[arg-type]
        data, asked = data.under(asked)
        settled = asked.fitted(source.length)
        notes = [*data.notes]
        if changes:
            own = recipe.deviations(named, usual)
            notes.append(f"recipe `auto`, {rows:,} training rows: {own}. --recipe paper is the paper's.")
        if settled != asked:
            notes.append(
                f"rows have up to {source.length} tokens, the longest that the encoder was trained on, and not "
                f"{asked.max_length} (--max-length)."
            )
        if changed := recipe.deviations(settled, named.fitted(source.length)):
            notes.append(f"Recipe `{name}` with {changed}.")
        settings = Settings(
            source=task.name,
            task=data.task.described(),
            data_sha256=data.sha256,
            recipe=settled,
            dev=tuple(data.dev),
            train_rows=rows,
            baseline=UNTRAINED if end == FRESH else None,
            rival=source.sha256 if end == RIVAL else None,
        )
        metric, parts = f"{next(iter(data.dev))}/{data.task.metric}", data.parts[: None if end == "" else -1]
        return DeclaredRow(
            settings=asdict(settings), metrics=(metric,), notes=tuple(notes), apart=tuple(data.tested), parts=parts
        )

    def identity(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything a score depends on. Pooling is taken from the task, not from the recipe."""
        usual = asdict(recipe.Recipe(pooling=None))
        known = {name: settings["recipe"].get(name, value) for name, value in usual.items() if name != "pooling"}
        return {"rival": None, **settings, "recipe": known}

    def todo(self, cells: Sequence[Cell], declared: Declared) -> list[Cell]:
        """Cells that are not done, task by task; one of several parts once these are done."""
        order = [task.name for task in self.tasks]
        missing = [cell for cell in cells if not cell.is_done]
        whole = {replace(cell, part="") for cell in missing if cell.part}
        todo = (cell for cell in missing if cell not in whole)
        return sorted(todo, key=lambda cell: order.index(Settings.of(declared.rows[cell.key]).source))

    def units(self, cell: Cell, declared: Declared) -> float:
        """Training rows (for the progress bar). The majority, and scoring all folds, cost nothing by comparison."""
        row = declared.rows[cell.key]
        settings, is_run = Settings.of(row), bool(cell.part) or not row.parts
        epochs = settings.recipe.epochs
        each = {None: epochs, UNTRAINED: epochs, labels_curve.AGAINST: _TF_IDF}
        return settings.train_rows * each.get(settings.baseline, 0.0) if is_run else 0.0

    def do(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        """See `Work`."""
        settings = Settings.of(declared.rows[cell.key])
        data = self._load(settings.source)
        if data.sha256 != settings.data_sha256:
            files = self._files(settings.source)
            raise ConfigError(f"{cell.key}: {files} changed after the experiment began. Choose another --out.")
        if settings.train_rows < len(data.train):
            data = replace(data, train=labels_curve.draw(data.train, settings.train_rows, seed=cell.seed))
        if settings.baseline not in (None, UNTRAINED):
            _do_baseline(cell, settings, data)
            return
        model = self.request.model if settings.rival is None else str(self.request.against)
        source = self._encoder(model)
        data = replace(data, learned=count_learned(source.folder, next(iter(data.dev.values()))) > 0)
        if cell.part:
            data = data.part(cell.part)
        elif data.folds:
            _pool(cell, settings, data)
            return
        if source.sha256 != (settings.rival or declared.facts["model_sha256"]):
            raise ConfigError(
                f"{model}: its weights changed after the experiment began. Give a folder that stays as it "
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
                keep_weights=self.keep_weights and not (fresh or settings.rival) and cell.part in ("", cells.RUN),
                display=lambda steps: _Relay(steps, reports, lines=not fresh),
            )
        except errors.Diverged as error:
            cells.write_result(cell.folder, Result(key=cell.key, seed=cell.seed, failed=str(error)))
            shutil.rmtree(RunFolder(cell.folder).checkpoints, ignore_errors=True)
            reports.say(f"FAILED: {error}", style="bold red")
        except RuntimeError as error:
            raise errors.as_known(error) or error from None

    def _encoder(self, model: str) -> Source:
        if model not in self.sources:
            self.sources[model] = load_source(model)
        return self.sources[model]

    def _load(self, task: str) -> TaskData:
        if task not in self.loaded:
            self.loaded.clear()  # before the next is read: they need not both fit
            source = next(one for one in self.tasks if one.name == task)
            self.loaded[task] = training_rows(source) if self.trials else source.load()
        return self.loaded[task]


def run_plan(plan: Plan, *, data: TaskData | None = None) -> Summary:
    """Run what is not yet done of a plan, and sum up all that is in its folder: a new one, or one to resume or extend
    (more seeds or tasks, or the baselines).

    Precision is settled when a task begins, is part of its recipe, and is kept where none is named; another one is
    refused. The number of threads that a run computes with is settled when the experiment begins: the order of sums
    depends on it, so another number would be other bits. It is OMP_NUM_THREADS where that is set, else the cores
    divided by the runs that are asked for then. It does not depend on `parallel`, which changes no bit and may differ
    from one command to the next. An experiment stays on the device that it began on.

    Args:
        data: the data of the only task, where they are loaded already.

    Raises:
        ConfigError, Interrupted, ElectraError: as `run_experiment`; as the tasks and runs.
    """
    asked = plan.request
    quiet = asked.quiet or asked.json
    plan = replace(plan, sources={}, loaded={} if data is None else {plan.tasks[0].name: data})
    how: dict[str, Any] = {"quiet": quiet, "plain": plan.is_own and not (plan.labels or asked.verbose)}
    summary = engine.run_experiment(plan, asked.out, device=asked.device, parallel=asked.parallel, **how)
    return replace(summary, shown=(*plan.shown, *(() if quiet or data is None else data.notes)))


def _do_baseline(cell: Cell, settings: Settings, data: TaskData) -> None:
    """Score a baseline without an encoder."""
    durable.make_folder(cell.folder)
    data = data.under(settings.recipe)[0]
    parts = [data.part(name) for name in data.parts if name != cells.RUN] or [data]

    def learned(task: Task) -> list[Baseline]:
        return [task.baselines(part.train)[str(settings.baseline)] for part in parts]

    plain = learned(data.task)  # a baseline learns when it is first asked, which may take minutes

    def predict(split: str, task: Task) -> list[Prediction]:
        each = zip(plain if task == data.task else learned(task), parts, strict=True)
        return data.in_order([one.predict({**part.dev, **part.tested}[split]) for one, part in each])

    found, _ = data.judged(predict, encoder=False)
    cells.write_result(cell.folder, Result(key=cell.key, seed=cell.seed, **found))


def _pool(cell: Cell, settings: Settings, data: TaskData) -> None:
    """Score the predictions of all folds together."""
    parts = [replace(cell, part=name) for name in data.parts]
    results = {part: one for part in parts if (one := part.result()) is not None}
    if failed := next((one.failed for one in results.values() if one.failed), None):
        cells.write_result(cell.folder, Result(key=cell.key, seed=cell.seed, failed=failed))
        return
    split, facts = next(iter(data.dev)), next(reversed(results.values())).facts
    data = data.under(settings.recipe)[0]
    try:
        texts = [
            (part.folder / f"predictions/{split}.jsonl").read_text("utf-8") for part in parts if part.part != cells.RUN
        ]
        each = [[json.loads(line) for line in text.splitlines()] for text in texts]
        found, predicted = data.judged(lambda split, task: data.in_order(each))
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        again = f"Delete {cell.folder} and repeat the command: its runs are done again."
        raise DataError(f"{cell.folder}: predictions of a fold are damaged ({error}). {again}") from None
    run.write_predictions(cell.folder, predicted)
    cells.write_result(cell.folder, Result(key=cell.key, seed=cell.seed, facts=facts, **found))


def _encoder_facts(model: str) -> dict[str, Any] | None:
    """The pre-training of an encoder, up to the checkpoint that is used, for tables and figures; None where its folder
    does not say.
    """
    if not is_run(model):
        return None
    at, step = run_and_step(model)
    config = to_dict(RunFolder(at).config())
    return {"config": config, **engine.run_facts(at, step=step), "environment": cells.environment_of(at)}


class _Relay(Display):
    """Passes on the progress of a run."""

    def __init__(self, steps: int, reports: Reports, *, lines: bool) -> None:
        super().__init__(total=steps, silent=True)
        self._reports, self._lines = reports, lines

    def say(self, line: str, *, style: str | None = None) -> None:
        if self._lines:  # the run has its log
            self._reports.say(line, style=style)

    warn = say

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        self._reports.progress(done / self.total)


def export_best(source: TaskSource, data: TaskData, *, summary: Summary, model: str) -> tuple[Path, Path | None]:
    """Write OUT/model, a folder that transformers loads, from the best run of a task, and delete the weights of the
    others; for an unlabelled file also OUT/predictions.csv (predictions.conll for tagging). Returns both.

    Args:
        source, data: the task and its data.
        summary: the experiment's.
        model: the encoder, where it is now.

    Raises:
        ElectraError: as `export_finetuned`.
    """
    best, out = summary.best(source.name), summary.path
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for name, by_seed in summary.values[source.name].items():
        split, slash, metric = name.partition("/")
        if slash:
            scores.setdefault(split, {})[metric] = by_seed
    how: dict[str, Any] = {"data": data, "scores": scores, "model": model, "says": summary.conclusion}
    folder = model_folder.export_finetuned(best.folder, out=out / "model", **how)
    for seed in summary.results[source.name]:
        if seed != best.seed:
            shutil.rmtree(replace(best, seed=seed).kept / "weights", ignore_errors=True)
    if not data.test or data.written is None:
        return folder, None
    loaded, (name, write) = model_folder.load_finetuned(folder, own=[type(data.task)]), data.written
    asked, device = next(iter(data.test.values())), summary.declared.facts["device"]
    durable.replace_durably(out / name, write(loaded.predict_examples(asked, device=device)).encode())
    return folder, out / name


MOST_ROWS = 10_000
"""Rows that a search is run on of larger training sets, at the task's own epochs: the best number for fewer rows would
be too high.
"""


def training_rows(source: TaskSource) -> TaskData:
    """A task's training rows alone: a tenth of them is what its runs are scored on.

    Raises:
        DataError: it has too few.
    """
    data = source.load()
    some = sorted(drawn(f"searched rows/{source.name}", count=MOST_ROWS, total=len(data.train)))
    try:
        train, held_out = data.task.hold_out([data.train[index] for index in some], where=source.name)
    except DataError as error:
        raise DataError(f"--search: {error} Or leave --search out.") from None
    note = f"{len(held_out):,} training rows were held out to score on, and {len(train):,} trained on."
    return replace(data, train=train, dev={"held-out": held_out}, tested={}, test={}, folds=(), notes=(note,))
