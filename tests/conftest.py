"""What tests share: the folder of reference numbers, and a configuration small enough for a second a test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tests import small

from electra_trainer.config import Config

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_configure() -> None:
    torch.set_num_threads(1)  # tiny tensors: more threads cost more than they bring


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared` beside the repository."""
    if not SHARED.is_dir() and os.environ.get("ELECTRA_REQUIRE_REFERENCE"):
        pytest.fail("the folder `shared` is not beside the repository, and ELECTRA_REQUIRE_REFERENCE is set")
    if not SHARED.is_dir():
        pytest.skip("needs the folder `shared` beside the repository (reference numbers of the released code)")
    return SHARED


@pytest.fixture
def tiny_config() -> Config:
    """See `tests/small.py`."""
    return small.config()
