"""One fine-tuning run, top to bottom: rows, steps, scores, and a folder that says what happened.

config.json       encoder, task, recipe, seed        metrics.jsonl   loss, learning rate and speed of some steps
environment.json  versions, device, git              log.txt         what was said
result.json       the scores, written last           predictions/    one JSON object an example, for each split
checkpoints/      while it trains                    weights/        the fine-tuned weights, where they are kept
timing.json       how long it trained

Dropout, order and first weights are functions of the seed and the step, so a run that was killed goes on and ends in the same bits.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from electra_trainer.data.texts import Text
from electra_trainer.errors import ConfigError, DataError, Diverged, Interrupted
from electra_trainer.experiments.results import RESULT, Result, read_result, write_result
from electra_trainer.files.durable import make_folder, replace_durably
from electra_trainer.finetuning.examples import Prediction
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import Row, TaskData, lengths_of
from electra_trainer.finetuning.texts.tasks import with_pooling
from electra_trainer.finetuning.training_step import (
    Feed,
    FineTuned,
    Order,
    StepResult,
    build_network,
    layer_share,
    predict,
    train_step,
)
from electra_trainer.pretrained.source import Source
from electra_trainer.runs.checkpoint import load_newest, numbered, require_space, save
from electra_trainer.runs.progress import Display, Shows
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.saving import Saver, surely
from electra_trainer.runs.signals import StopRequest
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.records import differences, read_table
from electra_trainer.train.device import choose_device, choose_precision
from electra_trainer.train.measures import BAD_STEPS_IN_A_ROW
from electra_trainer.train.optim import (
    build_optimizer,
    check_optimizer_tensors,
    load_optimizer_tensors,
    optimizer_tensors,
)
from electra_trainer.train.weights import restore

SAVE_EVERY = 60.0
"""Seconds between checkpoints; when one is saved changes no result."""
COLLAPSED = "collapsed: "
"""Begins a task's doubt that everything is told the same."""
FEW_STEPS = 300
"""Fewer make a head that was drawn at random forget little of that; RTE, the paper's shortest, has 770."""
_LOG_EVERY = 10
"""Steps between rows of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one run is; with the same job and device it is the same to the bit, once its precision is settled."""

    source: Source
    data: TaskData
    recipe: Recipe
    seed: int

    def identity(self) -> dict[str, Any]:
        """What config.json holds."""
        return {
            "model": self.source.name,
            "model_sha256": self.source.sha256,
            "task": self.data.task.described(),
            "data_sha256": self.data.sha256,
            "recipe": asdict(self.recipe),
            "seed": self.seed,
        }


@dataclass(kw_only=True)
class _State:
    job: Job
    folder: RunFolder
    network: FineTuned
    optimizer: torch.optim.Optimizer
    feed: Feed
    steps: int
    display: Shows
    saver: Saver
    step: int = 0
    bad_steps: int = 0
    """Steps in a row, up to this one, without a finite gradient."""
    seconds: float = 0.0
    """Of training, earlier sessions included, up to `started`."""
    started: float | None = None
    """When this session's training began; None while there is none."""

    def elapsed(self) -> float:
        return self.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)


def finetune_run(
    job: Job,
    *,
    out: Path,
    device: str = "auto",
    keep_weights: bool = False,
    quiet: bool = False,
    display: Callable[[int], Shows] | None = None,
    stop: Callable[[], str | None] | None = None,
) -> Result:
    """Fine-tune and evaluate, or go on where the run in `out` stopped; a finished one is read.

    Args:
        keep_weights: leave the weights in `out`/weights; a finished run that lacks them is trained again.
        display: shows how it goes, made from the number of steps; by default a bar or lines on standard error.
        stop: names the signal that asks to stop, once there was one; by default SIGINT and SIGTERM are listened to.

    Raises:
        ConfigError: another run is there. Interrupted: stopped by a signal and saved; the same call goes on.
        Diverged: the gradient was no number for several steps. StorageError, CheckpointError: see errors.py.
    """
    folder = RunFolder(out)
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
        state = _prepare(job, folder, device=where, show=display or partial(_shown, quiet=quiet))
        with state.display, state.saver:
            _train(state, stop)
            try:
                scores, doubts = _evaluate(state, stop)
            except Interrupted:
                state.saver.finish(_saved(state))
                raise
        result = Result(
            task=job.data.task.name,
            seed=job.seed,
            steps=state.steps,
            scores=scores,
            doubts=doubts,
            rows=len(state.feed.rows),
            seconds=round(state.seconds, 3),
        )
        folder.sync_rows()
        if keep_weights:
            _keep(state)
        write_result(folder, result)
        return result


def _shown(steps: int, *, quiet: bool) -> Display:
    return Display(total=steps, quiet=quiet)


def is_finished(out: Path, *, keep_weights: bool = False) -> bool:
    """Whether the run in `out` has its result, and its weights if they are asked for; one that diverged has none."""
    if not (out / RESULT).is_file():
        return False
    return not keep_weights or bool(numbered(out / "weights")) or read_result(out).failed is not None


def _begin(folder: RunFolder, job: Job) -> None:
    """Note what the run is, or see that it is the one that began here; the encoder's folder may have moved since."""
    identity = job.identity()
    if not folder.exists:
        folder.begin(identity, {"data_sha256": job.data.sha256})
        return
    began, now = read_table(folder.path / "config.json"), json.loads(json.dumps(identity))  # tuples are lists there
    if changed := differences({**began, "model": ""}, {**now, "model": ""}):
        raise ConfigError(
            f"{folder.path} began otherwise ({'; '.join(changed)}). Repeat the command that it began with to go on, or choose "
            "another --out."
        )


def build_feed(job: Job, *, device: torch.device, precision: str) -> Feed:
    """The training rows of a job, in their order.

    Raises:
        DataError: there are none.
    """
    rows = _training_rows(job, job.source.text(job.recipe.max_length))
    if not rows:
        raise DataError(f"{job.data.task.name}: there are no training rows.")
    return Feed(
        task=job.data.task,
        rows=rows,
        order=Order(lengths_of(rows), batch_size=job.recipe.batch_size, seed=job.seed),
        specials=job.source.specials,
        recipe=job.recipe,
        seed=job.seed,
        device=device,
        precision=precision,
    )


def _prepare(job: Job, folder: RunFolder, *, device: torch.device, show: Callable[[int], Shows]) -> _State:
    """Rows, network and optimizer, and the newest checkpoint put back."""
    feed = build_feed(job, device=device, precision=job.recipe.precision)
    steps = feed.steps
    network = build_network(job.source, job.data.task, job.recipe, seed=job.seed).to(device)
    display = show(steps)
    share = layer_share(job.recipe, job.source.model.num_hidden_layers)
    state = _State(
        job=job,
        folder=folder,
        network=network,
        optimizer=build_optimizer(network, job.recipe.optimizer, share),
        feed=feed,
        steps=steps,
        display=display,
        saver=Saver(folder, keep=1, say=partial(_tell, display, folder, style="bold red")),
    )
    warn = partial(_say, state, style="bold red")
    saved = load_newest(folder.checkpoints, origin=folder.origin, warn=warn, network=lambda: network)
    if saved is not None:
        restore(network, saved.weights)
        check_optimizer_tensors(network, saved.optimizer)
        load_optimizer_tensors(network, state.optimizer, saved.optimizer.items())
        state.step, state.seconds = saved.step, float(saved.state["seconds"])
        state.bad_steps = saved.state.get("bad_steps", 0)
        _say(state, f"resuming at step {state.step:,} of {steps:,}")
    else:
        require_space(folder.path, 16 * sum(parameter.numel() for parameter in network.parameters()))
    folder.forget_after(state.step, warn)
    return state


def _training_rows(job: Job, text: Text) -> list[Row]:
    task, train = job.data.task, job.data.train
    rows = task.rows(train, text, training=True)
    if job.recipe.double_unordered and job.data.unordered_pairs:
        swapped = [replace(example, text=example.pair, pair=example.text) for example in train]
        rows += task.rows(swapped, text, training=True)
    return rows


def _train(state: _State, stop: Callable[[], str | None]) -> None:
    state.started = last_saved = since = time.monotonic()
    tokens = 0
    state.network.train()
    while state.step < state.steps:
        result = train_step(state.network, state.optimizer, state.feed, step=state.step)
        state.step += 1
        tokens += result.tokens
        state.bad_steps = 0 if result.finite else state.bad_steps + 1
        if not result.finite:
            _say(state, f"step {state.step}: the gradient is not a finite number; the step was skipped", style="yellow")
        if state.bad_steps >= BAD_STEPS_IN_A_ROW:
            raise Diverged(
                f"the gradient was not a finite number for {state.bad_steps} steps, up to step {state.step}. "
                "Lower --learning-rate."
            )
        now = time.monotonic()
        if state.step % _LOG_EVERY == 0 or state.step == state.steps:
            _log(state, result, tokens_per_second=tokens / max(now - since, 1e-9))
            tokens, since = 0, now
        name = stop()
        if name:
            state.saver.finish(_saved(state))
        elif now - last_saved > SAVE_EVERY:
            state.saver.begin(_saved(state))
            last_saved = now
        else:
            state.saver.check()
        if name:
            raise Interrupted(
                f"{name}: saved at step {state.step:,} of {state.steps:,}. The same command goes on from there."
            )
    state.seconds, state.started = state.elapsed(), None


def _log(state: _State, result: StepResult, *, tokens_per_second: float) -> None:
    row = {
        "step": state.step,
        "loss": result.loss,
        "learning_rate": result.learning_rate,
        "gradient_norm": result.gradient_norm,
    }
    state.folder.append("metrics.jsonl", {**row, "tokens_per_second": round(tokens_per_second, 1)})
    last = state.step == state.steps
    state.display.step(state.step, {"loss": result.loss}, tokens_per_second=tokens_per_second, last=last)


def _evaluate(state: _State, stop: Callable[[], str | None]) -> tuple[dict[str, dict[str, float]], tuple[str, ...]]:
    """Predict every split, write the predictions down, and score those with answers."""
    data = state.job.data
    text = state.job.source.text(state.job.recipe.max_length)
    scores: dict[str, dict[str, float]] = {}
    doubts: list[str] = []
    for split, examples in {**data.dev, **data.test}.items():
        predictions = predict(
            state.network,
            state.job.data.task,
            examples,
            text=text,
            device=state.feed.device,
            precision=state.feed.precision,
            stop=stop,
        )
        _write_predictions(state.folder, split, predictions)
        if split in data.dev:
            scores[split] = data.task.score(examples, predictions)
            doubts += [f"{split}: {doubt}" for doubt in data.task.doubts(examples, predictions)]
    if any(COLLAPSED in doubt for doubt in doubts):
        doubts.append(_advice(state.steps))
    for doubt in doubts:
        _say(state, f"WARNING: {doubt}", style="bold red")
    return scores, tuple(doubts)


def _advice(steps: int) -> str:
    """What to try where a run says the same of everything: after few steps it has hardly begun to learn."""
    if steps < FEW_STEPS:
        return f"after {steps:,} steps only: try more epochs or a higher learning rate (--epochs, --learning-rate)."
    return f"after {steps:,} steps: try another learning rate, a higher one for a narrow encoder, more epochs or other seeds."


def _write_predictions(folder: RunFolder, split: str, predictions: Sequence[Prediction]) -> None:
    path = folder.path / "predictions" / f"{split}.jsonl"
    make_folder(path.parent)
    replace_durably(path, "".join(json.dumps(prediction) + "\n" for prediction in predictions).encode())


def _saved(state: _State) -> Saved:
    return Saved(
        step=state.step,
        weights=dict(state.network.named_parameters()),
        optimizer=optimizer_tensors(state.network, state.optimizer),
        state={"seconds": state.elapsed(), "bad_steps": state.bad_steps},
    )


def _keep(state: _State) -> None:
    """Keep the weights, as a checkpoint keeps them: whole or not at all."""
    saved = Saved(step=state.steps, weights=dict(state.network.named_parameters()), optimizer={}, state={})
    place, origin = state.folder.path / "weights", state.folder.origin
    surely(lambda: save(place, saved, origin=origin, keep=1), say=lambda line: _say(state, line, style="bold red"))


def _say(state: _State, line: str, style: str | None = None) -> None:
    _tell(state.display, state.folder, line, style=style)


def _tell(display: Shows, folder: RunFolder, line: str, style: str | None = None) -> None:
    display.say(line, style=style)
    folder.log(line.strip())
