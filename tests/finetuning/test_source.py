"""The encoder comes whole from wherever it is: runs, exports, folders that transformers saved, the Hub."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
import safetensors.torch
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from tests.finetuning.small_source import source
from tests.prepared import small_config, write_store
from torch import Tensor

from electra_trainer.errors import CheckpointError, MissingInputError
from electra_trainer.pretrained.pretrained import export_run, kept_encoder, load
from electra_trainer.pretrained.read_back import read_network
from electra_trainer.pretrained.source import load_source, untrained
from electra_trainer.settings.methods import MLM
from electra_trainer.settings.records import LEARNED, TASK
from electra_trainer.train.loop import pretrain

ARCHITECTURES = ("ElectraModel", "ElectraForSequenceClassification", "ElectraForPreTraining", "ElectraForMaskedLM")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`rtd` and `mlm`, three steps each, and what was exported of them."""
    folder = tmp_path_factory.mktemp("source")
    data = write_store(folder / "data")
    for name, config in (("rtd", small_config(steps=3)), ("mlm", replace(small_config(steps=3), objective=MLM()))):
        pretrain(config, data, out=folder / name, device="cpu", quiet=True)
        export_run(folder / name, folder / f"{name}-exported")
    return folder


def same_weights(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def encoder_of(run: Path) -> Mapping[str, Tensor]:
    weights: Mapping[str, Tensor] = kept_encoder(load(run)).state_dict()
    return weights


@pytest.mark.parametrize(
    ("run", "path"),
    [
        ("rtd", "rtd"), ("rtd", "rtd-exported"), ("rtd", "rtd-exported/discriminator"),
        ("mlm", "mlm"), ("mlm", "mlm-exported"), ("mlm", "mlm-exported/encoder"),
    ],
)  # fmt: skip
def test_a_run_and_its_exports_are_the_same_encoder(runs: Path, run: str, path: str) -> None:
    found = load_source(str(runs / path))
    assert same_weights(found.weights, encoder_of(runs / run))
    first = load_source(runs / run)
    assert found.sha256 == first.sha256
    assert (found.length, found.specials, found.model) == (first.length, first.specials, first.model)
    assert found.length == 32 and found.name == str(runs / path)  # of its rows; positions go to 512
    assert found.text(128).length == 32 and found.text(16).length == 16
    ids = found.text(128).encode(["some text"])[0].ids
    assert ids and ids == first.text(128).encode(["some text"])[0].ids


def test_the_generator_is_an_encoder_too_where_it_is_asked_for(runs: Path) -> None:
    found = load_source(runs / "rtd-exported" / "generator")
    assert found.model.hidden_size == 16 and found.sha256 != load_source(runs / "rtd").sha256


@pytest.fixture(scope="module", params=ARCHITECTURES)
def saved(request: pytest.FixtureRequest, runs: Path) -> Path:
    """A folder as transformers saves it: random weights, head included, and the tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = runs / f"by-transformers-{request.param}"
    origin = runs / "rtd-exported" / "discriminator"
    torch.manual_seed(3)
    network = getattr(transformers, request.param)(transformers.ElectraConfig.from_pretrained(origin))
    network.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(origin).save_pretrained(folder)
    return folder


def test_folders_that_transformers_saved(saved: Path) -> None:
    """With a head or without, under the prefix `electra.` or none: every tensor of the encoder, bit for bit."""
    transformers = pytest.importorskip("transformers")
    found = load_source(saved)
    theirs = transformers.AutoModel.from_pretrained(saved).state_dict()
    assert same_weights(found.weights, {name: theirs[name] for name in theirs if not name.endswith("position_ids")})
    names = safetensors.torch.load_file(saved / "model.safetensors")
    assert saved.name.endswith("ElectraModel") != any(name.startswith("electra.") for name in names)
    assert found.tokenizer.encode("a class", "of words", add_special_tokens=False).ids


def test_the_encoder_is_built_with_the_recipe_s_dropout(runs: Path) -> None:
    found = load_source(runs / "rtd")
    encoder = found.encoder(dropout=0.3, attention_dropout=0.2)
    assert encoder.encoder.layer[0].attention.output.dropout.p == 0.3
    assert encoder.encoder.layer[1].attention.self.dropout == 0.2  # type: ignore[union-attr]
    with torch.no_grad():
        encoder.embeddings.word_embeddings.weight.zero_()
    assert found.weights["embeddings.word_embeddings.weight"].any()  # a run does not change what the next begins with


# --------------------------------------------------------------------------------------------- what it is known by


def test_the_hash_is_of_weights_and_tokenizer() -> None:
    one, same = source(), source()
    assert one.sha256 == same.sha256 == replace(one, name="elsewhere").sha256
    assert one.sha256 == replace(one, weights=dict(reversed(one.weights.items()))).sha256
    others = []
    for name, weight in one.weights.items():
        moved = weight.index_put([torch.tensor(0)] * weight.dim(), weight.new_tensor(0.5))
        others.append(replace(one, weights={**one.weights, name: moved}).sha256)
    assert len({one.sha256, *others}) == 1 + len(others)
    tokenizer = type(one.tokenizer).from_str(one.tokenizer.to_str().replace('"lowercase":true', '"lowercase":false'))
    assert replace(one, tokenizer=tokenizer).sha256 != one.sha256


def test_untrained_is_the_same_shape_with_weights_of_its_seed() -> None:
    made = source()
    fresh = untrained(made, seed=1)
    assert fresh.name == "untrained (small)" and fresh.model == made.model
    assert same_weights(fresh.weights, untrained(made, seed=1).weights)
    assert {n: t.shape for n, t in fresh.weights.items()} == {n: t.shape for n, t in made.weights.items()}
    table = "embeddings.word_embeddings.weight"
    assert not torch.equal(fresh.weights[table], untrained(made, seed=2).weights[table])
    query = fresh.weights["encoder.layer.0.attention.self.query.weight"]
    assert float(query.std()) == pytest.approx(0.8796 * query.shape[1] ** -0.5, rel=0.1)  # fan-in
    exported = replace(made, model=replace(made.model, initializer="fan-in"))
    assert same_weights(fresh.weights, untrained(exported, seed=1).weights), "an export does not say how a run began"
    assert not fresh.weights["encoder.layer.0.output.dense.bias"].any()


# --------------------------------------------------------------------------------------------- what is not there


@pytest.fixture
def folder(runs: Path, tmp_path: Path) -> Path:
    """A copy of an exported network, to be spoilt."""
    return Path(shutil.copytree(runs / "rtd-exported" / "discriminator", tmp_path / "network"))


def rewrite(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def without_a_tensor(folder: Path) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    del tensors["electra.encoder.layer.1.output.dense.bias"]
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def as_an_experiment(folder: Path) -> None:
    rewrite(folder / "config.json", architectures=["ElectraForSequenceClassification"])
    model = folder.rename(folder.with_name("moved"))
    folder.mkdir()
    model.rename(folder / "model")


SPOILT: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "another activation": (lambda f: rewrite(f / "config.json", hidden_act="relu"), CheckpointError, "hidden_act 'relu'"),
    "another width": (lambda f: rewrite(f / "config.json", intermediate_size=48), CheckpointError, "size mismatch for"),
    "more layers": (lambda f: rewrite(f / "config.json", num_hidden_layers=3), CheckpointError, "encoder.layer.2"),
    "a tensor less": (without_a_tensor, CheckpointError, r"encoder\.layer\.1\.output\.dense\.bias"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), MissingInputError, r"model\.safetensors: no such file"),
    "half of the weights": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        CheckpointError, r"model\.safetensors: not a readable safetensors file",
    ),
    "an experiment": (as_an_experiment, MissingInputError, r"no config\.json\)\. Did you mean .*/model\?"),
    "a file": (
        lambda f: (shutil.rmtree(f), f.write_bytes(b"")), MissingInputError, r"network: is a file\. Expected a run folder",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), MissingInputError, "holds neither a run nor an encoder"),
    "no tokenizer": (
        lambda f: [(f / name).unlink() for name in ("tokenizer.json", "vocab.txt")],
        MissingInputError, r"holds neither tokenizer\.json nor vocab\.txt",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_a_missing_folder_is_named(folder: Path, name: str) -> None:
    spoil, kind, said = SPOILT[name]
    spoil(folder)
    with pytest.raises(kind, match=said) as caught:
        load_source(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "runs", "/nowhere/at/all", "./a/b", "a/b/", "a/b/c", "my runs/demo", "~/demo", "google/a--b"]
)
def test_what_can_be_neither_a_folder_nor_a_hub_name(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingInputError, match=r"no such folder\. Expected a run folder"):
        load_source(name)


# --------------------------------------------------------------------------------------------- the Hub


HUB_NAME = "google/electra-small-discriminator"


def hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> list[object]:
    """Stand in for the Hub; what it was asked for."""
    asked: list[object] = []

    def snapshot_download(repo_id: str, *, allow_patterns: list[str]) -> str:
        asked.extend([repo_id, *allow_patterns])
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_from_the_hub(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, runs / "rtd-exported" / "discriminator")
    found = load_source(HUB_NAME)
    assert found.name == HUB_NAME and found.sha256 == load_source(runs / "rtd").sha256
    assert asked[0] == HUB_NAME and {"config.json", "model.safetensors", "vocab.txt", TASK, LEARNED} <= set(asked)
    assert not [name for name in asked if str(name).endswith((".bin", ".pt", ".h5", ".msgpack"))]


def test_a_folder_comes_before_the_hub(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, RuntimeError("nobody asks"))
    monkeypatch.chdir(runs)
    assert load_source("rtd-exported/discriminator").name == "rtd-exported/discriminator" and not asked


def missing() -> RepositoryNotFoundError:
    found = RepositoryNotFoundError.__new__(RepositoryNotFoundError)
    OSError.__init__(found, "404")
    return found


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (missing(), r"no such model on the Hub that may be read\. Check the name"),
        (LocalEntryNotFoundError("Cannot find\nmore"), r"could not be asked \(Cannot find\)"),
        (ConnectionError("offline mode is enabled"), r"could not be asked \(offline mode is enabled\)"),
        (OSError(), r"could not be asked \(OSError\)"),
    ],
)
def test_the_hub_s_refusals(answer: Exception, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    hub(monkeypatch, answer)
    with pytest.raises(MissingInputError, match=said) as caught:
        load_source(HUB_NAME)
    assert HUB_NAME in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_that_is_not_there_is_named_before_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    hub(monkeypatch, LocalEntryNotFoundError("Cannot find"))
    with pytest.raises(
        MissingInputError, match=r"^runs/mine: no such folder \(no run is there: begin with en-mini"
    ) as found:
        load_source("runs/mine")
    assert "train it with electra pretrain DATA --out runs/mine), and the Hub could not be asked" in str(found.value)


@pytest.mark.parametrize(("part", "named"), [("discriminator", True), ("discriminator", False), ("generator", True)])
def test_pickled_weights_are_not_read_and_the_way_round_keeps_the_head(
    runs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, part: str, named: bool
) -> None:
    """The head that the model's config.json names; without a name that of transformers' ELECTRA, the discriminator's."""
    pytest.importorskip("transformers")
    origin = runs / "rtd-exported" / part
    bare = Path(shutil.copytree(origin, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors")))
    if not named:
        rewrite(bare / "config.json", architectures=None)
    monkeypatch.chdir(tmp_path)
    hub(monkeypatch, bare)
    with pytest.raises(MissingInputError, match=r"no model\.safetensors on the Hub, and pickled weights") as caught:
        load_source(HUB_NAME)
    found = re.search(r'python -c "(.*)"$', str(caught.value))
    assert found is not None
    shutil.copytree(origin, tmp_path / HUB_NAME)  # what transformers would find under that name
    exec(found[1])  # the command as it is printed
    assert load_source("DIR").sha256 == load_source(origin).sha256
    converted, whole = read_network(Path("DIR"))[0].state_dict(), read_network(origin)[0].state_dict()
    assert same_weights(converted, whole)


def test_pickled_weights_in_a_folder_have_the_same_way_round(runs: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "bare"
    network = transformers.ElectraForMaskedLM.from_pretrained(runs / "rtd-exported" / "generator")
    shutil.copytree(runs / "rtd-exported" / "generator", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(network.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(MissingInputError, match=r"bare: has pytorch_model\.bin and no model\.safetensors") as caught:
        load_source(folder)
    found = re.search(r'python -c "(.*)"$', str(caught.value))
    assert found is not None
    exec(found[1].replace("'DIR'", repr(str(tmp_path / "DIR"))))
    assert load_source(tmp_path / "DIR").sha256 == load_source(runs / "rtd-exported" / "generator").sha256
    assert read_network(tmp_path / "DIR")[1].vocab_size
