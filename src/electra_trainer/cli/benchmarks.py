"""`electra glue MODEL --data DIR --seeds 10 --out EXP`.

`electra squad MODEL --train train-v1.1.json --dev dev-v1.1.json --version 1 --out EXP`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from electra_trainer.cli import flags, main
from electra_trainer.errors import ConfigError

if TYPE_CHECKING:
    from electra_trainer.finetuning.glue.glue_tasks import GlueTask


@dataclass(frozen=True, kw_only=True)
class GlueArguments(flags.ExperimentFlags):
    """Fine-tune an encoder on GLUE, several seeds a task, and print the paper's table.

    The same command resumes where it stopped; more tasks or seeds extend the experiment.
    """

    data: str
    """GLUE's folder (CoLA, SST-2 ... with train.tsv and dev.tsv), or hub."""
    tasks: str = "paper"
    """Names between commas: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax (by mnli's model). paper: the first eight; all: wnli too."""
    limit: int | None = None
    """Train on so many rows of each task at most."""
    predict: bool = False
    """Write the archive for gluebenchmark.com: of each task in --out the seed that is best on dev; of WNLI, untrained, the majority."""
    zip: Path | None = None
    """The archive. Default: submission.zip in --out."""
    fill_missing: bool = False
    """Put majority classes into the archive where a task or a test set is missing. Such scores mean nothing."""


def parse_glue(words: Sequence[str]) -> GlueArguments:
    """Flags -> Arguments; the recipe decides the defaults of its flags."""
    default = GlueArguments(model=tyro.MISSING, data=tyro.MISSING, out=tyro.MISSING, recipe=flags.recipe_flags(words))
    arguments: GlueArguments = main.parse(GlueArguments, words, verb="glue", default=default)
    return arguments


def run_glue(arguments: GlueArguments) -> None:
    """Run the cells, then print the tables, and write the archive if it is wanted."""
    from electra_trainer.files.durable import replace_durably
    from electra_trainer.finetuning.glue.glue_table import (
        best_runs,
        glue_metrics,
        glue_notes,
        markdown,
        task_scores,
        text,
    )
    from electra_trainer.finetuning.glue.submission import write_submission

    archive = arguments.zip or (arguments.out / "submission.zip" if arguments.predict else None)
    if archive is not None and arguments.shard != "1/1":
        raise ConfigError(
            "--shard: an archive is made of all runs. Leave --predict and --zip out until every shard is done."
        )
    summary = arguments.run(arguments.plan(*_tasks(arguments, archive), keep="none"))
    if summary is None:
        return
    scores = task_scores(summary)
    said: tuple[str, ...] = ()
    replace_durably(arguments.out / "glue.md", markdown(scores).encode())
    if archive is not None:
        runs = best_runs(summary, out=arguments.out)
        said = write_submission(archive, folder=arguments.data, runs=runs, fill=arguments.fill_missing)
    if arguments.json:
        found = {"scores": glue_metrics(scores), "notes": [*glue_notes(scores)], "zip": [*said] if archive else None}
        print(json.dumps({"summary": str(arguments.out / "summary.json"), **found}))
        return
    print(text(scores))
    if archive is not None:
        print("\n".join(["", f"{archive}: the best of each task's seeds on dev", *(f"  {line}" for line in said)]))
    print(arguments.out / "glue.md")


def _tasks(arguments: GlueArguments, archive: Path | None) -> "tuple[GlueTask, ...]":
    """The tasks that are asked for, once it is seen that their files are there, and what the archive needs."""
    from electra_trainer.experiments.folder import exists, read
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
        trained = {*names, *(read(arguments.out).rows if exists(arguments.out) else ())}
        require_tables(archive, folder=arguments.data, tasks=trained, fill=arguments.fill_missing)
    return tasks


@dataclass(frozen=True, kw_only=True)
class SquadArguments(flags.ExperimentFlags):
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
    """2.0: `f1` gives no answer where the "no answer" score is above this. Default: -2.75, independent 0; and in the model's folder best_f1's own."""
    limit: int | None = None
    """Train on so many questions only, from all over the file."""
    dev_limit: int | None = None
    """Evaluate on so many questions only."""


def parse_squad(words: Sequence[str]) -> SquadArguments:
    """Flags -> Arguments; the recipe decides the defaults of its flags, and SQuAD those of epochs and rows."""
    default = SquadArguments(
        model=tyro.MISSING,
        train=tyro.MISSING,
        out=tyro.MISSING,
        version=tyro.MISSING,
        recipe=flags.recipe_flags(words, epochs=2.0, max_length=512),
    )
    arguments: SquadArguments = main.parse(SquadArguments, words, verb="squad", default=default)
    return arguments


def run_squad(arguments: SquadArguments) -> None:
    """Run the seeds, print the table, export the best run."""
    from electra_trainer.finetuning.hand_over import export_best
    from electra_trainer.finetuning.squad.squad_task import Squad
    from electra_trainer.settings.records import read_table

    source = Squad(
        train=arguments.train,
        dev=arguments.dev,
        version=arguments.version,
        head=arguments.head,
        follow="released" if arguments.recipe.recipe == "released" else "paper",
        null_threshold=arguments.null_threshold,
        split=arguments.split,
        limit=arguments.limit,
        dev_limit=arguments.dev_limit,
    )
    data = source.load()
    quiet = arguments.quiet or arguments.json
    for note in () if quiet else data.notes:
        print(note)
    if arguments.run(arguments.plan(source, keep="best"), data) is None:
        return
    if not arguments.json:
        print((arguments.out / "summary.md").read_text(encoding="utf-8").strip())
    model = export_best(source, data, model=arguments.model, out=arguments.out).model
    if arguments.json:
        summary = read_table(arguments.out / "summary.json")
        print(json.dumps({"notes": list(data.notes), "summary": summary, "model": str(model)}))
        return
    print(f"{model}: the best run. Ask it: electra answer {model} --context @FILE --question TEXT")
