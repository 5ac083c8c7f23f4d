"""`--as bert`: the same numbers from transformers' BERT, wherever BERT has the shape."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.objectives import build
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run, kept_encoder
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.settings.config import changed
from electra_trainer.settings.methods import Learned
from electra_trainer.train.begin.initial import told_of
from electra_trainer.train.loop import pretrain

ROWS = torch.arange(5, 65).view(2, 30)
MASK = torch.ones_like(ROWS)
MASK[1, 20:] = 0


def trained(data: Path, out: Path, *, generator: float) -> Path:
    """A run of one layer whose embeddings are as wide as it."""
    shape = {"initializer": "fan-in", "embedding_size": 32, "num_hidden_layers": 1}
    settings = changed(small_config(steps=4), model=shape)
    settings = replace(settings, generator=Learned(width=generator))
    return pretrain(settings, data, out=out / f"run-{generator}", device="cpu", quiet=True)


@pytest.fixture(scope="module")
def square(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its exports are electra/ and bert/ beside it."""
    run = trained(data, tmp_path_factory.mktemp("square"), generator=1.0)
    export_run(run, run.parent / "electra")
    export_run(run, run.parent / "bert", bert=True)
    return run


@torch.no_grad()
def test_the_same_bits_as_electra(square: Path) -> None:
    """Hidden states and logits are equal, padding included; nothing is missing from the files or left over."""
    import transformers

    folder = square.parent
    kinds = {"discriminator": ("ElectraModel", "BertModel"), "generator": ("ElectraForMaskedLM", "BertForMaskedLM")}
    for name, (old, new) in kinds.items():
        electra = getattr(transformers, old).from_pretrained(folder / "electra" / name).eval()
        pooler = {"add_pooling_layer": False} if new == "BertModel" else {}
        bert, said = getattr(transformers, new).from_pretrained(
            folder / "bert" / name, output_loading_info=True, **pooler
        )
        assert not said["missing_keys"] and not said["unexpected_keys"] and not said["mismatched_keys"]
        outputs = [model(input_ids=ROWS, attention_mask=MASK) for model in (electra, bert.eval())]
        assert torch.equal(outputs[0][0], outputs[1][0])
    assert type(transformers.AutoModel.from_pretrained(folder / "bert" / "discriminator")).__name__ == "BertModel"
    run = load(square)
    assert run.discriminator is not None
    hidden = run.discriminator.electra(ROWS, encode_rows(ROWS))
    assert (
        hidden[0] - transformers.BertModel.from_pretrained(folder / "bert" / "discriminator")(ROWS)[0][0]
    ).abs().max() < 1e-5


def test_a_run_begins_with_it(square: Path) -> None:
    """With its encoder alone, or with the whole export, whose generator has its head."""
    run, folder = load(square), square.parent / "bert"
    for place, networks in ((folder, {"generator"}), (folder / "discriminator", set())):
        initial = InitFrom(name=str(place)).read()
        assert initial.networks.keys() == networks and run.config is not None
        assert f"{place}: {' and '.join(['the encoder', *networks])}; fresh: " in told_of(
            initial, [], build(run.config)
        )
        assert all(torch.equal(initial.encoder[name], one) for name, one in kept_encoder(run).state_dict().items())
    loaded = load(folder)
    assert loaded.discriminator is None and (loaded.embed(["a class"]) == run.embed(["a class"])).all()
    assert loaded.fill("a [MASK]") == run.fill("a [MASK]")


def test_sentence_transformers_reads_it(square: Path) -> None:
    models = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    vectors = []
    for kind in ("electra", "bert"):
        folder = square.parent / kind / "discriminator"
        assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 32
        assert json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode_mean_tokens"] is True
        vectors.append(models.SentenceTransformer(str(folder), device="cpu").encode(["a class", "word " * 90]))
    assert (vectors[0] == vectors[1]).all()


def test_it_is_compared_with_the_run(square: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(square.parent / "bert" / "discriminator", tmp_path / "discriminator")
    run = load(square)
    assert run.discriminator is not None and check_agreement(folder, run.discriminator, run.tokenizer) < 1e-5
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**table, "layer_norm_eps": 0.1}))
    with pytest.raises(CheckpointError, match="hidden states differ from transformers' by"):
        check_agreement(folder, run.discriminator, run.tokenizer)


def test_with_onnx(square: Path, tmp_path: Path, electra: Electra) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    code, said, err = electra("export", square, "--out", tmp_path / "out", "--as", "bert", "--to", "onnx")
    assert code == 0, err
    assert "onnx: ONNX Runtime has the run's hidden states within" in said and "run's logits within" in said
    outputs = {"discriminator": ["last_hidden_state"], "generator": ["last_hidden_state", "logits"]}
    for name, wanted in outputs.items():
        session = runtime.InferenceSession(tmp_path / "out" / name / "onnx" / "model.onnx")
        assert [one.name for one in session.get_outputs()] == wanted


def test_shapes_that_bert_does_not_have(data: Path, run: Path, tmp_path: Path, electra: Electra) -> None:
    """The encoder decides; a generator that does not fit stays what it is."""
    code, _, err = electra("export", run, "--out", tmp_path / "none", "--as", "bert")
    assert code == ConfigError.exit_code and not (tmp_path / "none").exists()
    assert "this encoder has block bert, embeddings of width 16 and layers of 32" in err
    code, said, _ = electra("export", trained(data, tmp_path, generator=0.5), "--out", tmp_path / "out", "--as", "bert")
    assert code == 0 and "generator: stays an ELECTRA, since its layers are not as wide" in said
    for name, kind in (("discriminator", "bert"), ("generator", "electra")):
        assert json.loads((tmp_path / "out" / name / "config.json").read_text())["model_type"] == kind
