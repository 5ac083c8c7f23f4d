"""A run small enough for a test: a configuration, rows of random words, batches, masks and a feed."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer.batch import Batch, Corrupted, Masked
from electra_trainer.data.batches import to_batch
from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.tokenizer import Specials
from electra_trainer.objectives.generation import corrupt
from electra_trainer.settings.config import BatchShape, Config, Masking, Model, Optimizer, Schedule
from electra_trainer.settings.methods import Learned
from electra_trainer.train.step import Feed

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = 97
BEGINS_V = np.arange(WORDS) % 3 > 0
"""For whole-word masking: every third token continues a word."""


def config() -> Config:
    """Twelve rows of 24 tokens through two narrow layers; every part of the method is there."""
    return Config(
        preset="test",
        seed=7,
        model=Model(
            vocab_size=WORDS, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=48, max_position_embeddings=32,
        ),
        generator=Learned(width=0.5),
        masking=Masking(fraction=0.25),
        optimizer=Optimizer(learning_rate=1e-2),
        schedule=Schedule(steps=20, warmup_steps=2),
        batch=BatchShape(size=12, sequence_length=24),
    )  # fmt: skip


def rows(count: int, *, length: int = 24, seed: int = 0, full: bool = False) -> NDArray[np.int64]:
    """Packed rows: one to three pieces `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` each, then padding unless `full`."""
    random = np.random.default_rng(seed)
    made = np.full((count, length), PAD)
    for row in made:
        if full:
            row[:] = random.integers(MASK + 1, WORDS, length)
            row[0], row[-1] = CLS, SEP
            continue
        at = 0
        for _ in range(random.integers(1, 4)):
            size = int(random.integers(4, 12))
            if at + size > length:
                break
            row[at : at + size] = random.integers(MASK + 1, WORDS, size)
            row[at], row[at + size - 1] = CLS, SEP
            if size > 6 and random.random() < 0.5:
                row[at + size // 2] = SEP
            at += size
    return made


def batch(rows_BT: NDArray[np.int64]) -> Batch:
    return to_batch(rows_BT, pad=PAD, cls=CLS, sep=SEP)


def masker(settings: Config) -> MaskTokens:
    counts_V = np.arange(1, settings.model.vocab_size + 1) ** 2 if settings.masking.rarity else None
    return MaskTokens(
        masking=settings.drawn, vocab_size=settings.model.vocab_size, mask_id=MASK, never=(PAD, CLS, SEP, MASK),
        counts_V=counts_V, begins_V=BEGINS_V,
    )  # fmt: skip


def columns_chosen(masked: Masked) -> list[list[int]]:
    """Chosen columns of each row, in the order of the slots."""
    columns = masked.batch.ids_BT.shape[1]
    found: list[list[int]] = [[] for _ in masked.batch.ids_BT]
    for slot in masked.slots_K.tolist():
        found[slot // columns].append(slot % columns)
    return found


def part(masked: Masked, picked: slice) -> Masked:
    """Some rows of a masked batch, with the very same masks."""
    whole = masked.batch
    columns = whole.ids_BT.shape[1]
    first, last, _ = picked.indices(len(whole.ids_BT))
    mine = (masked.slots_K >= first * columns) & (masked.slots_K < last * columns)
    rows = Batch(**{name: tensor[picked] for name, tensor in vars(whole).items()})
    return Masked(batch=rows, input_BT=masked.input_BT[picked], slots_K=masked.slots_K[mine] - first * columns)


def feed(settings: Config, *, train: int = 40, valid: int = 10) -> Feed:
    return Feed(
        config=settings, rows=rows(train, seed=1), valid=rows(valid, seed=2), mask=masker(settings),
        specials=Specials(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK), device=torch.device("cpu"), precision="fp32",
    )  # fmt: skip


def weights(objective: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters, by name."""
    return {name: parameter.detach().clone() for name, parameter in objective.named_parameters()}


def by_place(masked: Masked, _: Tensor) -> Corrupted:
    """In place of sampling, which is keyed by lane: a word that follows from the original and from the token there."""
    return corrupt(masked, (7 * masked.labels_K + masked.input_BT.flatten()[masked.slots_K]) % WORDS)
