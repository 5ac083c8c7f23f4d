"""One optimizer step, and one held-out evaluation: pure functions of (weights, config, step).

Also what a person needs to judge a run: held-out example rows for the report.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.optim import Optimizer

from electra_trainer.batch import Batch, Losses, Masked
from electra_trainer.data import batches, masking
from electra_trainer.data.store import Store
from electra_trainer.data.tokenizer import Specials, word_starts
from electra_trainer.errors import ConfigError
from electra_trainer.model.networks import Discriminator
from electra_trainer.objectives import Objective
from electra_trainer.randomness import Rng
from electra_trainer.ranks import world as ranks
from electra_trainer.runs.signals import finish_first
from electra_trainer.settings.config import Config
from electra_trainer.train import measures, optim
from electra_trainer.train.device import autocast

EVALUATION_ROWS = 64
"""Held-out rows that are masked and computed together."""
_EVALUATION_SEED = 0
"""Held-out masks are the same in every run, so that runs compare."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """The source of batches and masks, and the device that computes them."""

    config: Config
    rows: NDArray[np.integer]
    valid: NDArray[np.integer]
    mask: masking.MaskTokens
    specials: Specials
    device: torch.device
    precision: str

    @classmethod
    def of(cls, config: Config, store: Store, *, device: torch.device, precision: str) -> "Feed":
        """The feed of a prepared store."""
        special = store.specials
        mask = masking.MaskTokens(
            masking=config.drawn,
            vocab_size=store.vocab_size,
            mask_id=special.mask,
            never=(special.pad, special.cls, special.sep, special.mask),
            counts_V=batches.word_counts(store) if config.masking.rarity else None,
            begins_V=np.array(word_starts(store.tokenizer())) if config.masking.unit == "word" else None,
        )
        return cls(
            config=config,
            rows=store.rows("train"),
            valid=store.rows("valid"),
            mask=mask,
            specials=special,
            device=device,
            precision=precision,
        )

    def batch(self, rows_BT: NDArray[np.integer]) -> Batch:
        """Rows of ids as a batch, on the CPU."""
        return batches.to_batch(rows_BT, pad=self.specials.pad, cls=self.specials.cls, sep=self.specials.sep)

    def masked(self, rows_BT: NDArray[np.integer], rng: Rng) -> Masked:
        """Rows of ids, masked on the CPU, so that every device sees the same masks, then moved to the device."""
        return self.mask(self.batch(rows_BT), rng).to(self.device)

    def picked(self, step: int) -> NDArray[np.int64]:
        """Indices of a step's rows, of all lanes."""
        config = self.config
        return batches.batch_rows(
            step, rows=len(self.rows), size=config.batch.size, seed=config.seed, together=config.objective.rows_together
        )

    def lanes(self, step: int) -> list[tuple[Masked, Rng]]:
        """The lanes of a training step that this process computes, masked."""
        config = self.config
        picked = self.picked(step)
        found = []
        for lane in ranks.world().owned(config.batch.lanes):
            rng = Rng(config.seed, step, lane)
            rows = self.rows[picked[lane * config.lane_size : (lane + 1) * config.lane_size]]
            found.append((self.masked(rows, rng), rng))
        return found

    def held_out(self, limit: int, among: ranks.World = ranks.ALONE) -> Iterator[tuple[Masked, Rng]]:
        """A rank's share of the first `limit` held-out rows, in chunks of fixed size: masks do not depend on batch,
        device or ranks.
        """
        for chunk in among.share(self.chunks(limit)):
            rng, first = Rng(_EVALUATION_SEED, 0, chunk), chunk * EVALUATION_ROWS
            yield self.masked(self.valid[first : min(first + EVALUATION_ROWS, limit)], rng), rng

    def chunks(self, limit: int) -> int:
        """The number of chunks of the first `limit` held-out rows."""
        return -(-min(limit, len(self.valid)) // EVALUATION_ROWS)

    @cached_property
    def fakes_BT(self) -> NDArray[np.int64]:
        """The first held-out rows with standard fakes, made when they are first asked for."""
        return masking.standard_fakes(self.rows, self.valid, vocab_size=self.mask.vocab_size, never=self.mask.never)

    @property
    def standard_words(self) -> int:
        """Words that `discriminator_standard_auc` is over."""
        return int((~np.isin(self.valid[: masking.FAKE_ROWS], self.mask.never)).sum())


def check_words(config: Config, store: Store) -> None:
    """Refuse whole-word masking where the text has no words that it could choose.

    Raises:
        ConfigError: the tokenizer does not mark words (`word_starts`), or most of the words are longer than what a row
            may choose.
    """
    if config.masking.unit != "word":
        return
    feed = Feed.of(config, store, device=torch.device("cpu"), precision="fp32")
    masked = feed.masked(feed.rows[:EVALUATION_ROWS], Rng(_EVALUATION_SEED, 0, 0))
    share = len(masked.slots_K) / int(masked.batch.real_BT.sum())
    if share < config.masking.fraction / 2:
        raise ConfigError(
            f"masking.unit = word: of the first rows of {store.folder} it would mask {share:.1%} of the tokens, "
            f"masking.fraction asks for {config.masking.fraction:.1%}. Words have too many tokens: the text has no "
            "spaces between words, or the vocabulary is too small for it. Set --masking.unit token, or prepare the "
            "text with another tokenizer."
        )


def add_counts(parts: list[dict[str, Tensor]]) -> dict[str, float]:
    """Counts summed over several lanes; known before any forward pass."""
    return {name: float(sum(float(part[name]) for part in parts)) for name in parts[0]}


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The outcome of a step."""

    finite: bool
    """False: loss or gradient was NaN or infinite; weights and moments are untouched."""
    gradient_norm: float
    learning_rate: float
    metrics: dict[str, float]
    """Empty unless asked for."""
    tokens: int
    """Read by the whole step."""


def train_step(
    objective: Objective, optimizer: Optimizer, feed: Feed, *, step: int, diagnose: bool = False
) -> StepResult:
    """Forward, backward and update for step `step`, counted from 0.

    The gradient is that of the whole batch whatever the number of lanes and of ranks: each sum is divided by the count
    of all (or by
    the rows of the batch: `losses`). So are the metrics.
    """
    config = feed.config
    lanes = feed.lanes(step)
    own = add_counts([objective.counts(masked) for masked, _ in lanes])
    counts = ranks.add_counts_over_ranks(own)
    divisors = measures.divisors(counts, config)
    tree = ranks.GradientTree(objective.parameters()) if config.deterministic else None
    diagnosed: list[Losses] = []
    for masked, rng in lanes:
        rng.seed_dropout()
        with autocast(feed.precision, feed.device):
            losses: Losses = objective(masked, rng, diagnose=diagnose)
        backward(losses.total(divisors))
        if tree is not None:
            tree.add_lane()
        if diagnose:
            diagnosed.append(measures.keep_measured(losses))
    if tree is not None:
        tree.finish()
    else:
        ranks.add_gradients_over_ranks(objective.parameters())
    rate = optim.rate_at(step, config)
    finish_first()
    norm, finite = update(objective, optimizer, clip_norm=config.optimizer.clip_norm, rate=rate)
    metrics = measures.measure(over_ranks(diagnosed), counts, divisors) if diagnose and finite else {}
    return StepResult(
        finite=finite, gradient_norm=norm, learning_rate=rate, metrics=metrics, tokens=config.tokens_per_step
    )


def backward(loss: Tensor) -> None:
    """Backward pass. If the loss is NaN or infinite, all gradients become non-finite too, so every rank skips the step.

    The factor is multiplied, not handed to `backward`, which would load PyTorch's symbolic shapes, and sympy, for a
    second.
    """
    (loss * (1 + 0 * loss.detach())).backward()  # type: ignore[no-untyped-call]


def update(network: nn.Module, optimizer: Optimizer, *, clip_norm: float, rate: float) -> tuple[float, bool]:
    """Clip the gradient to a global norm (0: not at all) and move the weights; gradients are cleared.

    Returns:
        The norm before clipping, and whether it is finite; if not, weights and moments are untouched.
    """
    norm = float(nn.utils.clip_grad_norm_(network.parameters(), clip_norm or float("inf")))
    finite = bool(np.isfinite(norm))
    if finite:
        optim.set_rate(optimizer, rate)
        optimizer.step()
    optimizer.zero_grad()
    return norm, finite


def over_ranks(diagnosed: list[Losses]) -> list[Losses]:
    """The lanes or chunks of all ranks, in order, so that sums over them are those of one process."""
    if ranks.world().size == 1:
        return diagnosed
    return [losses for part in ranks.gathered(measures.to_bytes(diagnosed)) for losses in measures.from_bytes(part)]


@torch.no_grad()
def evaluate(objective: Objective, feed: Feed, *, limit: int | None = None) -> dict[str, float]:
    """Held-out metrics over the first `limit` rows (by default all), without dropout, with fixed masks; each row once,
    by one rank.
    """
    was_training = objective.training
    objective.eval()
    try:
        diagnosed, parts = [], []
        rows = len(feed.valid) if limit is None else limit
        for masked, rng in feed.held_out(rows, ranks.world()):
            parts.append(objective.counts(masked))
            with autocast(feed.precision, feed.device):
                diagnosed.append(measures.keep_measured(objective(masked, rng, diagnose=True)))
        # a rank may have none
        mine = json.dumps([{name: float(count) for name, count in part.items()} for part in parts])
        every = [part for content in ranks.gathered(mine.encode()) for part in json.loads(content)]
        counts = {name: sum(part[name] for part in every) for name in every[0]}
        divisors = measures.divisors(counts, feed.config, rows=min(rows, len(feed.valid)))
        metrics = measures.measure(over_ranks(diagnosed), counts, divisors)
        return metrics | on_standard_fakes(objective, feed)
    finally:
        objective.train(was_training)


@torch.no_grad()
def on_standard_fakes(objective: Objective, feed: Feed) -> dict[str, float]:
    """`discriminator_standard_auc`: over the words of the held-out rows with standard fakes, in chunks that the ranks
    divide.

    Empty for an objective that keeps no discriminator.
    """
    network = objective.exported()[0].network
    if not isinstance(network, Discriminator):
        return {}
    found = []
    for chunk in ranks.world().share(feed.chunks(len(feed.fakes_BT))):
        part = slice(chunk * EVALUATION_ROWS, (chunk + 1) * EVALUATION_ROWS)
        fake_BT = torch.from_numpy(feed.fakes_BT[part]).to(feed.device)
        batch = feed.batch(feed.valid[: len(feed.fakes_BT)][part]).to(feed.device)
        words_BT = ~torch.isin(batch.ids_BT, torch.tensor(feed.mask.never, device=feed.device))
        with autocast(feed.precision, feed.device):
            logits_BT = network(fake_BT, batch)
        observed = {"real_BT": batch.real_BT, "counted_BT": words_BT, "replaced_BT": fake_BT != batch.ids_BT}
        found.append(measures.keep_measured(Losses(terms={}, diagnostics=observed | {"replaced_logit_BT": logits_BT})))
    judged = measures.measure(over_ranks(found), {})
    return {"discriminator_standard_auc": judged["discriminator_auc"]}


_EXAMPLES = 8


@torch.no_grad()
def example_rows(objective: Objective, feed: Feed, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The first held-out rows: tokens, what was masked and sampled, and the discriminator's probability of "replaced".

    Empty for an objective that gives no logit for each token.
    """
    was_training = objective.training
    objective.eval()
    try:
        masked, rng = next(iter(feed.held_out(_EXAMPLES)))
        with autocast(feed.precision, feed.device):
            diagnostics = objective(masked, rng, diagnose=True).diagnostics
    finally:
        objective.train(was_training)
    if "replaced_logit_BT" not in diagnostics:
        return []
    rows = []
    for row in range(len(masked.batch.ids_BT)):
        real = int(masked.batch.real_BT[row].sum())
        ids = {"original": masked.batch.ids_BT, "input": diagnostics["corrupted_BT"]}
        flags = {"masked": masked.chosen_BT, "replaced": diagnostics["replaced_BT"]}
        tokens = {name: [tokenizer.id_to_token(i) for i in ids_BT[row, :real].tolist()] for name, ids_BT in ids.items()}
        reported = {name: flag_BT[row, :real].tolist() for name, flag_BT in flags.items()}
        probability = diagnostics["replaced_logit_BT"][row, :real].sigmoid().tolist()
        rows.append({**tokens, **reported, "probability": [round(p, 4) for p in probability]})
    return rows
