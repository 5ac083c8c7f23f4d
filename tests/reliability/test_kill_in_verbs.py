"""`finetune` and `export` killed before changes of files: the same command ends as if nothing had been, and nothing stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.prepared import small_config, write_store
from tests.reliability.figures import LONG
from tests.reliability.killed import killed_at_each

from electra_trainer.cli.main import main
from electra_trainer.errors import ConfigError
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.train.loop import pretrain

_TIMED = ("timing.json", "log.txt", "environment.json", "metrics.jsonl", "result.json", "manifest.json")
"""Files with times, or with the run's id in them."""


def untimed(found: dict[str, bytes | None]) -> dict[str, bytes | None]:
    return {name: content for name, content in found.items() if not name.endswith(_TIMED)}


def test_finetune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Every file of the cell, the summary, the exported model and its predictions."""
    monkeypatch.chdir(tmp_path)
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", rows(40))
    write_csv(tmp_path / "dev.csv", rows(50)[40:])
    write_csv(tmp_path / "new.csv", [(str(n), text) for n, (text, _) in enumerate(rows(60)[50:])], ("id", "text"))
    words = "finetune encoder --train train.csv --dev dev.csv --predict new.csv --seeds 1 --epochs 1 --parallel 1 --device cpu"

    def work(out: Path) -> None:
        assert main([*words.split(), "--out", str(out)]) == 0, capfd.readouterr().err

    assert killed_at_each(work, tmp_path / "kills", every=1 if LONG else 11, same=untimed) >= 11


def test_export(tmp_path: Path) -> None:
    data = write_store(tmp_path / "data")
    run = pretrain(small_config(steps=3, layers=1), data, out=tmp_path / "run", device="cpu", quiet=True)

    def work(out: Path) -> None:
        try:
            export_run(run, out)
        except ConfigError as error:  # it was whole, but for its lock
            assert "is not an empty folder" in str(error) and sorted(os.listdir(out)) == ["discriminator", "generator"]

    assert killed_at_each(work, tmp_path / "kills", every=1 if LONG else 4) >= 12
