"""A short run and its export."""

from pathlib import Path

import pytest
from tests.prepared import small_config, write_store

from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.settings.config import changed
from electra_trainer.train.loop import pretrain


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its weights begin large enough for attention to look somewhere; BERT's block, or the one that a test asks for."""
    folder = tmp_path_factory.mktemp("export")
    shape = {"initializer": "fan-in", "block": getattr(request, "param", "bert")}
    settings = changed(small_config(steps=4), model=shape)
    return pretrain(settings, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    export_run(run, run.parent / "exported")
    return run.parent / "exported"
