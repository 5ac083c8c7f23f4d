"""A preset's networks and rows of random words, for measurements that need no text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.data.masking import MaskTokens
from electra_trainer.objectives import Objective, build
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config
from electra_trainer.train.device import choose_precision
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.step import Feed

PAD, CLS, SEP, MASK = 0, 2, 3, 4


@dataclass(frozen=True, kw_only=True)
class Made:
    """What `train_step` takes."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    feed: Feed


def sized(name: str, *, batch: int | None = None, lanes: int | None = None, dropout: float | None = None) -> Config:
    """A preset with another batch, number of lanes or share of dropout."""
    config = preset(name)
    shape = config.batch
    shape = dataclasses.replace(shape, size=batch or shape.size, lanes=lanes or (shape.lanes if batch is None else 1))
    model = config.model
    if dropout is not None:
        model = dataclasses.replace(model, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return dataclasses.replace(config, batch=shape, model=model)


def rows(count: int, *, tokens: int, vocab_size: int) -> NDArray[np.int64]:
    """Full rows of two pieces of different length, as the packer makes them."""
    random = np.random.default_rng(1)
    made = random.integers(MASK + 1, vocab_size, (count, tokens))
    for row, cut in zip(made, random.integers(tokens // 4, 3 * tokens // 4, count), strict=True):
        row[0], row[cut - 1], row[cut], row[-1] = CLS, SEP, CLS, SEP
    return made


def make(config: Config, device: torch.device, *, precision: str = "auto") -> Made:
    """Networks, optimizer and feed of `config` over random rows."""
    words, shape = config.model.vocab_size, config.batch
    given = rows(max(2 * shape.size, 64), tokens=shape.sequence_length, vocab_size=words)
    counts_V = np.bincount(given.reshape(-1), minlength=words)
    mask = MaskTokens(
        masking=config.masking, vocab_size=words, mask_id=MASK, never=(PAD, CLS, SEP, MASK), counts_V=counts_V
    )
    feed = Feed(
        config=config, rows=given, valid=given[:64], mask=mask, pad=PAD, cls=CLS, sep=SEP, device=device,
        precision=choose_precision(precision, device),
    )  # fmt: skip
    objective = build(config).to(device)
    objective.train()
    optimizer = build_optimizer(objective, config.optimizer, precision=feed.precision)
    return Made(objective=objective, optimizer=optimizer, feed=feed)
