"""What tests share: the folder of reference numbers, and a configuration small enough for a second a test."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from electra_trainer.config import BatchShape, Config, Generator, Masking, Model, Schedule

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure() -> None:
    torch.set_num_threads(1)  # tiny tensors: more threads cost more than they bring


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder `shared` beside the repository (reference numbers of the released code)")
    return SHARED


@pytest.fixture
def tiny_config() -> Config:
    """Three rows of 24 tokens through two narrow layers; every part of the method is there."""
    return Config(
        preset="test",
        seed=7,
        model=Model(
            vocab_size=97, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=48, max_position_embeddings=32,
        ),
        generator=Generator(width=0.5),
        masking=Masking(fraction=0.25),
        schedule=Schedule(steps=20, warmup_steps=2),
        batch=BatchShape(size=12, sequence_length=24),
    )  # fmt: skip
