"""Arguments that a Python program may give: what is meant is taken, what is not is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.prepared import small_config, write_store

from electra_trainer import OwnTask, api
from electra_trainer.errors import CheckpointError, ConfigError, DataError
from electra_trainer.pretrained.source import load_source
from electra_trainer.train.device import choose_precision, placed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    write_store(folder / "data")
    trained = api.pretrain(
        folder / "data",
        out=folder / "run",
        preset=small_config(),
        steps=np.int64(2),
        seed=np.int64(3),
        device="cpu",
        quiet=True,
    )
    assert len(repr(trained)) < 200 and trained.step == 2
    return folder / "run"


def test_a_table_is_no_list_of_texts(run: Path) -> None:
    """Its items are the names of its columns."""
    table = pd.DataFrame({"text": ["one"], "more": ["two"]})
    for given in (table, {"text": ["one"]}):
        with pytest.raises(DataError, match=r'embed: is a (DataFrame|dict)\. Give its texts, for example df\["text"\]'):
            api.load(run).embed(given)  # type: ignore[arg-type]
    assert api.load(run).embed(table["text"]).shape[0] == 1


def test_a_bare_encoder_is_refused_with_what_reads_it(run: Path, tmp_path: Path) -> None:
    api.export(run, tmp_path / "out")
    folder = tmp_path / "out" / "discriminator"
    tensors, config = folder / "model.safetensors", folder / "config.json"
    save_file({name: one for name, one in load_file(tensors).items() if name.startswith("electra.")}, tensors)
    config.write_text(config.read_text().replace("ElectraForPreTraining", "ElectraModel"))
    with pytest.raises(CheckpointError, match=r"in Python, electra_trainer\.pretrained\.source\.load_source"):
        api.load(folder)
    assert load_source(folder).embedder().embed(["one", "two"]).shape[0] == 2


@pytest.mark.parametrize("given", [{"steps": 1.5}, {"budget": 60}])
def test_a_length_is_refused_before_the_folder_is_made(run: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"--steps 1.5: expected a whole number|--budget 60: expected a number and"):
        api.pretrain(run.parent / "data", out=tmp_path / "run", preset=small_config(), **given)
    assert not (tmp_path / "run/config.json").exists()


def test_one_name_is_a_list_of_one(run: Path, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"preset": small_config(lanes=1), "steps": 1e0, "quiet": True, "device": "cpu"}
    found = api.compare(
        run.parent / "data", out=tmp_path / "exp", arms="electra,mlm", seeds=np.int64(1), probe="held-out", **asked
    )
    assert list(found.rows) == ["electra", "mlm"]
    assert api.report(run, out=tmp_path / "page.html").exists()


def test_numbers_of_numpy_are_pythons() -> None:
    """JSON refuses them, and a float would round a large seed."""
    large = 2**53 + 1
    assert api._numbered([large, np.int64(2), 3.0]) == (large, 2, 3)  # type: ignore[list-item]
    assert [type(api._plain(one)) for one in (np.int64(2), np.float32(2), np.bool_(True))] == [int, float, bool]


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ConfigError, match="OwnTask: class_weights = 'none': expected None or 'balanced'"):
        OwnTask(train="a.csv", class_weights="none")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="precision 'fp16': expected auto, fp32 or bf16"):
        choose_precision("fp16", torch.device("cpu"))


def test_a_network_returns_to_its_device() -> None:
    network = torch.nn.Linear(2, 2, device="meta")
    with placed(network, None) as where:
        assert where.type == "meta"
    cpu = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError), placed(cpu, "cuda:77"):
        pass
    assert cpu.weight.device.type == "cpu"


def test_unreadable_text_is_reported(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By Python's calls too, and once."""
    api.load(run).embed(["日本語の文章"])
    assert capsys.readouterr().err.count("100.0 % of the letters") == 1
    documents = [f"日本語の文章です。{number}" for number in range(40)]
    api.prepare(documents=documents, tokenizer=run / "tokenizer", seq_len=16, out=tmp_path / "d", valid_fraction=0.1)
    assert capsys.readouterr().err.count("is not a vocabulary of this language") == 1
