"""The modern block exported as ModernBERT: the same logits in three versions of transformers, and back bit for bit."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store
from torch import Tensor, nn

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.modern import GatedFeedForward
from electra_trainer.objectives import build
from electra_trainer.pretrained import as_modern, export, read_back
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import RtdMLM
from electra_trainer.train.loop import pretrain
from electra_trainer.train.weights import begin_with

NETWORKS = ("discriminator", "encoder", "generator")
EACH = pytest.mark.parametrize("name", NETWORKS)
IDS = [[2, *range(5, 30), 3], [2, *range(8, 20), 3]]


def settings() -> Config:
    """All three networks, word tables narrower than the layers, and four layers, which ModernBERT's own pattern would treat unlike."""
    shape = {"block": "modern", "initializer": "fan-in", "num_hidden_layers": 4, "embedding_size": 12}
    return dataclasses.replace(changed(small_config(steps=4), model=shape), objective=RtdMLM())


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modern")
    return pretrain(settings(), write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def folder(modern: Path) -> Path:
    export_run(modern, modern.parent / "exported")
    return modern.parent / "exported"


def network_of(run: Path, name: str) -> nn.Module:
    return next(item.network for item in load(run).networks if item.name == name)


@torch.no_grad()
def logits(network: nn.Module, ids: list[int], *, discriminator: bool) -> Tensor:
    data = encode_rows([ids])
    found: Tensor = network(data.ids_BT, data) if discriminator else network(data.ids_BT, data, torch.arange(len(ids)))
    return found[0] if discriminator else found


@EACH
def test_same_logits_in_transformers(modern: Path, folder: Path, name: str) -> None:
    assert check_agreement(folder / name, network_of(modern, name), load(modern).tokenizer, length=30) <= 1e-5


ASK = """
import json, sys
sys.modules["sklearn"] = None  # transformers works without it, and importing it takes a second
import torch, transformers
assert transformers.__version__.startswith(sys.argv[1]), transformers.__version__
rows = json.loads(sys.argv[3])
ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
found = {}
for folder in sys.argv[4:]:
    name = json.load(open(folder + "/config.json"))["architectures"][0]
    model = getattr(transformers, name).from_pretrained(folder).eval()
    with torch.no_grad():
        found[folder] = model(ids, attention_mask=(ids > 0).long()).logits.tolist()
        model(**transformers.AutoTokenizer.from_pretrained(folder)("some text", return_tensors="pt"))
json.dump(found, open(sys.argv[2], "w"))
"""
OLD, OLDEST = (Path(sys.prefix) / name for name in ("transformers-4", "transformers-4.49"))


@pytest.mark.slow
@pytest.mark.parametrize(("version", "places"), [("4.57", [OLD]), ("4.49", [OLDEST, OLD])])
def test_the_same_in_transformers_4(
    modern: Path, folder: Path, tmp_path: Path, version: str, places: list[Path]
) -> None:
    """With padding, and from what its own tokenizer gives."""
    if not all(place.is_dir() for place in places):
        pytest.skip(f"transformers {version} is not installed beside the environment (make test does it)")
    words = [version, tmp_path / "answer.json", json.dumps(IDS), *(folder / name for name in NETWORKS)]
    done = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = json.loads((tmp_path / "answer.json").read_text())
    for name in NETWORKS:
        for ids, answer in zip(IDS, answers[str(folder / name)], strict=True):
            found, said = torch.tensor(answer)[: len(ids)], name == "discriminator"
            found = found[:, 1] - found[:, 0] if said else found
            expected = logits(network_of(modern, name), ids, discriminator=said)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@EACH
def test_what_is_read_back_is_written_alike(folder: Path, name: str) -> None:
    """Every tensor and setting, bit for bit."""
    network, model = read_back.read_network(folder / name)
    written = read_back.read_tensors(folder / name / "model.safetensors")
    again = as_modern.modern_tensors(network.state_dict())
    assert again.keys() == written.keys() and all(torch.equal(again[key], written[key]) for key in written)
    table = json.loads((folder / name / "config.json").read_text())
    assert table.items() >= as_modern.modern_table(model, pad_id=0).items()


def test_a_folder_scores_and_fills_as_the_run_does(modern: Path, folder: Path) -> None:
    one, two = load(modern), load(folder)
    scores = [made.score("a class with methods").replaced_probability for made in (one, two)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    fills = [[c.probability for c in made.fill("a [MASK] with methods")[0]] for made in (one, two)]
    assert fills[0] == pytest.approx(fills[1], abs=1e-6)


def test_a_run_and_its_export_are_fine_tuned_alike(modern: Path, folder: Path) -> None:
    """Both with the folded table, whatever its bits; what the run began with is what names it."""
    run, exported = load_source(modern), load_source(folder)
    assert run.model.embedding_size == run.model.hidden_size == exported.model.embedding_size
    assert run.weights.keys() == exported.weights.keys()
    for name, tensor in run.weights.items():
        assert torch.equal(tensor, exported.weights[name]), name
    data, kept = encode_rows(IDS[:1]), network_of(modern, "discriminator").electra
    assert isinstance(kept, Encoder)
    with torch.no_grad():
        states = [encoder.eval()(data.ids_BT, data) for encoder in (kept, run.encoder(dropout=0, attention_dropout=0))]
    torch.testing.assert_close(*states, atol=1e-5, rtol=0)
    unfolded = dataclasses.replace(run, digest=None)
    assert run.sha256 == load_source(modern).sha256 != unfolded.sha256


def test_another_run_begins_with_it(modern: Path, folder: Path) -> None:
    """With a run as it is; with an export as wide as its layers."""
    for place, width in ((modern, 12), (folder / "discriminator", 32)):
        initial = InitFrom(name=str(place)).read()
        made = build(changed(settings(), model={"embedding_size": width, "vocab_size": initial.model.vocab_size}))
        begin_with(made, initial)
        kept = made.exported()[0].network.get_submodule("electra")
        assert all(torch.equal(tensor, initial.encoder[name]) for name, tensor in kept.state_dict().items())


def test_fine_tuned_folder(modern: Path, tmp_path: Path, electra: Electra) -> None:
    """It predicts as before, and transformers loads its encoder, which its own tokenizer feeds."""
    transformers = pytest.importorskip("transformers")
    lines = [f"the class {n} is good,yes\na method {n} that fails,no" for n in range(12)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(lines))
    short = ["--epochs", "1", "--batch-size", "8", "--max-length", "24", "--seeds", "1"]
    code, _, err = electra("finetune", modern, "--train", tmp_path / "rows.csv", "--out", tmp_path / "tuned", *short)
    assert code == 0, err
    place = tmp_path / "tuned/model"
    code, said, err = electra("predict", place, tmp_path / "rows.csv", "--json")
    assert code == 0 and len(said.splitlines()) == 24, err
    encoder = transformers.AutoModel.from_pretrained(place / "encoder").eval()
    assert type(encoder).__name__ == "ModernBertModel"
    words = transformers.AutoTokenizer.from_pretrained(place / "encoder")("the class", return_tensors="pt")
    data = encode_rows(words["input_ids"].tolist())
    ours, _ = read_back.read_encoder(place / "encoder")
    with torch.no_grad():
        torch.testing.assert_close(ours(data.ids_BT, data), encoder(**words).last_hidden_state, atol=1e-5, rtol=0)


def test_refusals(modern: Path, tmp_path: Path, electra: Electra) -> None:
    for words, message in (
        (["--as", "bert"], "--as bert: the layers of this encoder are ModernBERT's"),
        (["--to", "onnx"], "not made for the modern block" if has_onnx() else "onnx"),
    ):
        code, _, err = electra("export", modern, "--out", tmp_path / "out", *words)
        assert code == ConfigError.exit_code and message in err
        assert not (tmp_path / "out").exists()


def has_onnx() -> bool:
    from importlib.util import find_spec

    return all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))


class Ungated(GatedFeedForward):
    """Another function of the same parameters."""


def test_layers_with_another_arithmetic_are_not_written(modern: Path, tmp_path: Path) -> None:
    loaded = load(modern)
    kept = loaded.networks[0].network.get_submodule("electra.encoder")
    kept.layer[1].mlp = Ungated(settings().model)  # type: ignore[index, union-attr]
    with pytest.raises(ConfigError, match="export: Ungated does not declare to be a part of ModernBERT's block"):
        export.shape_table(loaded.networks[0].model, pad_id=0, layers=kept)  # type: ignore[arg-type]


FOREIGN = {
    "windows": ({"layer_types": ["full_attention", "sliding_attention"] * 2}, "some layers see a window alone"),
    "its own pattern": ({"layer_types": None, "global_attn_every_n_layers": 3}, "some layers see a window alone"),
    "biases": ({"attention_bias": True}, "attention_bias True, expected False"),
    "activation": ({"hidden_activation": "silu"}, "hidden_activation 'silu', expected 'gelu'"),
    "epsilon": ({"norm_eps": 1e-6}, "norm_eps 1e-06, expected 1e-05"),
    "inner width": ({"intermediate_size": 34}, "intermediate_size 34, expected a multiple of 32"),
    "stretched positions": (
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}}, "rope_type 'yarn', expected 'default'",
    ),
    "a task's labels": ({"id2label": {"0": "O", "1": "B-PER"}}, "describes 'modernbert' 'ModernBertForTokenClassification'"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_computes_something_else_is_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    change, words = FOREIGN[kind]
    place = shutil.copytree(folder / "discriminator", tmp_path / "discriminator")
    table = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(table | change))
    with pytest.raises(CheckpointError, match=words):
        read_back.read_network(place)


def test_positions_of_another_config_are_read(folder: Path, tmp_path: Path) -> None:
    """As 4.57 writes it, without `rope_parameters` and `layer_types`."""
    place = shutil.copytree(folder / "encoder", tmp_path / "encoder")
    table = json.loads((place / "config.json").read_text()) | {"global_rope_theta": 500.0}
    del table["rope_parameters"], table["layer_types"]
    (place / "config.json").write_text(json.dumps(table))
    assert read_back.read_network(place)[1].rotary_theta == 500.0
