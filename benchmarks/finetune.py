"""Fine-tuning steps on short sentences, ours and the usual script's: the systems of `python -m benchmarks.speed --task finetune`.

Ours is the engine itself (finetuning/run.py): rows of like length together, each batch padded to its longest, collation, forward, the
task's loss, backward, clipping and the optimizer with a group for each layer. The usual script pads every sentence to 128 tokens and
trains transformers' ElectraForSequenceClassification with a shuffled order, fused AdamW and clipping at 1.0, as its Trainer does; its
batches are made before the clock starts. `longest` is that script with each batch padded to its longest sentence instead
(DataCollatorWithPadding), in the order as it comes. All read the same made-up sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.peers import electra_config
from benchmarks.synthetic import CLS, MASK, PAD, SEP, UNK, zipf_words
from electra_trainer.cost.flops import infer_flops
from electra_trainer.data.batches import to_batch
from electra_trainer.data.tokenizer import SPECIAL_TOKENS, Specials, word_piece
from electra_trainer.finetuning.graphs import Graphs
from electra_trainer.finetuning.run import Batches, Job, Order, build_network, layer_share, tuning_step
from electra_trainer.model.encoder import Encoder
from electra_trainer.pretrained.source import Source, untrained
from electra_trainer.settings.config import Config, Model
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import Row, TaskData, lengths_of
from electra_trainer.tasks.texts import Classification
from electra_trainer.train.device import autocast
from electra_trainer.train.optim import build_optimizer

BATCHES = 4
"""Batches of one pass over the made-up sentences; they differ in length, so that passes are timed, not steps."""
PADDED = 128
"""What the usual script pads to."""
_TASK = Classification(labels=("0", "1"))
_LEARNING_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Rows with labels, 0 or 1."""

    rows: list[Row]
    specials: Specials


# --------------------------------------------------------------------------------------------- text


def sentences(batch: int, *, vocab_size: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Sentences `[CLS] A [SEP]` of 6 to 64 tokens, half of them between 15 and 29, as in the usual tasks."""
    random = np.random.default_rng(seed)
    lengths = np.clip(np.exp(random.normal(np.log(21), 0.5, BATCHES * batch)).round().astype(int), 6, 64)
    words = zipf_words(int(lengths.sum()), vocab_size=vocab_size, seed=seed)
    made = np.split(words, np.cumsum(lengths)[:-1])
    for sentence in made:
        sentence[0], sentence[-1] = CLS, SEP
    return made


def made_up(batch: int, *, vocab_size: int) -> Labelled:
    """`sentences` with labels."""
    given = sentences(batch, vocab_size=vocab_size)
    labels = np.random.default_rng(1).integers(2, size=len(given))
    rows = [
        Row(ids=ids.tolist(), example=index, target=int(label))
        for index, (ids, label) in enumerate(zip(given, labels, strict=True))
    ]
    return Labelled(rows=rows, specials=Specials(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK))


def tokens_per_step(config: Config) -> float:
    """Real tokens, [CLS] and [SEP] counted, in a step on average; every system reads the same ones."""
    return sum(map(len, sentences(config.batch.size, vocab_size=config.model.vocab_size))) / BATCHES


def useful_flops(config: Config) -> float:
    """Matrix products of a step on average, forward and backward, if nothing were spent on padding."""
    made = sentences(config.batch.size, vocab_size=config.model.vocab_size)
    return 3 * sum(infer_flops(config, sequence_length=len(sentence)).real for sentence in made) / BATCHES


# --------------------------------------------------------------------------------------------- systems


class Ours:
    """The engine's own step."""

    def __init__(
        self, model: Model, text: Labelled, *, batch: int, device: torch.device, precision: str, seed: int = 1
    ) -> None:
        settings = recipe(
            "paper", hidden_size=model.hidden_size, epochs=1000.0, batch_size=batch, max_length=PADDED, precision=precision,
            dropout=model.hidden_dropout_prob, attention_dropout=model.attention_probs_dropout_prob,
        )  # fmt: skip
        tokenizer = word_piece(
            {token: number for number, token in enumerate(SPECIAL_TOKENS)}, cased=True, keep_accents=None
        )
        empty = Source(
            name="new",
            model=model,
            weights=Encoder(model).state_dict(),
            tokenizer=tokenizer,
            specials=text.specials,
            length=PADDED,
        )
        order = Order(lengths_of(text.rows), batch_size=batch, seed=seed)
        job = Job(source=empty, data=TaskData(task=_TASK, train=(), dev={}), recipe=settings, seed=seed)
        self.batches = Batches(job=job, rows=text.rows, order=order, device=device)
        self.network = build_network(untrained(empty, seed=seed), _TASK, settings, seed=seed).to(device).train()
        self.optimizer = build_optimizer(
            self.network, settings.optimizer, layer_share(settings, model.num_hidden_layers)
        )
        self.steps, self.graphs = 0, Graphs(network=self.network, precision=precision, device=device)

    def step(self) -> None:
        tuning_step(self.network, self.optimizer, self.batches, step=self.steps, graphs=self.graphs)
        self.steps += 1


class Theirs:
    """The usual script."""

    def __init__(
        self,
        model: Model,
        text: Labelled,
        *,
        batch: int,
        device: torch.device,
        precision: str,
        compiled: bool = False,
        longest: bool = False,
        seed: int = 1,
    ) -> None:
        from transformers import ElectraForSequenceClassification

        self.device, self.precision, self.steps = device, precision, 0
        torch.manual_seed(seed)
        order = torch.randperm(len(text.rows)).tolist()
        rows = [text.rows[index] for index in order]
        self.batches = [
            _padded(rows[first : first + batch], text.specials, device, longest=longest)
            for first in range(0, len(rows) - len(rows) % batch, batch)
        ]
        network = ElectraForSequenceClassification(electra_config(model, num_labels=2)).to(device).train()
        self.parameters = list(network.parameters())
        self.network = torch.compile(network) if compiled else network
        self.optimizer = torch.optim.AdamW(self.parameters, lr=_LEARNING_RATE, fused=True)

    def step(self) -> None:
        with autocast(self.precision, self.device):
            loss = self.network(**self.batches[self.steps % len(self.batches)]).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1


def _padded(rows: Sequence[Row], specials: Specials, device: torch.device, *, longest: bool) -> dict[str, torch.Tensor]:
    width = max(len(row.ids) for row in rows) if longest else PADDED
    ids_BT = np.full((len(rows), width), specials.pad, dtype=np.int64)
    for line, row in zip(ids_BT, rows, strict=True):
        line[: len(row.ids)] = row.ids
    batch = to_batch(ids_BT, pad=specials.pad, cls=specials.cls, sep=specials.sep).to(device)
    return {
        "input_ids": batch.ids_BT,
        "attention_mask": batch.real_BT.long(),
        "token_type_ids": batch.segment_BT,
        "labels": torch.tensor([row.target for row in rows], device=device),
    }
