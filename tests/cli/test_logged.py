"""Progress and notes of calls from Python go to the logger `electra_trainer` where `logging` is configured; the command shows them."""

import logging
import re
from pathlib import Path

import pytest
from tests.command import Electra
from tests.prepared import small_config, write_store

from electra_trainer import errors
from electra_trainer.experiments.engine import Board
from electra_trainer.kernels.native import library
from electra_trainer.train.loop import pretrain


def test_lines_are_logged_or_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, config = write_store(tmp_path / "data"), small_config(steps=4)
    library.load("fp32")  # who compiles the kernels is told so, once
    capfd.readouterr()
    caplog.set_level(logging.INFO, logger="electra_trainer")
    pretrain(config, data, out=tmp_path / "shown", device="cpu")
    shown = capfd.readouterr().err
    assert "step 4/4  " in shown and not caplog.records
    monkeypatch.setattr(errors, "_commands", [])
    pretrain(config, data, out=tmp_path / "logged", device="cpu")
    errors.tell("a \x1b note")
    Board({}, done=set()).say("a cell is done")
    Board({}, done=set(), quiet=True).say("quiet")
    assert capfd.readouterr().err == ""
    assert {record.name for record in caplog.records} == {"electra_trainer"}
    lines = [record.getMessage() for record in caplog.records]
    told = [[line for line in some if not re.match("step [1-4]/4  ", line)] for some in (lines, shown.splitlines())]
    assert len(told[0]) == 2 + len(told[1]) and any(line.startswith("step 4/4  ") for line in lines), told
    assert lines[-2:] == ["a \\x1b note", "a cell is done"]
    assert [record.levelno for record in caplog.records][-2:] == [logging.WARNING, logging.INFO]
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    errors.tell("nobody configured logging")
    assert capfd.readouterr().err == "electra: nobody configured logging\n"


def test_the_command_shows_lines(electra: Electra, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_commands", [])
    code, _, err = electra("score", "nowhere", "a text")
    assert code == errors.MissingInputError.exit_code and err.startswith("electra: nowhere")
