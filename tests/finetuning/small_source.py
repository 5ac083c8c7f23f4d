"""A narrow encoder with a tokenizer of whole words, sentences for it, and a task of two labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, specials_of, word_piece
from electra_trainer.model.encoder import Encoder
from electra_trainer.pretrained.source import Source
from electra_trainer.settings.config import Model
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification

WORDS = tuple(f"w{number}" for number in range(60))
"""Each is one token, with id 5 + its number."""
LABELS = ("no", "yes")


def shape(**changes: int) -> Model:
    base = Model(
        vocab_size=len(SPECIAL_TOKENS) + len(WORDS), embedding_size=16, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=48, max_position_embeddings=40,
    )  # fmt: skip
    return replace(base, **changes)  # type: ignore[arg-type]


def source(**changes: int) -> Source:
    """All weights random and large, biases and LayerNorm too, so that none of them can be forgotten."""
    model = shape(**changes)
    generator = torch.Generator().manual_seed(5)
    encoder = Encoder(model)
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            parameter.normal_(1.0 if "LayerNorm.weight" in name else 0.0, 0.3, generator=generator)
    return source_of("small", model, encoder, WORDS)


def source_of(name: str, model: Model, encoder: Encoder, words: Sequence[str]) -> Source:
    """A source that reads rows as long as its positions."""
    vocabulary = {token: number for number, token in enumerate((*SPECIAL_TOKENS, *words))}
    tokenizer = word_piece(vocabulary, cased=False, keep_accents=None)
    return Source(
        name=name, model=model, weights=encoder.state_dict(), tokenizer=tokenizer, specials=specials_of(tokenizer),
        length=model.max_position_embeddings,
    )  # fmt: skip


def examples(count: int, *, seed: int = 0, words: Sequence[str] = WORDS) -> list[TextExample]:
    """Texts of 1 to 20 words, every second one with a pair, in no order of length."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        texts = [" ".join(random.choice(words, random.integers(1, 21))) for _ in range(1 + number % 2)]
        made.append(TextExample(text=texts[0], pair=texts[1] if number % 2 else None, label=LABELS[random.integers(2)]))
    return made


def data(count: int, *, seed: int = 0, words: Sequence[str] = WORDS) -> TaskData:
    made = examples(count, seed=seed, words=words)
    return TaskData(task=Classification(labels=LABELS), train=made, dev={"dev": made})
