"""The role of a network comes from its config.json, whatever its folder is called."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store

from electra_trainer import load
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.playground.answers import open_model
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.read_back import network_folders
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.settings.config import changed
from electra_trainer.settings.methods import ReplaceMLM, RtdMLM
from electra_trainer.train.loop import pretrain

TEXT = "a class with methods"


def edit(folder: Path, **fields: object) -> Path:
    path = folder / "config.json"
    table = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in table.items() if value != "gone"}))
    return folder


def test_a_discriminator_in_a_folder_called_encoder(exported: Path, tmp_path: Path, electra: Electra) -> None:
    folder = shutil.copytree(exported / "discriminator", tmp_path / "encoder")
    expected = load(exported).score(TEXT)
    code, said, err = electra("score", folder, TEXT, "--json")
    assert code == 0, err
    assert json.loads(said)["replaced_probability"] == expected.replaced_probability
    code, _, err = electra("fill", folder, "a [MASK] here")
    assert code == ConfigError.exit_code and f"{folder} holds a discriminator (ElectraForPreTraining)" in err
    assert "needs a network that does (ElectraForMaskedLM)" in err
    code, _, err = electra("score", shutil.copytree(exported / "generator", tmp_path / "discriminator"), TEXT)
    assert code == ConfigError.exit_code and "holds a network that predicts words (ElectraForMaskedLM)" in err
    assert "no discriminator (ElectraForPreTraining)" in err
    assert open_model(str(folder)).facts()["scores"] is True
    assert list(InitFrom(name=str(folder)).read().networks) == ["discriminator"]
    words = "embeddings.word_embeddings.weight"
    for name in (folder, tmp_path):
        assert torch.equal(load_source(name).weights[words], load_source(exported).weights[words])


@pytest.mark.parametrize("names", [("generator", "encoder"), ("encoder", "discriminator"), ("b", "a"), ("model", "z")])
def test_a_parent_with_renamed_children(exported: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    for old, new in zip(("discriminator", "generator"), names, strict=True):
        edit(shutil.copytree(exported / old, tmp_path / new), electra_role="gone" if new == "a" else old)
    mine, theirs = load(tmp_path), load(exported)
    assert mine.score(TEXT) == theirs.score(TEXT) and mine.fill("a [MASK]") == theirs.fill("a [MASK]")
    assert InitFrom(name=str(tmp_path)).read().networks.keys() == {"discriminator", "generator"}
    assert load_source(tmp_path).weights.keys() == load_source(exported).weights.keys()


def test_contradictions_are_refused_by_name(exported: Path, tmp_path: Path, electra: Electra) -> None:
    folder = edit(shutil.copytree(exported / "discriminator", tmp_path / "x"), architectures=["ElectraForMaskedLM"])
    for words in (("score", folder, TEXT), ("fill", tmp_path, "a [MASK]")):
        code, _, err = electra(*words)
        assert code == CheckpointError.exit_code
        assert f"{folder / 'model.safetensors'}: the floating-point tensors do not match its config.json" in err
    edit(folder, architectures=["ElectraForPreTraining"])
    shutil.copytree(folder, tmp_path / "y")
    with pytest.raises(ConfigError, match=r"x and .*y: both are a discriminator"):
        load(tmp_path)
    edit(folder, architectures="gone")
    with pytest.raises(CheckpointError, match="describes None, expected one of ElectraForPreTraining"):
        load(folder)


@pytest.mark.parametrize("objective", [RtdMLM(), ReplaceMLM()], ids=["rtd-mlm", "replace-mlm"])
def test_two_networks_that_predict_words(tmp_path: Path, objective: RtdMLM | ReplaceMLM) -> None:
    """Our exports name their roles; of others one has to be given."""
    settings = changed(replace(small_config(steps=4), objective=objective), model={"initializer": "fan-in"})
    run = pretrain(settings, write_store(tmp_path / "data"), out=tmp_path / "run", device="cpu", quiet=True)
    names = {"discriminator": "c", "generator": "encoder", "encoder": "generator"}
    for folder in export_run(run, tmp_path / "out"):
        shutil.copytree(folder, tmp_path / "renamed" / names[folder.name])
    found = network_folders(tmp_path / "renamed")
    assert [(role, folder.name) for role, folder in found.items()] == sorted(
        (role, name) for role, name in names.items() if (tmp_path / "out" / role).is_dir()
    )
    renamed, plain = load(tmp_path / "renamed"), load(run)
    for role in found:
        one, two = getattr(renamed, role).state_dict(), getattr(plain, role).state_dict()
        assert all(torch.equal(one[name], tensor) for name, tensor in two.items()), role
    for folder in found.values():
        edit(folder, electra_role="gone")
    with pytest.raises(ConfigError, match=r"encoder and .*generator: both are a (generator|encoder)\. Give one"):
        load(tmp_path / "renamed")
