"""A throw-away run over made-up rows, to time real training steps where there is no data."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.config import Config
from electra_trainer.data.masking import MaskTokens
from electra_trainer.objectives import build
from electra_trainer.train.graph import train_step
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.step import Feed

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS_FROM = 5
"""The first id that is a word; ids before it are the special tokens."""
_FLATTENING = 2.7
"""Zipf and Mandelbrot's law: the word of rank r comes with a frequency of 1 / (r + 2.7), about as in English."""


class Trial:
    """The engine as a run uses it: networks, optimizer, masking, step. Weights are new, and nothing is saved."""

    def __init__(self, config: Config, feed: Feed) -> None:
        self.feed = feed
        self.objective = build(config).to(feed.device)
        self.optimizer = build_optimizer(self.objective, config.optimizer)
        self.steps = 0
        self.objective.train()

    def step(self) -> None:
        """One whole training step."""
        train_step(self.objective, self.optimizer, self.feed, step=self.steps)
        self.steps += 1


def made_up_feed(config: Config, *, device: torch.device, precision: str) -> Feed:
    """A feed of four batches of made-up rows, the same ones for the same config."""
    specials = (PAD, CLS, SEP, MASK)
    rows = made_up_rows(4 * config.batch.size, config.batch.sequence_length, vocab_size=config.model.vocab_size)
    mask = MaskTokens(masking=config.masking, vocab_size=config.model.vocab_size, mask_id=MASK, never=specials)
    return Feed(
        config=config, rows=rows, valid=rows[:0], mask=mask, pad=PAD, cls=CLS, sep=SEP, device=device,
        precision=precision,
    )  # fmt: skip


def made_up_rows(rows: int, length: int, *, vocab_size: int, seed: int = 0) -> NDArray[np.int64]:
    """Full rows `[CLS] A [SEP] B [SEP]` of words as frequent as in a text: int64 [rows, length]."""
    words_BT = zipf_words(rows * length, vocab_size=vocab_size, seed=seed).reshape(rows, length)
    words_BT[:, 0], words_BT[:, length // 2], words_BT[:, -1] = CLS, SEP, SEP
    return words_BT


def zipf_words(count: int, *, vocab_size: int, seed: int = 0) -> NDArray[np.int64]:
    """Ids of words, the frequent ones first in the vocabulary: int64 [count]."""
    frequency = 1 / (np.arange(max(1, vocab_size - WORDS_FROM)) + _FLATTENING)
    cumulative = np.cumsum(frequency) / frequency.sum()
    draws = np.random.default_rng(seed).random(count)
    return WORDS_FROM + np.searchsorted(cumulative[:-1], draws, side="right").astype(np.int64)
