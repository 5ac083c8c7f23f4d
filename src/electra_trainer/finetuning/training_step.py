"""A fine-tuned network and its steps: encoder and head, learning rates by layer, batches, one training step,
prediction.

Rows of similar length are read together, so that little is computed on padding: each epoch is shuffled, sorted by
length within
windows of some batches, and its batches shuffled again (`batches = "random"`: shuffled alone). A step is a pure
function of (weights, feed, step).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer import errors, randomness
from electra_trainer.batch import Batch
from electra_trainer.data.batches import to_batch
from electra_trainer.data.tokenizer import Specials, Text
from electra_trainer.finetuning.examples import Prediction
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.task import Row, Task, lengths_of
from electra_trainer.model.attention import Dropout
from electra_trainer.model.encoder import Encoder
from electra_trainer.pretrained.source import Source
from electra_trainer.train.device import autocast
from electra_trainer.train.optim import learning_rate
from electra_trainer.train.step import StepResult, update

_LAYER = re.compile(r"electra\.encoder\.layer\.(\d+)\.")
_LAST_NORM = "electra.encoder.final_norm.weight"


class FineTuned(nn.Module):
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
        hidden_BTD: Tensor = self.electra(batch.ids_BT, batch)
        dropped: Tensor = self.dropout(hidden_BTD.float())
        return dropped


def build_network(source: Source, task: Task, recipe: Recipe, *, seed: int) -> FineTuned:
    """The source's encoder with a fresh head: Glorot-uniform weights, biases 0 (released), drawn by `seed`.

    The recipe's `head_dropout` decides on dropout between the two.
    """
    encoder = source.encoder(dropout=recipe.dropout, attention_dropout=recipe.attention_dropout)
    dropout = recipe.dropout if task.whole_text or recipe.head_dropout == "all" else 0.0
    head = task.head(replace(source.model, hidden_dropout_prob=dropout))
    for name, parameter in head.named_parameters():
        with torch.no_grad():
            if parameter.dim() < 2:
                parameter.fill_(1.0 if "LayerNorm" in name and name.endswith("weight") else 0.0)
            else:
                generator = torch.Generator().manual_seed(randomness.key(seed, f"weights/head/{name}"))
                nn.init.xavier_uniform_(parameter, generator=generator)
    return FineTuned(encoder, head, dropout=dropout)


@torch.no_grad()
def fit_head(network: FineTuned, feed: "Feed", stop: Callable[[], str | None] = lambda: None) -> None:
    """Let the task fit its head to the rows of the run; dropout is off meanwhile.

    Raises:
        Interrupted: `stop` named a signal. Diverged: the encoder's output is NaN or infinite.
    """
    read = partial(
        outputs, network.eval(), specials=feed.specials, device=feed.device, precision=feed.precision, stop=stop
    )
    feed.task.fit_head(network.head, feed.rows, read)
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
class Feed:
    """The rows of a run, and where and how its steps are computed."""

    task: Task
    rows: Sequence[Row]
    order: "Order"
    """Order of `rows`."""
    specials: Specials
    recipe: Recipe
    seed: int
    device: torch.device
    precision: str

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self.order.steps(self.recipe.epochs)

    def batch(self, step: int) -> list[Row]:
        """Rows of step `step`, counted from 0."""
        return [self.rows[index] for index in self.order.at(step)]


def train_step(network: FineTuned, optimizer: torch.optim.Optimizer, feed: Feed, *, step: int) -> StepResult:
    """Forward, backward and update for step `step`, counted from 0; its loss is that of a row, or a token: what the
    task counts.
    """
    recipe, rows = feed.recipe, feed.batch(step)
    with clipping(network, recipe) as limit:
        loss = accumulate(network, feed, rows, step=step)
    schedule, warmup = recipe.schedule_of(feed.steps), recipe.warmup_of(feed.steps)
    rate = learning_rate(step, peak=recipe.learning_rate, schedule=schedule, warmup=warmup)
    norm, finite = update(network, optimizer, clip_norm=limit(), rate=rate)
    tokens = sum(len(row.ids) for row in rows)
    return StepResult(finite=finite, gradient_norm=norm, learning_rate=rate, metrics={"loss": loss}, tokens=tokens)


@contextmanager
def clipping(network: FineTuned, recipe: Recipe) -> Iterator[Callable[[], float]]:
    """The largest norm that the gradient of the backward passes within may have; 0: any.

    With `clip_words = "by-token"` the norm that is held to `clip_norm` is another one, and so the limit of the
    gradient's own is clip_norm * its norm / that one. They differ in the word table alone: the tokens' gradients are in
    place of their sums by word.
    """
    if recipe.clip_words == "summed":
        yield lambda: recipe.clip_norm
        return
    words = network.electra.embeddings.word_embeddings
    squares: list[Tensor] = []

    def watch(_: nn.Module, ids: Any, vectors_BTE: Tensor) -> None:
        def keep(gradient_BTE: Tensor) -> None:
            squares.append(gradient_BTE.float().square().sum())

        vectors_BTE.register_hook(keep)  # type: ignore[no-untyped-call]

    def limit() -> float:
        norms = torch.stack([p.grad.norm() for p in network.parameters() if p.grad is not None])
        if words.weight.grad is None or not norms.any():
            return recipe.clip_norm
        square, summed = norms.square().sum(), words.weight.grad.square().sum()
        return recipe.clip_norm * float((square / (square - summed + torch.stack(squares).sum())).sqrt())

    handle = words.register_forward_hook(watch)
    try:
        yield limit
    finally:
        handle.remove()


def accumulate(network: FineTuned, feed: Feed, rows: Sequence[Row], *, step: int) -> float:
    """Add the gradient of `rows` to the parameters', in portions of `micro_batch` rows; return the mean loss.

    The portions do not change the gradient: losses are summed, and divided once if the recipe asks for the mean.
    """
    size = min(feed.recipe.micro_batch or len(rows), len(rows))
    mean, whole = feed.recipe.reduction == "mean", size == len(rows)
    total, count = 0.0, 0
    for lane, first in enumerate(range(0, len(rows), size)):
        part = rows[first : first + size]
        randomness.Rng(feed.seed, step, lane).seed_dropout()
        batch = collate(part, feed.specials, feed.device)
        with autocast(feed.precision, feed.device):
            hidden_BTD = network(batch)
        loss, counted = feed.task.loss(network.head, hidden_BTD, batch, part)
        total, count = total + float(loss.detach()), count + counted
        if mean and whole:  # one number, instead of all gradients
            loss = loss / max(count, 1)
        loss.backward()  # type: ignore[no-untyped-call]
    if mean and not whole:
        torch._foreach_div_([p.grad for p in network.parameters() if p.grad is not None], max(count, 1))
    return total / max(count, 1)


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


def by_length(lengths: NDArray[np.int64], *, batch_size: int) -> list[NDArray[np.int64]]:
    """All rows in batches of similar length, the longest first: for evaluation."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def collate(rows: Sequence[Row], specials: Specials, device: torch.device) -> Batch:
    """Rows as a batch on `device`, padded to the longest of them."""
    widest = max(len(row.ids) for row in rows)
    if device.type == "cuda":
        widest = -(-widest // _GPU_MULTIPLE) * _GPU_MULTIPLE
    ids_BT = np.full((len(rows), widest), specials.pad, dtype=np.int64)
    for index, row in enumerate(rows):
        ids_BT[index, : len(row.ids)] = row.ids
    return to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep).to(device)


EVALUATION_ROWS = 128
"""Rows that are evaluated together."""


def outputs(
    network: FineTuned,
    rows: Sequence[Row],
    *,
    specials: Specials,
    device: torch.device,
    precision: str,
    stop: Callable[[], str | None] = lambda: None,
) -> Iterator[tuple[NDArray[np.int64], Tensor, Batch]]:
    """Indices of some rows, the network's output for them (fp32 [B, T, D], see `FineTuned`) and their batch, until all
    have been read.

    Raises:
        Interrupted: `stop` named a signal.
    """
    for indices in by_length(lengths_of(rows), batch_size=EVALUATION_ROWS):
        if name := stop():
            raise errors.Interrupted(f"{name}: stopped while predicting. The same command resumes.")
        batch = collate([rows[index] for index in indices], specials, device)
        with autocast(precision, device):
            hidden_BTD = network(batch)
        yield indices, hidden_BTD, batch


@torch.no_grad()
def predict(
    network: FineTuned,
    task: Task,
    examples: Sequence[Any],
    *,
    text: Text,
    device: torch.device,
    precision: str,
    stop: Callable[[], str | None] = lambda: None,
) -> list[Prediction]:
    """One prediction per example, dropout off.

    Raises:
        Interrupted: `stop` named a signal.
    """
    rows = task.rows(examples, text, training=False)
    predicted: list[Any] = [None] * len(rows)
    network.eval()
    read = outputs(network, rows, specials=text.specials, device=device, precision=precision, stop=stop)
    for indices, hidden_BTD, batch in read:
        part = [rows[index] for index in indices]
        for index, value in zip(indices, task.read(network.head, hidden_BTD, batch, part), strict=True):
            predicted[index] = value
    return task.predict(examples, rows, predicted)
