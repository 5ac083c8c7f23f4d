"""One fine-tuning run, top to bottom: rows, steps, scores, and a folder with all that happened.

config.json       encoder, task, recipe, seed        metrics.jsonl   loss, learning rate and speed of some steps
environment.json  versions, device, git              log.txt         lines that were shown
result.json       the scores, written last           predictions/    one JSON object an example, for each split
checkpoints/      while it trains                    weights/        the fine-tuned weights, where they are kept

Dropout, order and first weights are functions of the seed and the step, so a run that was killed resumes and ends with
the same bits.
"""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from electra_trainer.errors import ConfigError, DataError, Interrupted
from electra_trainer.experiments.cell import RESULT, Result, environment_of, joined, read_result, write_result
from electra_trainer.files.durable import make_folder, replace_durably
from electra_trainer.finetuning import training_step
from electra_trainer.finetuning.examples import jsonl
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import TaskData, legibility_of, lengths_of
from electra_trainer.finetuning.texts.tasks import with_pooling
from electra_trainer.pretrained.source import Source
from electra_trainer.runs import checkpoint, progress, run_folder, verified
from electra_trainer.runs.signals import StopRequest
from electra_trainer.settings.records import differences, read_table
from electra_trainer.train import resumable, step
from electra_trainer.train.device import choose_device, choose_precision
from electra_trainer.train.weights import stored

SAVE_EVERY = 60.0
"""Seconds between checkpoints; when one is saved changes no result."""
COLLAPSED = "collapsed: "
"""Begins a task's doubt that all its predictions are the same."""
FEW_STEPS = 300
"""Fewer make a head that was drawn at random forget little of that; RTE, the paper's shortest, has 770."""
_LOG_EVERY = 10
"""Steps between rows of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Specification of one run; with the same job and device it is the same to the bit, once its precision is
    settled.
    """

    source: Source
    data: TaskData
    recipe: Recipe
    seed: int
    key: str = ""
    """The row of an experiment; empty: the task's name."""

    def identity(self) -> dict[str, Any]:
        """Content of config.json."""
        return {
            "model": self.source.name,
            "model_sha256": self.source.sha256,
            "task": self.data.task.described(),
            "data_sha256": self.data.sha256,
            "recipe": asdict(self.recipe),
            "seed": self.seed,
        }


@dataclass(kw_only=True)
class FineTuning(resumable.Resumable[training_step.FineTuned]):
    """A run in progress."""

    job: Job
    feed: training_step.Feed
    last_saved: float = 0.0

    keeps_checkpoints = False
    remedy = "--learning-rate"

    def before_steps(self, stop: Callable[[], str | None]) -> None:
        """See `Resumable`."""
        if self.step == 0:
            training_step.fit_head(self.network, self.feed, stop)
        self.last_saved = time.monotonic()

    def compute(self, *, logged: bool) -> step.StepResult:
        """See `Resumable`."""
        return training_step.train_step(self.network, self.optimizer, self.feed, step=self.step)

    def save_due(self) -> bool:
        """Every `SAVE_EVERY` seconds."""
        due = time.monotonic() - self.last_saved > SAVE_EVERY
        if due:
            self.last_saved = time.monotonic()
        return due


def finetune_run(
    job: Job,
    *,
    out: Path,
    device: str = "auto",
    keep_weights: bool = False,
    quiet: bool = False,
    display: Callable[[int], progress.Shows] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> Result:
    """Fine-tune and evaluate, or resume the run in `out`; a finished one is read.

    Args:
        keep_weights: leave the weights in `out`/weights; a finished run that lacks them is trained again.
        display: shows how it goes, made from the number of steps; by default a bar or lines on standard error.
        stop: names the signal that asks to stop, once there was one; by default those of `signals.STOP` are listened
            to.

    Raises:
        ConfigError: another run is there. Interrupted: stopped by a signal and saved; the same call resumes it.
        Diverged: the gradient was not finite for several steps. StorageError, CheckpointError: see errors.py.
    """
    folder = run_folder.RunFolder(out)
    where = choose_device(device)
    precision = choose_precision(job.recipe.precision, where)
    data, recipe = with_pooling(job.data, replace(job.recipe, precision=precision))  # type: ignore[arg-type]
    job = replace(job, recipe=recipe, data=data)
    with closing(folder), ExitStack() as stack:
        folder.open_for_writing()
        _begin(folder, job)
        if is_finished(out, keep_weights=keep_weights):
            shutil.rmtree(folder.checkpoints, ignore_errors=True)  # it may have been killed before it did so itself
            return read_result(out)
        if stop is None:
            stop = partial(getattr, stack.enter_context(StopRequest()), "name")
        show = display or (lambda steps: progress.Display(total=steps, quiet=quiet, silent=quiet))
        run = _built(job, folder, device=where, show=show)
        run.resume()
        assert run.saver is not None
        with run.display, run.saver:
            run.train(stop)
            try:
                scores, doubts = _evaluate(run, stop)
            except Interrupted:
                run.save(checkpoint.Saver.finish)
                raise
        result = Result(
            key=job.key or job.data.task.name,
            seed=job.seed,
            facts={"steps": run.steps, "rows": len(run.feed.rows), "seconds": round(run.seconds, 3)},
            scores=joined(scores),
            doubts=doubts,
            environment=environment_of(out),
        )
        folder.sync_rows()
        if keep_weights:
            _keep(run)
        write_result(out, result)
        shutil.rmtree(folder.checkpoints, ignore_errors=True)
        return result


def is_finished(out: Path, *, keep_weights: bool = False) -> bool:
    """Whether the run in `out` has its result, and its weights if they are asked for; one that diverged has none."""
    if not (out / RESULT).is_file():
        return False
    return not keep_weights or bool(checkpoint.numbered(out / "weights")) or read_result(out).failed is not None


def _begin(folder: run_folder.RunFolder, job: Job) -> None:
    """Note what the run is, or see that it is the one that began here; the encoder's folder may have moved since."""
    identity = job.identity()
    if not folder.exists:
        folder.begin(identity, {"data_sha256": job.data.sha256})
        return
    began, now = read_table(folder.path / "config.json"), json.loads(json.dumps(identity))  # tuples are lists there
    if changed := differences({**began, "model": ""}, {**now, "model": ""}):
        raise ConfigError(
            f"{folder.path} began otherwise ({'; '.join(changed)}). {run_folder.remedy(folder.environment())}"
        )


def build_feed(job: Job, *, device: torch.device, precision: str) -> training_step.Feed:
    """The training rows of a job, in their order.

    Raises:
        DataError: there are none.
    """
    task, train, text = job.data.task, job.data.train, job.source.text(job.recipe.max_length)
    rows = task.rows(train, text, training=True)
    if job.recipe.double_unordered and job.data.unordered_pairs:
        swapped = [replace(example, text=example.pair, pair=example.text) for example in train]
        rows += task.rows(swapped, text, training=True)
    if not rows:
        raise DataError(f"{task.name}: there are no training rows.")
    lengths, by_length = lengths_of(rows), job.recipe.batches == "by-length"
    order = training_step.Order(lengths, batch_size=job.recipe.batch_size, seed=job.seed, by_length=by_length)
    return training_step.Feed(
        task=task,
        rows=rows,
        order=order,
        specials=job.source.specials,
        recipe=job.recipe,
        seed=job.seed,
        device=device,
        precision=precision,
    )


def _built(
    job: Job, folder: run_folder.RunFolder, *, device: torch.device, show: Callable[[int], progress.Shows]
) -> FineTuning:
    """Rows, and the network as it begins, on the CPU."""
    feed = build_feed(job, device=device, precision=job.recipe.precision)
    network = training_step.build_network(job.source, job.data.task, job.recipe, seed=job.seed)
    share = training_step.layer_share(
        job.recipe, job.source.model.num_hidden_layers, head=getattr(network.head, "rate_share", 1.0)
    )
    job.data.task.prepare(network.head, job.data.train, job.source.text(job.recipe.max_length))
    return FineTuning(
        network=network,
        folder=folder,
        device=device,
        precision=job.recipe.precision,
        settings=job.recipe.optimizer,
        share=share,
        steps=feed.steps,
        log_every=_LOG_EVERY,
        keep=1,
        display=show(feed.steps),
        job=job,
        feed=feed,
    )


def _evaluate(run: FineTuning, stop: Callable[[], str | None]) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Predict every split, write the predictions down, and score those with answers."""
    data, text = run.job.data, run.job.source.text(run.job.recipe.max_length)
    scores: dict[str, dict[str, float]] = {}
    doubts: list[str] = []
    for split, examples in {**data.dev, **data.test}.items():
        predictions = training_step.predict(
            run.network, data.task, examples, text=text, device=run.device, precision=run.precision, stop=stop
        )
        path = run.folder.path / "predictions" / f"{split}.jsonl"
        make_folder(path.parent)
        replace_durably(path, jsonl(predictions).encode())
        if split in data.dev:
            scores[split] = data.task.score(examples, predictions)
            doubts += [f"{split}: {doubt}" for doubt in data.task.doubts(examples, predictions)]
    if any(COLLAPSED in doubt for doubt in doubts):
        # after few steps a run has hardly begun to learn
        few = run.steps < FEW_STEPS
        more = "try more epochs or a higher learning rate (--epochs, --learning-rate)"
        another = "try another learning rate, a higher one for a narrow encoder, more epochs or other seeds"
        advice = more if few else another
        if legibility_of(data.task, data.train, text).hinders:
            advice = (
                "the encoder does not read enough of the texts; first mend what is noted on unreadable letters and cuts"
            )
        doubts.append(f"after {run.steps:,} steps{' only' if few else ''}: {advice}.")
    for doubt in doubts:
        run.say(f"WARNING: {doubt}", style="bold red")
    return scores, tuple(doubts)


def _keep(run: FineTuning) -> None:
    """Keep the weights, as a checkpoint keeps them: whole or not at all."""
    saved = verified.Saved(step=run.steps, weights=stored(run.network), optimizer={}, state={})
    place, origin = run.folder.path / "weights", run.folder.origin
    checkpoint.surely(lambda: checkpoint.save(place, saved, origin=origin, keep=1), say=run.warn)
