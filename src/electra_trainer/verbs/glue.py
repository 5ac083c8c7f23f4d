"""`electra glue MODEL --data DIR --seeds 10 --out EXP`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from electra_trainer.verbs.recipe_flags import RecipeFlags

if TYPE_CHECKING:
    from electra_trainer.finetune.glue import GlueTask


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Fine-tune an encoder on GLUE, several seeds a task, and print the paper's table.

    The same command again goes on where it stopped; more tasks or seeds extend the experiment.
    """

    model: tyro.conf.Positional[str]
    """Run folder, exported folder, or Hub name such as google/electra-small-discriminator."""
    data: str
    """GLUE's folder (CoLA, SST-2 ... with train.tsv and dev.tsv), or hub."""
    out: Path
    """Folder of the experiment: a new one, or one to go on with or extend."""
    tasks: str = "paper"
    """Names between commas: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax (by mnli's model). paper: the first eight; all: wnli too."""
    seeds: str = "3"
    """How many, or which: 10 is 1,2,...,10; the paper's medians are of ten."""
    recipe: tyro.conf.OmitArgPrefixes[RecipeFlags] = field(default_factory=RecipeFlags)
    """How the encoder is fine-tuned."""
    floors: bool = False
    """Also the majority class, a bag of words, and the same encoder untrained: what a score has to beat."""
    limit: int | None = None
    """Train on so many rows of each task at most."""
    parallel: int | None = None
    """Runs at a time. Default: as many as there are cores or GPUs for."""
    predict: bool = False
    """Write the archive for gluebenchmark.com: of each task in --out the seed that is best on dev; of WNLI, untrained, the majority."""
    zip: Path | None = None
    """The archive. Default: submission.zip in --out."""
    fill_missing: bool = False
    """Put majority classes into the archive where a task or a test set is missing. Such scores mean nothing."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    json: bool = False
    """Print one JSON object."""
    quiet: bool = False
    """Print the tables only."""


def run(arguments: Arguments) -> None:
    """Run the cells, then print the tables, and write the archive if it is wanted."""
    import json

    from electra_trainer.analysis.experiment import parse_seeds
    from electra_trainer.durable import replace_durably
    from electra_trainer.finetune.experiment import Plan, run_plan
    from electra_trainer.finetune.glue_submission import write_submission
    from electra_trainer.finetune.glue_summary import best_runs, task_scores
    from electra_trainer.finetune.glue_table import glue_metrics, glue_notes, markdown, text

    archive = arguments.zip or (arguments.out / "submission.zip" if arguments.predict else None)
    plan = Plan(
        model=arguments.model,
        tasks=_tasks(arguments, archive),
        recipe=arguments.recipe.recipe,
        changes=arguments.recipe.changes(),
        seeds=parse_seeds(arguments.seeds),
        floors=arguments.floors,
        keep="none",
    )
    summary = run_plan(
        plan,
        out=arguments.out,
        device=arguments.device,
        parallel=arguments.parallel,
        quiet=arguments.quiet or arguments.json,
    )
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


def _tasks(arguments: Arguments, archive: Path | None) -> tuple[GlueTask, ...]:
    """The tasks that are asked for, once it is seen that their files are there, and what the archive needs."""
    from electra_trainer.finetune.experiment_file import exists, read
    from electra_trainer.finetune.glue import GlueTask, parse_tasks
    from electra_trainer.finetune.glue_submission import require_tables

    names = parse_tasks(arguments.tasks)
    tasks = tuple(
        GlueTask(folder=arguments.data, task=name, limit=arguments.limit)
        for name in names
        if name != "ax" or "mnli" not in names  # else GlueTask says that mnli is needed
    )
    for task in tasks:
        task.require_files()
    if archive is not None:
        trained = {*names, *(read(arguments.out).tasks if exists(arguments.out) else ())}
        require_tables(archive, folder=arguments.data, tasks=trained, fill=arguments.fill_missing)
    return tasks
