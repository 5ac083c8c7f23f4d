"""A preset on made-up rows of any size, and a throw-away run of it, for measurements that need no text."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.tokenizer import Specials
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.device import choose_precision
from electra_trainer.train.step import Feed
from electra_trainer.train.timing import Trial

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS_FROM = 5
"""The first id that is a word; the ids before it are special tokens."""
_FLATTENING = 2.7
"""Zipf and Mandelbrot's law: the word of rank r has a frequency of 1 / (r + 2.7), about as in English."""


def sized(name: str, *, batch: int | None = None, lanes: int | None = None) -> Config:
    """A preset with another batch or number of lanes; another batch has one lane."""
    config = preset(name)
    shape = config.batch
    lanes = lanes or (shape.lanes if batch is None else 1)
    return changed(config, batch={"size": batch or shape.size, "lanes": lanes})


def with_rows(config: Config, rows: int) -> Config:
    """The run with `rows` rows a step, in lanes no larger than its own."""
    lanes = -(-rows // config.lane_size)
    while rows % lanes:
        lanes += 1
    return config if rows == config.batch.size else changed(config, batch={"size": rows, "lanes": lanes})


def make(config: Config, device: torch.device, *, precision: str = "auto") -> Trial:
    """Networks, optimizer and feed of `config` over made-up rows."""
    return Trial(config, made_up_feed(config, device=device, precision=choose_precision(precision, device)))


def made_up_feed(config: Config, *, device: torch.device, precision: str) -> Feed:
    """A feed of four batches of made-up rows, the same ones for the same config."""
    rows = made_up_rows(4 * config.batch.size, config.batch.sequence_length, vocab_size=config.model.vocab_size)
    ids_V = np.arange(config.model.vocab_size)
    mask = MaskTokens(
        masking=config.drawn,
        vocab_size=len(ids_V),
        mask_id=MASK,
        never=(PAD, CLS, SEP, MASK),
        counts_V=np.bincount(rows.reshape(-1), minlength=len(ids_V)),
        begins_V=ids_V % 4 > 0,
    )
    special = Specials(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK)
    return Feed(config=config, rows=rows, valid=rows, mask=mask, specials=special, device=device, precision=precision)


def made_up_rows(rows: int, length: int, *, vocab_size: int) -> NDArray[np.int64]:
    """Full rows `[CLS] A [SEP] B [SEP]` of words as frequent as in a text: int64 [rows, length]."""
    words_BT = zipf_words(rows * length, vocab_size=vocab_size).reshape(rows, length)
    words_BT[:, 0], words_BT[:, length // 2], words_BT[:, -1] = CLS, SEP, SEP
    return words_BT


def zipf_words(count: int, *, vocab_size: int, seed: int = 0) -> NDArray[np.int64]:
    """Ids of words, the frequent ones first in the vocabulary: int64 [count]."""
    frequency = 1 / (np.arange(max(1, vocab_size - WORDS_FROM)) + _FLATTENING)
    cumulative = np.cumsum(frequency) / frequency.sum()
    draws = np.random.default_rng(seed).random(count)
    return WORDS_FROM + np.searchsorted(cumulative[:-1], draws, side="right").astype(np.int64)
