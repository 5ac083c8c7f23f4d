"""One fine-tuning run, top to bottom: rows, steps, scores, and a folder with all that happened.

config.json       encoder, task, recipe, seed        metrics.jsonl   loss, learning rate and speed of some steps
environment.json  versions, device, git              log.txt         lines that were shown
result.json       the scores, written last           predictions/    one JSON object an example, for each split
checkpoints/      while it trains                    weights/        the fine-tuned weights, where they are kept

Dropout, order and first weights are functions of the seed and the step, so a run that was killed resumes and ends with
the same bits. Rows of similar length are read together, so that little is computed on padding: each epoch is shuffled,
sorted by length within windows of some batches, and its batches shuffled again (`batches = "random"`: shuffled alone).
A step is a pure function of (weights, batches, step).
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from electra_trainer import errors, randomness
from electra_trainer.batch import Batch
from electra_trainer.data.batches import by_length, padded
from electra_trainer.data.tokenizer import Specials, Text
from electra_trainer.errors import ConfigError, DataError, Interrupted
from electra_trainer.experiments import cell as cells
from electra_trainer.experiments.cell import Result
from electra_trainer.files.durable import make_folder, replace_durably
from electra_trainer.finetuning.graphs import Graphs
from electra_trainer.model.attention import Dropout
from electra_trainer.model.encoder import Encoder
from electra_trainer.pretrained.source import Source
from electra_trainer.runs import checkpoint, progress, run_folder, verified
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.signals import StopRequest
from electra_trainer.settings.records import differences, read_table
from electra_trainer.tasks.examples import Prediction, jsonl
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import Row, Task, TaskData, lengths_of
from electra_trainer.train import resumable, step
from electra_trainer.train.device import autocast, choose_device, choose_precision
from electra_trainer.train.optim import learning_rate
from electra_trainer.train.step import StepResult, update
from electra_trainer.train.weights import restore, stored

_LAYER = re.compile(r"electra\.encoder\.layer\.(\d+)\.")
_LAST_NORM = "electra.encoder.final_norm.weight"


class FineTunedNetwork(nn.Module):
    """Encoder, dropout, head. Parameter names are transformers' own below `electra`."""

    def __init__(self, encoder: Encoder, head: nn.Module, *, dropout: float) -> None:
        super().__init__()
        self.electra = encoder
        self.dropout = Dropout(dropout)
        self.head = head

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states for the head, fp32 [B, T, D]; the head itself is the task's to call, outside of autocast.

        A head with a method `read_states` reads other states than the last layer's, and has its own dropout: see
        `PairHead`.
        """
        if read_states := getattr(self.head, "read_states", None):
            read: Tensor = read_states(self.electra, batch)
            return read
        hidden_BTD: Tensor = self.dropout(self.electra(batch.ids_BT, batch).float())
        return hidden_BTD


def build_network(source: Source, task: Task, recipe: Recipe, *, seed: int) -> FineTunedNetwork:
    """The source's encoder with a fresh head: Glorot-uniform weights, biases 0 (released), drawn by `seed`.

    The recipe's `head_dropout` decides on dropout between the two, its `zero_head` whether the last matrix is 0 too.
    """
    encoder = source.encoder(dropout=recipe.dropout, attention_dropout=recipe.attention_dropout)
    dropout = recipe.dropout if task.whole_text or recipe.head_dropout == "all" else 0.0
    head = task.head(replace(source.model, hidden_dropout_prob=dropout))
    matrices = [name for name, parameter in head.named_parameters() if parameter.dim() > 1]
    for name, parameter in head.named_parameters():
        with torch.no_grad():
            if recipe.zero_head and name == matrices[-1]:
                parameter.zero_()
            elif parameter.dim() < 2:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)  # of a LayerNorm
            else:
                generator = torch.Generator().manual_seed(randomness.key(seed, f"weights/head/{name}"))
                nn.init.xavier_uniform_(parameter, generator=generator)
    return FineTunedNetwork(encoder, head, dropout=dropout)


@torch.no_grad()
def fit_head(network: FineTunedNetwork, batches: "Batches", stop: Callable[[], str | None] = lambda: None) -> None:
    """Let the task fit its head to the rows of the run; dropout is off meanwhile.

    Raises:
        Interrupted: `stop` named a signal. Diverged: the encoder's output is NaN or infinite.
    """
    job, device, precision = batches.job, batches.device, batches.job.recipe.precision
    read = partial(outputs, network.eval(), specials=job.source.specials, device=device, precision=precision, stop=stop)
    job.data.task.fit_head(network.head, batches.rows, read)
    network.train()


def layer_share(recipe: Recipe, layers: int, *, head: float = 1.0) -> Callable[[str], float]:
    """Parameter name -> its share of the learning rate (Appendix B; released `_get_layer_lrs`).

    The head has `head`, 1 if it was drawn; layer i of n, counted from 0, layer_decay ** (n - 1 - i + top_layer_power);
    the embeddings and their projection one power more than layer 0. With a power of 2 these are the released code's
    multipliers.
    """

    def share(name: str) -> float:
        if name.startswith("head."):
            return head
        found = _LAYER.match(name)
        depth = int(found[1]) if found else layers - 1 if name == _LAST_NORM else -1
        return float(recipe.layer_decay ** (layers - 1 - depth + recipe.top_layer_power))

    return share


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The rows of a job in their order, and where its steps are computed."""

    job: "Job"
    rows: Sequence[Row]
    order: "Order"
    device: torch.device

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.order.steps(self.job.recipe.epochs)

    def batch(self, step: int) -> list[Row]:
        """Rows of step `step`, counted from 0."""
        return [self.rows[index] for index in self.order.at(step)]


def tuning_step(
    network: FineTunedNetwork, optimizer: Optimizer, batches: Batches, *, step: int, graphs: Graphs | None = None
) -> StepResult:
    """Forward, backward and update for step `step`, counted from 0; its loss is that of a row, or a token: what the
    task counts.
    """
    recipe, rows = batches.job.recipe, batches.batch(step)
    loss = accumulate(network, batches, rows, step=step, graphs=graphs)
    steps = max(2, batches.steps)  # the last rate of a schedule is 0: a single step has the first of two
    schedule, warmup = recipe.schedule_of(steps), recipe.warmup_of(steps)
    rate = learning_rate(step, peak=recipe.learning_rate, schedule=schedule, warmup=warmup)
    norm, finite = update(network, optimizer, clip_norm=recipe.clip_norm, rate=rate)
    tokens = sum(len(row.ids) for row in rows)
    return StepResult(finite=finite, gradient_norm=norm, learning_rate=rate, metrics={"loss": loss}, tokens=tokens)


def accumulate(
    network: FineTunedNetwork, batches: Batches, rows: Sequence[Row], *, step: int, graphs: Graphs | None = None
) -> float:
    """Add the gradient of `rows` to the parameters', in portions of `micro_batch` rows; return the mean loss.

    The portions do not change the gradient: losses are summed, and divided once if the recipe asks for the mean.
    """
    job = batches.job
    graphs = graphs or Graphs(network=network, precision=job.recipe.precision, device=batches.device)
    size = min(job.recipe.micro_batch or len(rows), len(rows))
    mean, whole = job.recipe.reduction == "mean", size == len(rows)
    total, count = torch.zeros((), device=batches.device), 0
    for lane, first in enumerate(range(0, len(rows), size)):
        part = rows[first : first + size]
        batch = collate(part, job.source.specials, batches.device)
        compute = graphs.of(batch) if whole else graphs.plain  # a graph's gradients of two portions share their memory
        randomness.Rng(job.seed, step, lane).seed_dropout()
        loss, counted = job.data.task.loss(network.head, compute(*vars(batch).values()), batch, part)
        total, count = total + loss.detach(), count + counted
        if mean and whole:  # one number, instead of all gradients
            loss = loss / max(count, 1)
        loss.backward()  # type: ignore[no-untyped-call]
    if mean and not whole:
        torch._foreach_div_([p.grad for p in network.parameters() if p.grad is not None], max(count, 1))
    return float(total) / max(count, 1)  # read last, so that nothing waits before the backward pass


WINDOW = 50
"""Batches among which rows are sorted by length."""
_GPU_MULTIPLE = 16
"""A GPU's rows are padded to a multiple of this: few shapes, and sizes that its matrix units are fast with."""


class Order:
    """The batches of a run. An epoch is rows // batch_size batches; the leftover rows differ from epoch to epoch."""

    def __init__(self, lengths: NDArray[np.int64], *, batch_size: int, seed: int, by_length: bool = True) -> None:
        self.lengths, self.batch_size, self.seed = lengths, min(batch_size, len(lengths)), seed
        self.by_length = by_length
        self.per_epoch = len(lengths) // self.batch_size
        self._epoch = lru_cache(maxsize=1)(self._plan)

    def steps(self, epochs: float) -> int:
        """Steps in `epochs` epochs, at least 1 (released: rows // batch_size * epochs)."""
        return max(1, int(self.per_epoch * epochs))

    def at(self, step: int) -> NDArray[np.int64]:
        """Indices of the rows of step `step`, counted from 0."""
        batch: NDArray[np.int64] = self._epoch(step // self.per_epoch)[step % self.per_epoch]
        return batch

    def _plan(self, epoch: int) -> NDArray[np.int64]:
        random = np.random.default_rng(randomness.key(self.seed, "fine-tuning order", epoch))
        shuffled = random.permutation(len(self.lengths))[: self.per_epoch * self.batch_size]
        if not self.by_length:
            return shuffled.reshape(self.per_epoch, self.batch_size)
        reach = WINDOW * self.batch_size
        windows = [shuffled[first : first + reach] for first in range(0, len(shuffled), reach)]
        sorted_rows = np.concatenate([rows[np.argsort(self.lengths[rows], kind="stable")] for rows in windows])
        batches: NDArray[np.int64] = sorted_rows.reshape(self.per_epoch, self.batch_size)
        return batches[random.permutation(self.per_epoch)]


def collate(rows: Sequence[Row], specials: Specials, device: torch.device) -> Batch:
    """Rows as a batch on `device`, padded to the longest of them."""
    return padded([row.ids for row in rows], specials, multiple=_multiple(device)).to(device)


def _multiple(device: torch.device) -> int:
    return _GPU_MULTIPLE if device.type == "cuda" else 1


def outputs(
    network: FineTunedNetwork,
    rows: Sequence[Row],
    *,
    specials: Specials,
    device: torch.device,
    precision: str,
    stop: Callable[[], str | None] = lambda: None,
) -> Iterator[tuple[NDArray[np.int64], Tensor, Batch]]:
    """Indices of some rows, the network's output for them (fp32 [B, T, D]) and their batch, until all have been read.

    Raises:
        Interrupted: `stop` named a signal.
    """
    for indices in by_length(lengths_of(rows), multiple=_multiple(device)):
        if name := stop():
            raise errors.Interrupted(f"{name}: stopped while predicting. The same command resumes.")
        batch = collate([rows[index] for index in indices], specials, device)
        with autocast(precision, device):
            hidden_BTD = network(batch)
        yield indices, hidden_BTD, batch


@torch.no_grad()
def predict(
    network: FineTunedNetwork,
    task: Task,
    examples: Sequence[Any],
    *,
    text: Text,
    device: torch.device,
    precision: str,
    rows: Sequence[Row] | None = None,
    stop: Callable[[], str | None] = lambda: None,
) -> list[Prediction]:
    """One prediction per example, dropout off.

    Args:
        rows: those of the examples, where they have been made.

    Raises:
        Interrupted: `stop` named a signal.
    """
    rows = task.rows(examples, text, training=False) if rows is None else rows
    predicted: list[Any] = [None] * len(rows)
    network.eval()
    read = outputs(network, rows, specials=text.specials, device=device, precision=precision, stop=stop)
    for indices, hidden_BTD, batch in read:
        part = [rows[index] for index in indices]
        for index, value in zip(indices, task.read(network.head, hidden_BTD, batch, part), strict=True):
            predicted[index] = value
    return task.predict(examples, rows, predicted)


SAVE_EVERY = 60.0
"""Seconds between checkpoints; when one is saved changes no result."""
COLLAPSED = "collapsed: "
"""Begins a task's doubt that all its predictions are the same."""
BEST = "best"
"""Folder of the best epoch's weights while the run trains (`--keep best`)."""
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


@dataclass(kw_only=True)
class FineTuningRun(resumable.Resumable[FineTunedNetwork]):
    """A run in progress."""

    job: Job
    batches: Batches
    last_saved: float = 0.0
    best: tuple[int, float] | None = None
    """Step and main score of the best epoch so far, where epochs are scored."""
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """Split -> its rows, of the split that was predicted last."""
    stop: Callable[[], str | None] = lambda: None
    graphs: Graphs | None = None

    keeps_checkpoints = False
    remedy = "--learning-rate"

    def before_steps(self, stop: Callable[[], str | None]) -> None:
        """See `Resumable`."""
        self.stop = stop
        self.graphs = Graphs(network=self.network, precision=self.precision, device=self.device)
        if self.step == 0:
            fit_head(self.network, self.batches, stop)
        if self.job.recipe.keep == "best":
            scored = self._scored()
            self.best = max(scored, key=lambda one: (one[1], -one[0]), default=None)
            if self.step > 0 and self._epoch_ends() and self.step not in dict(scored):
                self._score_epoch()
        self.last_saved = time.monotonic()

    def compute(self, *, logged: bool) -> step.StepResult:
        """See `Resumable`."""
        return tuning_step(self.network, self.optimizer, self.batches, step=self.step, graphs=self.graphs)

    def after_step(self) -> None:
        """See `Resumable`: after an epoch dev is scored, where the best one is kept."""
        if self.job.recipe.keep == "best" and self._epoch_ends():
            self._score_epoch()

    @property
    def epochs(self) -> float:
        """Epochs that are done."""
        return self.step / self.batches.order.per_epoch

    def predictions(self, split: str, task: Task, stop: Callable[[], str | None]) -> list[Prediction]:
        """Predictions for a split, as `predict`; its rows are made once for all epochs. If it is stopped, it saves."""
        data, text = self.job.data, self.job.source.text(self.job.recipe.max_length)
        examples = {**data.dev, **data.tested, **data.test}[split]
        if split not in self.rows:
            self.rows = {split: task.rows(examples, text, training=False)}
        how: dict[str, Any] = {"device": self.device, "precision": self.precision, "stop": stop}
        try:
            return predict(self.network, task, examples, text=text, rows=self.rows[split], **how)
        except Interrupted:
            self.save(checkpoint.Saver.finish)
            raise

    def _epoch_ends(self) -> bool:
        return self.step % self.batches.order.per_epoch == 0 or self.step == self.batches.steps

    def _score_epoch(self) -> None:
        """Score dev's main split, and keep the weights if none were better."""
        data, metric = self.job.data, self.job.data.task.metric
        split, examples = next(iter(data.dev.items()))
        scores = data.task.score(examples, self.predictions(split, data.task, self.stop))
        self.network.train()
        better = self.best is None or scores[metric] > self.best[1]
        if better:
            self.best = self.step, scores[metric]
            self.keep_weights(BEST, step=self.step)
        row = {"step": self.step, "split": split, "epoch": round(self.epochs, 3), **scores}
        self.folder.append(run_folder.METRICS, row)
        shown = f"{metric.replace('_', ' ')} {cells.printed(scores[metric], metric)}{', the best so far' * better}"
        self.say(f"epoch {self.epochs:g} of {self.job.recipe.epochs:g}: {split} {shown}")

    def keep_weights(self, place: str, *, step: int) -> None:
        """Keep the weights in a folder of the run, as a checkpoint keeps them: whole or not at all."""
        saved = verified.Saved(step=step, weights=stored(self.network), optimizer={}, state={})
        folder, origin = self.folder.path / place, self.folder.origin
        checkpoint.surely(lambda: checkpoint.save(folder, saved, origin=origin, keep=1), say=self.warn)

    def _scored(self) -> list[tuple[int, float]]:
        """Step and main score of each epoch up to this step, from metrics.jsonl, which is on disk before a checkpoint.
        The best weights on disk may be of a later epoch, if a session was killed: it comes again to the same bits.
        """
        metric, split = self.job.data.task.metric, next(iter(self.job.data.dev))
        rows = readable_rows(self.folder.path / run_folder.METRICS)
        return [(row["step"], row[metric]) for row in rows if row.get("split") == split and metric in row]

    def take_best(self) -> int:
        """Put the weights of the best epoch into the network, where the recipe keeps these; returns their step."""
        if self.best is None:
            return self.steps
        restore(self.network, checkpoint.of_step(self.folder.path / BEST, origin=self.folder.origin).weights)
        return self.best[0]

    def save_due(self) -> bool:
        """Every `SAVE_EVERY` seconds."""
        if due := time.monotonic() - self.last_saved > SAVE_EVERY:
            self.last_saved = time.monotonic()
        return due


def finetune_run(
    job: Job,
    *,
    out: Path,
    device: str = "auto",
    keep_weights: bool = False,
    quiet: bool = False,
    display: Callable[[int], progress.Display] | None = None,
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
    data, recipe = job.data.under(replace(job.recipe, precision=precision))  # type: ignore[arg-type]
    job = replace(job, recipe=recipe, data=data)
    with closing(folder), ExitStack() as stack:
        folder.open_for_writing()
        _begin(folder, job)
        if is_finished(out, keep_weights=keep_weights):
            _clear(folder)  # it may have been killed before it did so itself
            return cells.read_result(out)
        show = display or (lambda steps: progress.Display(total=steps, quiet=quiet, silent=quiet))
        run = _built(job, folder, device=where, show=show)
        run.resume()
        if stop is None:  # until here there is nothing to save
            stop = partial(getattr, stack.enter_context(StopRequest()), "name")
        assert run.saver is not None
        with run.display, run.saver:
            run.train(stop)
            kept = run.take_best()
            found = _evaluate(run, stop)
        facts = {"steps": run.steps, "rows": len(run.batches.rows), "seconds": round(run.seconds, 3)}
        if recipe.keep == "best":
            facts |= {"epochs": run.epochs, cells.KEPT: kept / run.batches.order.per_epoch}
        result = Result(
            key=job.key or job.data.task.name,
            seed=job.seed,
            facts=facts,
            **found,
            environment=cells.environment_of(out),
        )
        folder.sync_rows()
        if keep_weights:
            run.keep_weights("weights", step=kept)
        cells.write_result(out, result)
        _clear(folder)
        return result


def _clear(folder: run_folder.RunFolder) -> None:
    """Remove what only let the run resume."""
    for place in (folder.checkpoints, folder.path / BEST):
        shutil.rmtree(place, ignore_errors=True)


def is_finished(out: Path, *, keep_weights: bool = False) -> bool:
    """Whether the run in `out` has its result, and its weights if they are asked for; one that diverged has none."""
    if not (out / cells.RESULT).is_file():
        return False
    return not keep_weights or bool(checkpoint.numbered(out / "weights")) or cells.read_result(out).failed is not None


def _begin(folder: run_folder.RunFolder, job: Job) -> None:
    """Note what the run is, or see that it is the one that began here; the encoder's folder may have moved since."""
    identity = {
        "model": job.source.name,
        "model_sha256": job.source.sha256,
        "task": job.data.task.described(),
        "data_sha256": job.data.sha256,
        "recipe": asdict(job.recipe),
        "seed": job.seed,
    }
    if not folder.exists:
        folder.begin(identity, {"data_sha256": job.data.sha256})
        return
    began, now = read_table(folder.path / "config.json"), json.loads(json.dumps(identity))  # tuples are lists there
    if changed := differences({**began, "model": ""}, {**now, "model": ""}):
        raise ConfigError(
            f"{folder.path} began otherwise ({'; '.join(changed)}). {run_folder.remedy(folder.environment())}"
        )


def build_batches(job: Job, *, device: torch.device) -> Batches:
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
    by_length = job.recipe.batches == "by-length"
    order = Order(lengths_of(rows), batch_size=job.recipe.batch_size, seed=job.seed, by_length=by_length)
    return Batches(job=job, rows=rows, order=order, device=device)


def _built(
    job: Job, folder: run_folder.RunFolder, *, device: torch.device, show: Callable[[int], progress.Display]
) -> FineTuningRun:
    """Rows, and the network as it begins, on the CPU."""
    batches = build_batches(job, device=device)
    network = build_network(job.source, job.data.task, job.recipe, seed=job.seed)
    share = layer_share(job.recipe, job.source.model.num_hidden_layers, head=getattr(network.head, "rate_share", 1.0))
    job.data.task.prepare(network.head, job.data.train, job.source.text(job.recipe.max_length))
    return FineTuningRun(
        network=network,
        folder=folder,
        device=device,
        precision=job.recipe.precision,
        settings=job.recipe.optimizer,
        share=share,
        steps=batches.steps,
        log_every=_LOG_EVERY,
        keep=1,
        display=show(batches.steps),
        job=job,
        batches=batches,
    )


def _evaluate(run: FineTuningRun, stop: Callable[[], str | None]) -> dict[str, Any]:
    """Predict every split, write the predictions down, and score those with answers. Returns fields of the result.

    Rows without answers of files of one's own are left to the exported model.
    """
    data = run.job.data
    others = () if data.written is not None else tuple(data.test)
    found, predicted = data.judged(lambda split, task: run.predictions(split, task, stop), others=others)
    write_predictions(run.folder.path, predicted)
    if any(COLLAPSED in doubt for doubt in found["doubts"]):
        remedy = f"after {run.steps:,} steps: try more epochs, another learning rate or other seeds."
        found["doubts"] = (*found["doubts"], remedy)
    for doubt in found["doubts"]:
        run.folder.log(f"WARNING: {doubt}")
    return found


def write_predictions(folder: Path, predicted: Mapping[str, Sequence[Prediction]]) -> None:
    """Write the predictions of each split into `folder`/predictions."""
    make_folder(folder / "predictions")
    for split, predictions in predicted.items():
        replace_durably(folder / "predictions" / f"{split}.jsonl", jsonl(predictions).encode())
