"""Requests that fine-tune an encoder with several seeds; each is the flags, the `--config` file and the Python call.

electra finetune MODEL --train reviews.csv --out DIR
electra finetune MODEL --train reviews.csv --labels-curve 50,100,200 --out DIR
electra glue MODEL --data DIR --seeds 10 --out EXP
electra squad MODEL --train train-v1.1.json --dev dev-v1.1.json --version 1 --out EXP
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from electra_trainer.errors import ConfigError, require_known
from electra_trainer.experiments import cell
from electra_trainer.experiments.summary import Summary, remarks
from electra_trainer.files.durable import replace_durably
from electra_trainer.files.wording import Printed, Terminal
from electra_trainer.finetuning.tuning import Tuning
from electra_trainer.settings import records
from electra_trainer.settings.extensions import HINT
from electra_trainer.settings.request import announce

if TYPE_CHECKING:
    from electra_trainer.finetuning.glue_table import GlueScores
    from electra_trainer.finetuning.labels_curve import LabelsCurve
    from electra_trainer.tasks.glue_tasks import GlueTask
    from electra_trainer.tasks.task import TaskData, TaskSource


@dataclass(frozen=True, kw_only=True)
class Tuned(Printed):
    """Result of fine-tuning on one task: scores, and the exported best run."""

    summary: Summary
    model: Path
    """Folder that transformers loads."""
    predictions: Path | None
    """For the unlabelled file, if there was one."""
    data: "TaskData"
    next: str
    """A command to go on with."""
    verbose: bool = False
    """Whether `text` has tables too."""

    def text(self) -> str:
        """The answer, and the commands to go on with; of a fixed benchmark, or if `verbose`, after the scores."""
        last = self.next if self.predictions is None else f"Predictions written to {self.predictions}.\n{self.next}"
        if self.summary.answer and not self.verbose:
            notes = (line for line in remarks(self.summary) if "warning: " in line)
            unseen = [note for note in notes if not note.endswith(self.summary.shown)]
            return "\n".join([*unseen, "", *filter(None, self.summary.answer), last])
        where = f"{self.model}: the best run. README.md there says how transformers loads it."
        return f"{self.summary.text(where)}\n{last}"

    def as_json(self) -> dict[str, Any]:
        """Notes, summary, folders."""
        return {
            "notes": [*self.data.notes],
            "summary": self.summary.as_json(),
            "model": str(self.model),
            "predictions": str(self.predictions) if self.predictions is not None else None,
        }


def tuned(
    request: Tuning,
    *tasks: "TaskSource",
    keep_weights: bool = False,
    data: "TaskData | None" = None,
    labels: tuple[int, ...] = (),
) -> Summary:
    """Run an experiment.

    Args:
        data: the data of the only task, where they are loaded already.
        keep_weights, labels: see `Plan`.
    """
    from electra_trainer.finetuning.experiment import Plan, run_plan
    from electra_trainer.inspection.trackers import tracked

    usual = "3" if data is None or not data.folds else "1"
    seeds = cell.parse_seeds(usual if request.seeds is None else request.seeds)
    plan = Plan(request=request, tasks=tasks, keep_weights=keep_weights, seeds=seeds, labels=labels)
    with tracked(request.out, request.track):
        if request.search:
            from electra_trainer.finetuning.search import searched

            plan = searched(plan)
        return run_plan(plan, data=data)


def ready(request: Tuning) -> None:
    """Find wrong seeds, and an --out that cannot be used, before anything is read. Raises ElectraError."""
    cell.parse_seeds("1" if request.seeds is None else request.seeds)
    with cell.declaring(request.out):
        return


def loaded(request: Tuning, source: "TaskSource") -> "TaskData":
    """Read the data of a task, once the model is known to be there, and print how that was done."""
    from electra_trainer.pretrained.located import located

    if not records.is_run(request.model):
        located(request.model)  # look for it, or download it, before the data are read
    if not (request.quiet or request.json):
        announce(request.model)
    data = source.load()
    if not (request.quiet or request.json):
        console = Terminal(highlight=False, soft_wrap=True)
        for note in data.notes:
            console.print(note, markup=False, style="yellow" if note.startswith("warning: ") else None)
    return data


def exported(request: Tuning, source: "TaskSource", *, next_command: str) -> Tuned:
    """Report what was read, run the seeds of a task, and export the best."""
    from electra_trainer.finetuning.experiment import export_best
    from electra_trainer.tasks.own_files import OwnRows

    if request.given.get("keep") == "best" and isinstance(source, OwnRows):  # epochs are chosen by dev
        source = replace(source, folds=False)
    data = loaded(request, source)
    summary = tuned(request, source, keep_weights=True, data=data)
    model, predictions = export_best(source, data, summary=summary, model=request.model)
    found: dict[str, Any] = {"summary": summary, "predictions": predictions, "data": data, "verbose": request.verbose}
    return Tuned(model=model, next=f"Next: electra {next_command}", **found)


@dataclass(frozen=True, kw_only=True)
class Finetune(Tuning):
    """Fine-tune an encoder on files of your own, score it, and leave a folder for `electra predict`. `transformers`
    loads it whole on the modern block (pairs apart) and, with --pooling cls, on BERT's; else the encoder in it.

    Rows come from tables, JSON lines, Parquet, Arrow or the Hub; two columns need no flags. The same command resumes
    where it stopped.
    """

    train: Path
    """Rows with labels."""
    dev: Path | None = None
    """Rows with labels to score on. Default: a tenth of --train; below 1,000 rows without --test five folds score all.
    """
    test: Path | None = None
    """Rows with labels that choose nothing, scored by each seed."""
    predict: Path | None = None
    """Rows without labels: OUT/predictions.csv (.conll in tagging) gets their columns and the best run's predictions.
    """
    task: str = "classification"
    """classification, regression (a number), multi-label, or tagging (a label for each word)."""
    text: str | None = None
    """Column of the text. Default: the other one of two columns, or one with a usual name."""
    text_pair: str | None = None
    """Column of a second text, for tasks about pairs. Default: none, or a usual pair such as sentence1, sentence2."""
    label: str | None = None
    """Column of the label. Default: label, class, target, score or the like, else the second of two; in tagging the
    last."""
    label_separator: str | None = None
    """A text may have several labels: the sign between them in the column of the label, such as ";". An empty cell: no
    label."""
    labels: str | None = None
    """A text may have several labels: columns of 0 and 1, one for each label, between commas: toxic,insult,threat."""
    class_weights: Literal["balanced"] | None = None
    """balanced: rare classes count more in the loss, by their inverse frequency."""
    words: str | None = None
    """In tagging: column of the words, counted from 1, or its name. Default: 1, or one called tokens, words, text or
    the like.
    """
    tag_names: str | None = None
    """In tagging: names of labels that are numbers, from 0 on: O,B-PER,I-PER."""
    scheme: Literal["detect", "io", "bio", "bioes", "plain"] | None = None
    """In tagging: how labels mark spans; bioes: also BILOU and BMES; io: labels are types; plain: they mark none.
    Default: detect.
    """

    metric: str | None = None
    """Main score, by which the best seed and epoch are chosen. Classification: accuracy, macro_f1 or matthews; several
    labels: micro_f1 or macro_f1; regression: spearman or pearson. Default: the first."""
    against: str | None = None
    """Another model, fine-tuned with the same seeds on the same rows: the tables compare the two seed by seed. MODEL is
    the one that is exported."""
    verbose: bool = False
    """Print all tables, and the score of each run, before the answer."""
    labels_curve: str | None = None
    """Numbers of labels, such as 50,100,200: instead of a model, how scores of the encoder and of TF-IDF (--baselines:
    of all) grow with them on the same rows, and from how many on the encoder pays. Each seed draws the rows anew."""

    def run(self) -> "Tuned | LabelsCurve":
        """Run the seeds and export the best, or draw the curve."""
        ready(self)
        if self.labels_curve is not None:
            return self._curve(self.labels_curve)
        ending = "conll" if self.task == "tagging" else "csv"
        next_command = (
            f"predict {self.out / 'model'} FILE --out predictions.{ending}\nWith more rows: {self.beside()}\n"
            f"All figures: {self.out / 'summary.md'}"
        )
        source = self.source()
        made = exported(self, source, next_command=next_command)
        is_served = getattr(source, "one_class", False) and not made.data.pairs
        return replace(made, next=f"{made.next}\nAs a service: docs/classify.md#as-a-service") if is_served else made

    def _curve(self, counts: str) -> "LabelsCurve":
        from electra_trainer.finetuning.labels_curve import LabelsCurve, parse_counts
        from electra_trainer.tasks.own_files import OwnRows

        for flag, given in (("--predict", self.predict), ("--test", self.test), ("--search", self.search or None)):
            if given is not None:
                raise ConfigError(f"{flag}: --labels-curve exports no model, and scores on --dev alone. Leave it out.")
        source = self.source()
        if not isinstance(source, OwnRows):
            raise ConfigError("--labels-curve: expected --task classification or regression, of own tables.")
        source = replace(source, folds=False)
        labels, data = parse_counts(counts), loaded(self, source)
        summary = tuned(self, source, data=data, labels=labels)
        curve = LabelsCurve(summary=summary, notes=data.notes)
        curve.write()
        return curve

    def source(self) -> "TaskSource":
        """The task that the flags describe. Raises ConfigError for an unknown one, or a flag that it does not have."""
        from electra_trainer.tasks.kinds import KINDS
        from electra_trainer.tasks.task import OwnFiles

        several = self.label_separator is not None or self.labels is not None
        name = "multi-label" if self.task == "classification" and several else self.task
        known = {kind: source for kind, source in KINDS.items() if issubclass(source, OwnFiles)}
        require_known(f"--task {name}: unknown", name, known, hint=HINT)
        own = {one.name for one in fields(self)} - {one.name for one in fields(Tuning)}
        own -= {"task", "labels_curve"}
        given = {flag: value for flag in own if (value := vars(self)[flag]) is not None}
        for flag in sorted({*given} - {one.name for one in fields(known[name])}):
            raise ConfigError(f"--{flag.replace('_', '-')}: --task {name} has no such flag. Leave it out.")
        return known[name](**given)


@dataclass(frozen=True, kw_only=True)
class Glue(Tuning):
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
    """Write OUT/submission.zip, the archive for gluebenchmark.com: for each task in --out the seed that is best on dev,
    for WNLI, which is not trained, the majority.
    """

    def run(self) -> "GlueScores":
        """Run the cells, write the tables, and the archive if it is wanted."""
        ready(self)
        from electra_trainer.finetuning import glue_table

        archive = self.out / "submission.zip" if self.predict else None
        summary = tuned(self, *self.sources(archive))
        replace_durably(self.out / "glue.md", glue_table.markdown(summary).encode())
        files: tuple[str, ...] = ()
        if archive is not None:
            runs = {task: summary.best(task).folder for task in glue_table.medians(summary)}
            files = glue_table.write_submission(archive, folder=self.data, runs=runs)
        return glue_table.GlueScores(summary=summary, archive=archive, files=files)

    def sources(self, archive: Path | None) -> "tuple[GlueTask, ...]":
        """The requested tasks, after a check that their files are there, and those that the archive needs."""
        from electra_trainer.finetuning.glue_table import require_tables
        from electra_trainer.tasks.glue_tasks import GlueTask, parse_tasks

        names = parse_tasks(self.tasks)
        tasks = tuple(
            GlueTask(folder=self.data, task=name, limit=self.limit)
            for name in names
            if name != "ax" or "mnli" not in names  # else GlueTask reports that mnli is needed
        )
        for task in tasks:
            task.require_files()
        if archive is not None:
            trained = {*names, *(cell.read_declared(self.out).rows if cell.exists(self.out) else ())}
            require_tables(folder=self.data, tasks=trained)
        return tasks


@dataclass(frozen=True, kw_only=True)
class Squad(Tuning):
    """Fine-tune an encoder to answer questions, SQuAD 1.1 or 2.0, and score it as the official scripts do.

    The recipe's epochs are 2 and its rows have up to 512 tokens. The same command resumes where it stopped; more seeds
    extend the experiment.
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

    brief = " ".join(name for name in Tuning.brief.split() if name not in ("windows", "pooling"))

    def run(self) -> Tuned:
        """Run the seeds, and export the best."""
        ready(self)
        from electra_trainer.tasks.questions import SquadTask

        follow = "released" if self.recipe == "released" else "paper"
        given = {one.name: vars(self)[one.name] for one in fields(SquadTask) if one.name in vars(self)}
        source = SquadTask(**given | {"follow": follow})
        return exported(self, source, next_command=f"answer {self.out / 'model'} --context @FILE --question TEXT")
