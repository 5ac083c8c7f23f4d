"""Fine-tuning steps on short sentences: classification in batches of 32, ours and the usual script's.

The usual script pads every sentence to 128 tokens and trains transformers' ElectraForSequenceClassification with AdamW. Ours
sorts the same sentences by length and pads each batch to its longest: our encoder, a linear head on [CLS], our optimizer.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.peers import electra_config
from electra_trainer.batch import Batch
from electra_trainer.config import Config, Model
from electra_trainer.cost.flops import infer_flops
from electra_trainer.data.rows import to_batch
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initialize import initialize
from electra_trainer.objectives.protocol import weight_source
from electra_trainer.train.device import autocast
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.trial import CLS, PAD, SEP, zipf_words

BATCHES = 4
"""Batches of one pass over the sentences; they differ in length, so that passes are timed, not steps."""
PADDED = 128
"""What the usual script pads to."""
_MULTIPLE = 8
"""Ours pads to a multiple of this: fewer shapes."""
_LABELS = 2
_LEARNING_RATE = 1e-4


def sentences(batch: int, *, vocab_size: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Sentences `[CLS] A [SEP]` of 6 to 64 tokens, half of them between 15 and 29, as in the usual tasks."""
    random = np.random.default_rng(seed)
    lengths = np.clip(np.exp(random.normal(np.log(21), 0.5, BATCHES * batch)).round().astype(int), 6, 64)
    words = zipf_words(int(lengths.sum()), vocab_size=vocab_size, seed=seed)
    made = np.split(words, np.cumsum(lengths)[:-1])
    for sentence in made:
        sentence[0], sentence[-1] = CLS, SEP
    return made


def tokens_per_step(config: Config) -> float:
    """Real tokens, [CLS] and [SEP] counted, in a step on average; every system reads the same ones."""
    return sum(map(len, sentences(config.batch.size, vocab_size=config.model.vocab_size))) / BATCHES


def useful_flops(config: Config) -> float:
    """Matrix products of a step on average, forward and backward, if nothing were spent on padding."""
    made = sentences(config.batch.size, vocab_size=config.model.vocab_size)
    return 3 * sum(infer_flops(config, sequence_length=len(sentence)).real for sentence in made) / BATCHES


class Ours:
    """Our encoder on batches of similar lengths."""

    def __init__(self, config: Config, *, device: torch.device, precision: str) -> None:
        self.device, self.precision, self.steps = device, precision, 0
        rows = sorted(sentences(config.batch.size, vocab_size=config.model.vocab_size), key=len)
        size = config.batch.size
        self.batches = [_batch(rows[first : first + size]).to(device) for first in range(0, len(rows), size)]
        self.labels = [_labels(size, step).to(device) for step in range(BATCHES)]
        self.network = (
            initialize(_Classifier(config.model), config.model, weight_source(config, "kept")).to(device).train()
        )
        self.optimizer = build_optimizer(self.network, config.optimizer)
        for group in self.optimizer.param_groups:
            group["lr"] = _LEARNING_RATE

    def step(self) -> None:
        batch, labels_B = (choices[self.steps % BATCHES] for choices in (self.batches, self.labels))
        with autocast(self.precision, self.device):
            loss = F.cross_entropy(self.network(batch).float(), labels_B)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


class Theirs:
    """The usual script."""

    def __init__(self, config: Config, *, device: torch.device, precision: str, compiled: bool) -> None:
        from transformers import ElectraForSequenceClassification

        self.device, self.precision, self.steps = device, precision, 0
        rows, size = sentences(config.batch.size, vocab_size=config.model.vocab_size), config.batch.size
        batches = [_batch(rows[first : first + size], length=PADDED) for first in range(0, len(rows), size)]
        self.batches = [
            {
                "input_ids": batch.ids_BT.to(device),
                "attention_mask": batch.real_BT.long().to(device),
                "token_type_ids": batch.segment_BT.to(device),
                "labels": _labels(size, step).to(device),
            }
            for step, batch in enumerate(batches)
        ]
        torch.manual_seed(config.seed)
        network = ElectraForSequenceClassification(electra_config(config.model, num_labels=_LABELS)).to(device).train()
        self.parameters = list(network.parameters())
        self.network = torch.compile(network) if compiled else network
        self.optimizer = torch.optim.AdamW(self.parameters, lr=_LEARNING_RATE)

    def step(self) -> None:
        with autocast(self.precision, self.device):
            loss = self.network(**self.batches[self.steps % BATCHES]).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


class _Classifier(nn.Module):
    """Logits [B, labels] from the hidden state of [CLS]."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.electra = Encoder(model)
        self.dropout = nn.Dropout(model.hidden_dropout_prob)
        self.out = nn.Linear(model.hidden_size, _LABELS)

    def forward(self, batch: Batch) -> Tensor:
        logits: Tensor = self.out(self.dropout(self.electra(batch.ids_BT, batch)[:, 0]))
        return logits


def _batch(rows: list[NDArray[np.int64]], *, length: int | None = None) -> Batch:
    longest = max(map(len, rows))
    width = length or -(-longest // _MULTIPLE) * _MULTIPLE
    rows_BT = np.full((len(rows), width), PAD)
    for row, sentence in zip(rows_BT, rows, strict=True):
        row[: len(sentence)] = sentence
    return to_batch(rows_BT, pad=PAD, cls=CLS, sep=SEP)


def _labels(count: int, seed: int) -> Tensor:
    return torch.randint(_LABELS, (count,), generator=torch.Generator().manual_seed(seed))
