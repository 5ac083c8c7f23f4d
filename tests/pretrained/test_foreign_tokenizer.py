"""A folder whose tokenizer has ids beyond the model's words: one sentence in every verb, and its remedy works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder

from electra_trainer.errors import CheckpointError
from electra_trainer.pretrained.pretrained import load
from electra_trainer.pretrained.source import InitFrom


@pytest.fixture
def work(tmp_path: Path, exported: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export, a run and an encoder, each with a token too many; a table."""
    shutil.copytree(exported, tmp_path / "exported")
    shutil.copytree(run, tmp_path / "run")
    write_encoder(tmp_path / "encoder")
    write_csv(tmp_path / "train.csv", rows(20))
    for path in tmp_path.glob("**/tokenizer.json"):
        add_token(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_token(path: Path, number: int = 99_999) -> None:
    table = json.loads(path.read_text())
    table["model"]["vocab"]["flew"] = number
    path.write_text(json.dumps(table))


def test_an_id_beyond_the_vocabulary(work: Path, electra: Electra) -> None:
    for words in (
        ("score", "exported", "It flew"),
        ("score", "run", "It flew"),
        ("fill", "exported", "It [MASK] flew"),
        ("finetune", "encoder", "--train", "train.csv", "--out", "exp"),
        ("export", "run", "--out", "out"),
        ("playground", "exported", "--port", "0"),
    ):
        code, out, err = electra(*words)
        assert code == 65, (words, out, err)
        assert "the tokenizer has the id 99,999 (token 'flew'), the model " in err, err
        assert len(err.splitlines()) == 1 + (words[0] == "playground"), err  # it names what it loads
    with pytest.raises(CheckpointError, match="99,999"):
        InitFrom(name="encoder").read()


def test_the_remedy(exported: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = shutil.copytree(exported / "discriminator", tmp_path / "d")
    words = json.loads((folder / "config.json").read_text())["vocab_size"]
    add_token(folder / "tokenizer.json", words)
    with pytest.raises(CheckpointError, match=f"resize_token_embeddings.{words + 1}.") as refused:
        load(folder)
    assert str(folder) in str(refused.value)
    model = transformers.AutoModelForPreTraining.from_pretrained(folder)
    model.resize_token_embeddings(words + 1)
    model.save_pretrained(folder)
    assert len(load(folder).score("it flew").replaced_probability) >= 2
