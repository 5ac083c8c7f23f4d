"""A file is not scored on what was learned from it by heart, whatever it is called."""

import os
from pathlib import Path

import pytest
from tests.finetuning.test_question_answering import squad_file

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.squad_task import Squad
from electra_trainer.finetuning.texts.splits import require_other_file


def test_the_same_file_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train = Path("train.csv")
    train.write_text("text,label\na,b\n")
    Path("link").symlink_to(train)
    os.link(train, "hard")
    Path("copy").write_bytes(train.read_bytes())
    Path("other").write_text("text,label\na,c\n")
    for dev in (train, Path("./train.csv"), tmp_path / "train.csv", Path("link"), Path("hard"), Path("copy")):
        with pytest.raises(
            ConfigError, match=r"^--dev .*: is the training file train.csv; .* was memorized. Do otherwise\.$"
        ):
            require_other_file(train, dev, instead="Do otherwise.")
    for dev in (Path("other"), Path("none"), tmp_path):
        require_other_file(train, dev)


def test_squad_says_what_else_there_is(tmp_path: Path) -> None:
    train, copy = squad_file(tmp_path, "train.json", 4), squad_file(tmp_path, "copy.json", 4)
    for dev in (train, copy):
        with pytest.raises(
            ConfigError, match=r"is the training file .*train.json.* Leave --dev out and give --split 0.1."
        ):
            Squad(train=train, dev=dev).load()
