"""The probe `glue=FOLDER`: the kept encoder fine-tuned on the tasks of GLUE that are in a folder, by the paper's recipe (Table 6)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from electra_trainer.errors import MissingInputError
from electra_trainer.finetune.glue import PAPER, GlueTask, tasks_in
from electra_trainer.finetune.glue_table import Spread, TaskScores, glue_metrics
from electra_trainer.finetune.recipe import recipe
from electra_trainer.finetune.run import Job, finetune_run
from electra_trainer.finetune.source import load_source


def probe_glue(run: Path, folder: Path, *, seed: int, device: str) -> dict[str, float]:
    """Scores on the dev sets by the names of the paper's columns, `cola`, `sst` ... and `average` if all eight tasks are there.

    Each task is a run folder of its own in `glue/` beside `run`, so that what was done is not done again.

    Raises:
        Interrupted: stopped and saved. ElectraError: as the files and `finetune_run`.
    """
    source = load_source(run)
    scores = []
    for task in _tasks(folder):
        given = GlueTask(folder=str(folder), task=task, test=False)
        settings = recipe("paper", hidden_size=source.model.hidden_size, epochs=given.epochs)
        job = Job(source=source, data=given.load(), recipe=settings.fitted(source.length), seed=seed)
        result = finetune_run(job, out=run.parent / "glue" / task, device=device, quiet=True)
        by_split = {
            split: {metric: Spread(by_seed={seed: value}) for metric, value in values.items()}
            for split, values in result.scores.items()
        }
        scores.append(TaskScores(task=task, scores=by_split))
    return {name.removeprefix("glue/"): value for name, value in glue_metrics(scores).items()}


def glue_fingerprint(folder: Path) -> str:
    """A hash of the files that the probe reads, all of which are read.

    Raises:
        MissingInputError, DataError: no task is there, or a row is none.
    """
    digest = hashlib.sha256()
    for task in _tasks(folder):
        digest.update(task.encode() + b"\0")
        digest.update(GlueTask(folder=str(folder), task=task, test=False).load().sha256.encode())
    return digest.hexdigest()


def _tasks(folder: Path) -> list[str]:
    found = [task for task in tasks_in(folder) if task in PAPER]
    if not found:
        raise MissingInputError(
            f"--probe glue={folder}: holds no task of GLUE. Expected folders such as CoLA and RTE with train.tsv and dev.tsv."
        )
    return found
