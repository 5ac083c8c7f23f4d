"""Sharing none, tables, embeddings or all (§3.2): which parameters are the very same objects, whatever is done to the networks."""

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.prepared import small_config, write_store
from tests.reach import gradients, lively, losses, made, masked_rows
from torch import Tensor, nn

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.objectives import Objective, build
from electra_trainer.pretrained import read_back
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, AllTokensMLM, Learned, ObjectiveSettings, ReplaceMLM
from electra_trainer.train.loop import pretrain
from electra_trainer.train.weights import restore, stored

OBJECTIVES: dict[str, ObjectiveSettings] = {"rtd": RTD(), "replace-mlm": ReplaceMLM(), "all-tokens-mlm": AllTokensMLM()}
TABLE = "discriminator.electra.embeddings.word_embeddings.weight"
EVERY = pytest.mark.parametrize("kind", OBJECTIVES)
SHARING = pytest.mark.parametrize("sharing", ["none", "tables", "embeddings", "all"])
EMBEDDINGS = {
    "word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight", "LayerNorm.weight",
    "LayerNorm.bias",
}  # fmt: skip


def settings(kind: str, sharing: str) -> Config:
    """The generator has the encoder's size in every mode, so that nothing but the mode decides."""
    return lively(objective=OBJECTIVES[kind], sharing=sharing, generator=Learned(width=1.0))


def kept(objective: Any) -> Any:
    """The network beside the generator."""
    return objective.discriminator if hasattr(objective, "discriminator") else objective.encoder


def expected(objective: Any, sharing: str) -> set[str]:
    """Names, within an encoder, of what the mode shares; written out, but for the layers."""
    if sharing == "none":
        return set()
    if sharing == "tables":
        return {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"}
    embeddings = {f"embeddings.{name}" for name in EMBEDDINGS}
    if sharing == "embeddings":
        return embeddings
    names = {name for name, _ in kept(objective).electra.named_parameters()}
    assert names > embeddings | {"embeddings_project.weight", "encoder.layer.1.output.dense.bias"}
    return names


def assert_shared(objective: Any, sharing: str) -> None:
    """The very same parameters, and no others; heads and output biases are each network's own."""
    mine, theirs = (
        dict(kept(objective).electra.named_parameters()),
        dict(objective.generator.electra.named_parameters()),
    )
    assert mine.keys() == theirs.keys()
    assert {name for name in mine if mine[name] is theirs[name]} == expected(objective, sharing)
    assert {name for name in mine if mine[name].data_ptr() == theirs[name].data_ptr() != 0} == (
        expected(objective, sharing) if next(iter(mine.values())).device.type == "cpu" else set()
    )
    both = {id(p) for p in kept(objective).parameters()} & {id(p) for p in objective.generator.parameters()}
    assert len(both) == len(expected(objective, sharing))


def saved_and_restored(objective: Objective) -> Objective:
    """Through the bytes of a safetensors file, as a checkpoint does it, into networks of another seed."""
    weights = safetensors.torch.load(safetensors.torch.save({n: t.detach() for n, t in stored(objective).items()}))
    other = build(dataclasses.replace(objective.config, seed=99))
    restore(other, weights)
    for name, parameter in objective.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    return other


WAYS: dict[str, Callable[[Objective], nn.Module]] = {
    "as built": lambda objective: objective,
    "to float64": lambda objective: objective.to(torch.float64),
    "to a device": lambda objective: objective.to("meta"),
    "half and back": lambda objective: objective.half().float(),
    "deepcopy": copy.deepcopy,
    "saved and restored": saved_and_restored,
}


@EVERY
@SHARING
@pytest.mark.parametrize("way", WAYS)
def test_the_very_same_parameters(kind: str, sharing: str, way: str) -> None:
    objective = WAYS[way](build(settings(kind, sharing)))
    assert_shared(objective, sharing)


@pytest.mark.parametrize("sharing", ["none", "embeddings"])
def test_the_softmax_trains_every_word_of_a_tied_table(sharing: str) -> None:
    """§3.2: the discriminator alone trains the words in its input, a tied generator's softmax the whole vocabulary."""
    objective, masked = made(given := settings("rtd", sharing)), masked_rows(settings("rtd", sharing))
    found = losses(objective, masked)
    gradient_VE = gradients(objective, found.total({"masked": 1.0, "real": 1.0}))[TABLE]
    trained = set(gradient_VE.abs().sum(1).nonzero().flatten().tolist())
    read = set(found.diagnostics["corrupted_BT"][masked.batch.real_BT].tolist())
    assert trained == (read if sharing == "none" else {*range(given.model.vocab_size)})
    assert 20 < len(read) < given.model.vocab_size


@EVERY
@SHARING
def test_the_kept_network_begins_alike(kind: str, sharing: str) -> None:
    """Whatever is shared, its first weights are drawn by its names."""
    alone, found = (kept(build(settings(kind, mode))).state_dict() for mode in ("none", sharing))
    assert all(torch.equal(alone[name], tensor) for name, tensor in found.items())


@EVERY
@SHARING
def test_stored_once(kind: str, sharing: str) -> None:
    """A checkpoint names each shared parameter once, under the kept network, and its bytes are there once."""
    objective = build(settings(kind, sharing))
    names = set(stored(objective))
    first = "discriminator" if kind == "rtd" else "encoder"
    for name in (name for name, _ in kept(objective).electra.named_parameters()):
        assert f"{first}.electra.{name}" in names
        assert (f"generator.electra.{name}" in names) == (name not in expected(objective, sharing))
    size = sum(parameter.numel() for parameter in {id(p): p for p in objective.parameters()}.values())
    content = safetensors.torch.save({n: t.detach() for n, t in stored(objective).items()})
    assert 4 * size <= len(content) < 4 * size + 20_000
    twice = sum(kept(objective).electra.get_parameter(name).numel() for name in expected(objective, sharing))
    assert size == sum(p.numel() for p in build(settings(kind, "none")).parameters()) - twice


# --- runs ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few steps with everything shared."""
    folder = tmp_path_factory.mktemp("sharing")
    config = dataclasses.replace(small_config(steps=4), sharing="all", generator=Learned(width=1.0))
    return pretrain(config, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


def test_exported_folders_give_equal_logits(run: Path) -> None:
    """Each folder holds the whole encoder; read back on their own, or by transformers, both compute what the run computes."""
    out = run.parent / "exported"
    folders = {folder.name: folder for folder in export_run(run, out)}
    assert set(folders) == {"discriminator", "generator"}
    ids = [[2, *range(5, 30), 3], [2, *range(40, 65), 3]]
    rows, live = encode_rows(ids), {item.name: item.network for item in load(run).networks}
    slots = torch.arange(rows.ids_BT.numel())
    encoders: list[dict[str, Tensor]] = []
    for name, folder in folders.items():
        network, _ = read_back.read_network(folder)
        extra = (slots,) if name == "generator" else ()
        with torch.no_grad():
            assert torch.equal(network(rows.ids_BT, rows, *extra), live[name](rows.ids_BT, rows, *extra))
        assert check_agreement(folder, live[name], load(run).tokenizer, length=30) <= 1e-5
        encoders.append({key: tensor for key, tensor in network.state_dict().items() if key.startswith("electra.")})
    assert encoders[0].keys() == encoders[1].keys()
    assert all(torch.equal(encoders[0][key], encoders[1][key]) for key in encoders[0])
