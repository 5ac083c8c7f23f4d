"""Fixtures of fine-tuning experiments."""

import pytest
from tests.finetuning import toy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small encoder."""
    return toy.write_model(tmp_path_factory.mktemp("model") / "encoder")


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs compute with one thread each."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
