"""Small texts and a small tokenizer."""

import random
from pathlib import Path
from typing import Any

import pytest
from tests.data.samples import sentences

from electra_trainer.data.vocabulary import train_tokenizer


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
