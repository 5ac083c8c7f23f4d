"""Verbs that fine-tune an encoder with several seeds; they share the flags of the encoder, the experiment and the
recipe.

electra finetune MODEL --train reviews.csv --out DIR
electra glue MODEL --data DIR --seeds 10 --out EXP
electra squad MODEL --train train-v1.1.json --dev dev-v1.1.json --version 1 --out EXP
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from electra_trainer.cli.main import shared, value_of
from electra_trainer.cli.track import TrackFlags
from electra_trainer.errors import ConfigError
from electra_trainer.experiments import folder
from electra_trainer.finetuning.recipe import Recipe, recipe
from electra_trainer.settings import records

if TYPE_CHECKING:
    from electra_trainer.finetuning.experiment import BestExport, Plan
    from electra_trainer.finetuning.glue.glue_tasks import GlueTask
    from electra_trainer.finetuning.task import TaskData, TaskSource
    from electra_trainer.finetuning.task_summary import Summary


@dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """How the encoder is fine-tuned. Defaults shown are the recipe's for Small; the encoder's width decides."""

    recipe: str = "paper"
    """`paper` (Table 6) or `released`, what google-research/electra runs."""
    settings: Annotated[Recipe, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff] = field(default_factory=Recipe)
    given: tyro.conf.Suppress[tuple[str, ...]] = ()
    """Fields that the command line names."""

    def changes(self) -> dict[str, object]:
        """The fields of the recipe that were given."""
        changed: dict[str, object] = {name: getattr(self.settings, name) for name in self.given}
        return ({"attention_dropout": changed["dropout"]} if "dropout" in changed else {}) | changed


@dataclass(frozen=True, kw_only=True)
class ExperimentFlags:
    """An experiment: an encoder that is fine-tuned with several seeds."""

    model: tyro.conf.Positional[str]
    """Run folder (RUN@STEP: a checkpoint before the newest), exported folder, or a Hub name such as
    google/electra-small-discriminator.
    """
    out: Path
    """Folder of the experiment: a new one, or one to resume or extend. `finetune` and `squad` put the model into its
    folder model/.
    """
    seeds: str = "3"
    """How many, or which: 3 is 1,2,3. Of `finetune` and `squad` the best one's model is exported."""
    recipe: tyro.conf.OmitArgPrefixes[RecipeFlags] = field(default_factory=RecipeFlags)
    """How the encoder is fine-tuned."""
    baselines: Annotated[bool, tyro.conf.arg(aliases=["--floors"])] = False
    """Also score what the encoder has to beat: itself with fresh weights, and baselines without an encoder: the
    majority class, a bag of words, and of two texts the overlap of their words; of questions the sentence with most of
    their words, and never answering (2.0)."""
    search: bool = False
    """First choose learning rate, layer decay and epochs of each task on a tenth of its training rows, some seven runs
    with one seed, for the encoder and for fresh weights alike; what is given by a flag stays."""
    grid: tuple[str, ...] = ()
    """With --search: what it tries instead of its own values. learning-rate=1e-4,3e-4 layer-decay=0.8,0.9 epochs=3,10,
    or the paper's (Appendix B): paper-small, paper-base, paper-large."""
    parallel: int | None = None
    """Train N seeds (and tasks) at the same time. Default: as many as the machine has cores or GPUs for."""
    shard: str = "1/1"
    """i/N: do every N-th run, from the i-th on, so that N machines share the work; afterwards the same command without
    it.
    """
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or mps on a Mac."""
    json: bool = False
    """Print one JSON object."""
    quiet: bool = False
    """Show no progress."""
    tracking: Annotated[TrackFlags, tyro.conf.arg(name="")] = field(default_factory=TrackFlags)

    brief: ClassVar[str] = (
        "model out seeds baselines search parallel device track train dev predict task text text_pair label data "
        "tasks version split "
        "recipe learning_rate epochs batch_size max_length pooling config"
    )
    """What the short help shows."""
    task_recipe: ClassVar[dict[str, Any]] = {}
    """Fields of the recipe that the task has its own defaults for."""

    @classmethod
    def begin(cls, words: Sequence[str]) -> dict[str, Any]:
        """The recipe that `--recipe` names, with the task's own fields, decides the defaults of its flags."""
        name = value_of(words, "--recipe") or "paper"
        flags = {word.partition("=")[0].replace("_", "-") for word in words}
        given = tuple(one.name for one in fields(Recipe) if f"--{one.name.replace('_', '-')}" in flags)
        settings = recipe(name, hidden_size=256, **{"epochs": 3.0} | cls.task_recipe)
        return {"recipe": RecipeFlags(recipe=name, settings=settings, given=given)}

    def plan(self, *tasks: "TaskSource", keep: 'Literal["none", "best"]') -> "Plan":
        """What is asked for."""
        from electra_trainer.finetuning.experiment import Plan

        return Plan(
            model=self.model,
            tasks=tasks,
            recipe=self.recipe.recipe,
            changes=self.recipe.changes(),
            seeds=folder.parse_seeds(self.seeds),
            floors=self.baselines,
            keep=keep,
        )

    def run(self, plan: "Plan", data: "TaskData | None" = None) -> "Summary | None":
        """Run a plan; None where only a shard of it was asked for, and what follows needs all.

        Args:
            data: what the only task loads, where it is loaded already.
        """
        from electra_trainer.finetuning.experiment import run_plan
        from electra_trainer.finetuning.search import parse_grid, searched

        if self.grid and not self.search:
            raise ConfigError("--grid: is what --search tries. Add --search.")
        shard, quiet = folder.parse_shard(self.shard), self.quiet or self.json
        if self.search and shard[1] > 1:
            raise ConfigError("--search: chooses before the runs that --shard divides. Run it without --shard.")
        with self.tracking.tracked(self.out):
            if self.search:
                plan = replace(plan, grid=parse_grid(self.grid))
                plan = searched(plan, out=self.out, device=self.device, parallel=self.parallel, quiet=quiet)
            summary = run_plan(
                plan, out=self.out, device=self.device, parallel=self.parallel, shard=shard, quiet=quiet, data=data
            )
        if shard[1] == 1:
            return summary
        lacking = sum(len(task.missing) + len(task.unmeasured) for task in summary.tasks)
        if self.json:
            print(json.dumps({"summary": str(self.out / "summary.json"), "shard": self.shard, "missing": lacking}))
        else:
            runs = "1 run is" if lacking == 1 else f"{lacking} runs are"
            print(
                f"{self.out}: shard {self.shard} is done; {runs} missing. When none is, repeat the command without "
                "--shard."
            )
        return None


@dataclass(frozen=True, kw_only=True)
class FinetuneArguments(ExperimentFlags):
    """Fine-tune an encoder on files of your own, score it, and leave a folder that `transformers` loads and `electra
    predict` uses.

    Texts and pairs come from .csv, .tsv or .jsonl; two columns need no flags. Tagging reads CoNLL columns, .conllu,
    .jsonl and .csv. The same command resumes where it stopped; more seeds extend the experiment.
    """

    train: Path
    """Rows with labels."""
    dev: Path | None = None
    """Rows with labels to score on. Default: a tenth of --train, held out; of a treebank's folder its dev file."""
    predict: Path | None = None
    """Rows without labels: OUT/predictions.csv gets their columns and what the best run says; in tagging
    OUT/predictions.conll.
    """
    task: Literal["classification", "regression", "tagging"] = "classification"
    """One of several labels, a number, or a label for each word."""
    text: str | None = None
    """Column of the text. Default: the other one of two columns, or one with a usual name."""
    text_pair: str | None = None
    """Column of a second text, for tasks about pairs. Default: none, or a usual pair such as sentence1, sentence2."""
    label: str | None = None
    """Column of the label. Default: label, class, target, score or the like; of two columns else the second; in tagging
    the last.
    """
    words: str | None = None
    """In tagging: column of the words, counted from 1, or its name. Default: 1, or one called tokens, words, text or
    the like.
    """
    sentence_id: str | None = None
    """In tagging, of a table with a row for each word: column that numbers the sentences. Default: one called
    sentence_id or the like.
    """
    tag_names: str | None = None
    """In tagging: names of labels that are numbers, from 0 on: O,B-PER,I-PER, or a file. Default: dataset_info.json
    next to --train.
    """
    scheme: Literal["detect", "io", "bio", "bioes", "plain"] | None = None
    """In tagging: how labels mark spans; bioes: also BILOU and BMES; io: labels are types; plain: they mark none.
    Default: detect.
    """


def run_finetune(arguments: FinetuneArguments) -> Any:
    """Report what was read from the files, run the seeds, export the best run."""
    from electra_trainer.finetuning.experiment import export_best

    source = _source(arguments)
    _find_model(arguments.model)
    data = source.load()
    notes = data.notes_for({*arguments.plan(source, keep="best").given, *(["epochs"] if arguments.search else [])})
    if not arguments.json:
        _print_notes(notes)
    if arguments.run(arguments.plan(source, keep="best"), data) is None:
        return None
    done = export_best(source, data, model=arguments.model, out=arguments.out)
    if arguments.json:
        return _as_json(done, notes, summary=records.read_table(arguments.out / "summary.json"))
    _print_result(done, data, arguments)


def _find_model(name: str) -> None:
    """Look for the model, and download it from the Hub, before the data is read and told of."""
    from electra_trainer.pretrained.source import located

    if not records.is_run(name):
        located(name)


def _source(arguments: FinetuneArguments) -> "TaskSource":
    if arguments.task == "tagging":
        from electra_trainer.finetuning.tagging.tagging import TaggingTask

        for flag, value in (("--text", arguments.text), ("--text-pair", arguments.text_pair)):
            if value is not None:
                raise ConfigError(
                    f"{flag}: tagging reads words. Leave it out; --words names their column, --label the tags'."
                )
        scheme = "none" if arguments.scheme == "plain" else arguments.scheme or "detect"
        own = {"column": arguments.label, "scheme": scheme}
        return TaggingTask(**shared(arguments, TaggingTask) | own)
    from electra_trainer.finetuning.texts.own_task import OwnTask

    for flag, given in (
        ("--words", arguments.words),
        ("--scheme", arguments.scheme),
        ("--sentence-id", arguments.sentence_id),
        ("--tag-names", arguments.tag_names),
    ):
        if given is not None:
            raise ConfigError(f"{flag}: is for tagging. Leave it out, or say --task tagging.")
    return OwnTask(**shared(arguments, OwnTask), kind=arguments.task)


def _print_notes(notes: list[str]) -> None:
    """What was taken, and in yellow what may be wrong."""
    from electra_trainer.files.terminal import Terminal

    console = Terminal(highlight=False, soft_wrap=True)
    for note in notes:
        console.print(note, markup=False, style="yellow" if note.startswith("warning: ") else None)


def _print_result(done: "BestExport", data: "TaskData", arguments: FinetuneArguments) -> None:
    from electra_trainer.finetuning.confusion import shown

    print("\n" + (arguments.out / "summary.md").read_text(encoding="utf-8").strip())
    if done.confusion:
        print(f"\nThe best run on {next(iter(data.dev))}:\n\n{shown(done.confusion, data.task.labels)}")  # type: ignore[attr-defined]
    whole = not (done.model / "head.safetensors").exists()
    loads = (
        "loads it"
        if whole
        else f"has no class for its head, refuses it, and loads its encoder from {done.model / 'encoder'}"
    )
    print(f"\n{done.model}: the best run; transformers {loads}. README.md there says how.")
    if done.predictions is not None:
        print(f"{done.predictions}: what it says of {arguments.predict}.")
    else:
        print(
            f"Next: electra predict {done.model} FILE --out "
            f"predictions.{'conll' if arguments.task == 'tagging' else 'csv'}"
        )


def _as_json(done: "BestExport", notes: list[str], *, summary: dict[str, object]) -> dict[str, object]:
    confusion: dict[str, dict[str, int]] = {}
    for (truth, said), count in sorted(done.confusion.items()):
        confusion.setdefault(truth, {})[said] = count
    return {
        "notes": notes,
        "summary": summary,
        "confusion": confusion,
        "model": str(done.model),
        "predictions": str(done.predictions) if done.predictions is not None else None,
    }


@dataclass(frozen=True, kw_only=True)
class GlueArguments(ExperimentFlags):
    """Fine-tune an encoder on GLUE, several seeds a task, and print the paper's table.

    The same command resumes where it stopped; more tasks or seeds extend the experiment.
    """

    data: str
    """GLUE's folder (CoLA, SST-2 ... with train.tsv and dev.tsv), or hub."""
    tasks: str = "paper"
    """Names between commas: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax (by mnli's model). paper: the first
    eight; all: wnli too.
    """
    limit: int | None = None
    """Train on at most N rows of each task."""
    predict: bool = False
    """Write the archive for gluebenchmark.com: of each task in --out the seed that is best on dev; of WNLI, untrained,
    the majority.
    """
    zip: Path | None = None
    """The archive. Default: submission.zip in --out."""
    fill_missing: bool = False
    """Put majority classes into the archive where a task or a test set is missing. Such scores mean nothing."""


def run_glue(arguments: GlueArguments) -> Any:
    """Run the cells, then print the tables, and write the archive if it is wanted."""
    from electra_trainer.files.durable import replace_durably
    from electra_trainer.finetuning.glue import glue_table, submission
    from electra_trainer.finetuning.task_summary import best_runs

    archive = arguments.zip or (arguments.out / "submission.zip" if arguments.predict else None)
    if archive is not None and arguments.shard != "1/1":
        raise ConfigError(
            "--shard: an archive is made of all runs. Leave --predict and --zip out until all shards are done."
        )
    summary = arguments.run(arguments.plan(*_tasks(arguments, archive), keep="none"))
    if summary is None:
        return None
    said: tuple[str, ...] = ()
    replace_durably(arguments.out / "glue.md", glue_table.markdown(summary).encode())
    if archive is not None:
        runs = best_runs(summary, out=arguments.out)
        said = submission.write_submission(archive, folder=arguments.data, runs=runs, fill=arguments.fill_missing)
    if arguments.json:
        found = {
            "scores": glue_table.glue_metrics(glue_table.medians(summary)),
            "notes": [*glue_table.glue_notes(summary)],
            "zip": [*said] if archive else None,
        }
        return {"summary": str(arguments.out / "summary.json"), **found}
    print(glue_table.text(summary))
    if archive is not None:
        print("\n".join(["", f"{archive}: the best of each task's seeds on dev", *(f"  {line}" for line in said)]))
    print(arguments.out / "glue.md")


def _tasks(arguments: GlueArguments, archive: Path | None) -> "tuple[GlueTask, ...]":
    """The tasks that are asked for, once it is seen that their files are there, and what the archive needs."""
    from electra_trainer.finetuning.glue.glue_tasks import GlueTask, parse_tasks
    from electra_trainer.finetuning.glue.submission import require_tables

    names = parse_tasks(arguments.tasks)
    tasks = tuple(
        GlueTask(folder=arguments.data, task=name, limit=arguments.limit)
        for name in names
        if name != "ax" or "mnli" not in names  # else GlueTask says that mnli is needed
    )
    for task in tasks:
        task.require_files()
    if archive is not None:
        trained = {*names, *(folder.read(arguments.out).rows if folder.exists(arguments.out) else ())}
        require_tables(archive, folder=arguments.data, tasks=trained, fill=arguments.fill_missing)
    return tasks


@dataclass(frozen=True, kw_only=True)
class SquadArguments(ExperimentFlags):
    """Fine-tune an encoder to answer questions, SQuAD 1.1 or 2.0, and score it as the official scripts do.

    The same command resumes where it stopped; more seeds extend the experiment.
    """

    train: Path
    """JSON file of SQuAD's layout."""
    seeds: str = "1"
    """How many, or which: 3 is 1,2,3. The best one's model is exported."""
    version: Literal[1, 2]
    """1: every question has an answer; 2: there may be none, and the threshold is searched too."""
    dev: Path | None = None
    """The file to evaluate on."""
    split: float | None = None
    """Instead of --dev: keep this share of the questions of --train for evaluation, whole articles."""
    head: Literal["joint", "independent"] = "joint"
    """joint: XLNet's, as in the paper. independent: BERT's, which transformers' ElectraForQuestionAnswering loads."""
    null_threshold: float | None = None
    """2.0: `f1` gives no answer where the "no answer" score is above this. Default: -2.75, independent 0; in the
    model's folder best_f1's own.
    """
    limit: int | None = None
    """Train on N questions only, from all over the file."""
    dev_limit: int | None = None
    """Evaluate on N questions only."""
    task_recipe: ClassVar[dict[str, Any]] = {"epochs": 2.0, "max_length": 512}
    """Two epochs, and windows of 512 tokens."""


def run_squad(arguments: SquadArguments) -> Any:
    """Run the seeds, print the table, export the best run."""
    from electra_trainer.finetuning.experiment import export_best
    from electra_trainer.finetuning.squad.squad_task import Squad

    follow = "released" if arguments.recipe.recipe == "released" else "paper"
    source = Squad(**shared(arguments, Squad) | {"follow": follow})
    _find_model(arguments.model)
    data = source.load()
    quiet = arguments.quiet or arguments.json
    for note in () if quiet else data.notes:
        print(note)
    if arguments.run(arguments.plan(source, keep="best"), data) is None:
        return None
    if not arguments.json:
        print((arguments.out / "summary.md").read_text(encoding="utf-8").strip())
    model = export_best(source, data, model=arguments.model, out=arguments.out).model
    if arguments.json:
        summary = records.read_table(arguments.out / "summary.json")
        return {"notes": list(data.notes), "summary": summary, "model": str(model)}
    print(f"{model}: the best run. Ask it: electra answer {model} --context @FILE --question TEXT")
