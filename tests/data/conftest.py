"""Small texts, a small tokenizer, and the embedded corpus once a session."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from electra_trainer.data import docstrings
from electra_trainer.data.corpus import Document
from electra_trainer.data.tokenizer import Specials
from electra_trainer.data.vocabulary import train_tokenizer

SPECIALS = Specials(pad=0, unk=1, cls=2, sep=3, mask=4)
WORDS = [f"{a}{b}{c}" for a in ("ba", "de", "ki", "lo") for b in ("ra", "se", "ti", "mun") for c in ("", "s", "ning", "pé")]


def sentences(count: int, *, seed: int = 0) -> list[str]:
    """Lines of made-up words, some long, some short, some odd."""
    draw = random.Random(seed)
    odd = ["[MASK]", "[CLS] and [SEP]", "naïve", "中文", "x" * 210, "U.S.A.", "\u2028", "3,14"]
    lines = []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.choice([1, 3, 8, 20, 60]))
        lines.append(" ".join([*words, draw.choice(odd)] if draw.random() < 0.2 else words))
    return lines


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return train_tokenizer(sentences(800), vocab_size=256)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    """Three hundred documents of one to nine lines."""
    draw = random.Random(1)
    documents = ["\n".join(sentences(draw.randint(1, 9), seed=number)) for number in range(300)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def embedded() -> list[Document]:
    return list(docstrings.documents())
