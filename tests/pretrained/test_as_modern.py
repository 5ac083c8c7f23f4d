"""The modern block exported as ModernBERT: the same logits in transformers, and back bit for bit; test_transformers_4.py asks older versions."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.finetuning.own_files import rows, write_encoder
from tests.finetuning.test_folder_heads import data_of
from tests.prepared import small_config, write_store
from torch import Tensor, nn

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.finetuning.model_folder import export_finetuned, load_finetuned
from electra_trainer.finetuning.run import Job, collate, finetune_run
from electra_trainer.inspection.replay import evaluate
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.modern import GatedFeedForward, ModernEncoder
from electra_trainer.objectives import build
from electra_trainer.pretrained import as_modern, export, read_back
from electra_trainer.pretrained.agreement import check_agreement
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import Learned, RtdMLM
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification, Regression, TextTask
from electra_trainer.train.begin.initial import begin_with, check_initial, shape_differences
from electra_trainer.train.begin.narrow_tables import fit_tables
from electra_trainer.train.loop import pretrain

NETWORKS = ("discriminator", "encoder", "generator")
EACH = pytest.mark.parametrize("name", NETWORKS)
IDS = [[2, *range(5, 30), 3], [2, *range(8, 20), 3]]
LONG = [2, *(5 + at * 7 % 40 for at in range(298)), 3]
"""Longer than any window."""


def settings() -> Config:
    """All three networks, word tables narrower than the layers, and four layers, the middle two with windows and other angles."""
    shape = {
        "block": "modern", "initializer": "fan-in", "num_hidden_layers": 4, "embedding_size": 12, "local_attention": 6,
        "local_rotary_theta": 300.0,
    }  # fmt: skip
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


TUNED = ("texts", "means", "numbers", "tagging", "independent")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned model a task: 17 labels, more than half of the width; means of pairs; numbers, in units of their file."""
    root = tmp_path_factory.mktemp("tuned")
    source = load_source(write_encoder(root / "encoder", block="modern"))
    texts = [
        TextExample(text=text, label=str(at % 17), value=30_000.0 + 700 * at) for at, (text, _) in enumerate(rows(34))
    ]
    pairs = [dataclasses.replace(one, pair=two.text) for one, two in zip(texts, texts[3:], strict=False)]
    labels = tuple(map(str, range(17)))
    tasks = {
        "texts": (Classification(labels=labels), texts),
        "means": (Classification(labels=labels, pooling="mean"), pairs),
        "numbers": (Regression(shift=40_000.0, scale=7_000.0, pooling="mean"), texts),
    }
    for kind in TUNED:
        task, made = tasks.get(kind, (None, []))
        data = TaskData(task=task, train=made, dev={"dev": texts[:2]}) if task else data_of(kind)
        pooling = getattr(data.task, "pooling", None)
        job = Job(source=source, data=data, recipe=recipe("paper", hidden_size=32, epochs=1, pooling=pooling), seed=1)
        finetune_run(job, out=root / "runs" / kind, keep_weights=True, quiet=True, device="cpu")
        export_finetuned(root / "runs" / kind, out=root / kind, data=data)
    return root


def of_a_task(folder: Path) -> tuple[list[list[int]], Tensor, float]:
    """Rows of two examples, what `predict` reads of their tokens or texts, and how much transformers' may differ."""
    loaded, kind = load_finetuned(folder), folder.name
    one, two = (text for text, _ in rows(2))
    pairs = [(one, two), (two[:9], one)]
    asked: list[Any] = pairs if kind in ("means", "independent") else [one, two[:9]]
    if kind == "tagging":
        asked = [one.split(), two.split()[:5]]
    examples = loaded.task.examples_from(asked, pair=loaded.pair)
    made = loaded.task.rows(examples, loaded.text, training=False)
    batch = collate(made, loaded.text.specials, torch.device("cpu"))
    with torch.no_grad():
        states, head = loaded.network(batch), loaded.network.head
        found = loaded.task.output(head, states, batch) if isinstance(loaded.task, TextTask) else head(states)
    if isinstance(loaded.task, Regression):
        return [list(row.ids) for row in made], found * loaded.task.scale + loaded.task.shift, 1e-5 * loaded.task.scale
    return [list(row.ids) for row in made], found, 1e-5


def assert_same(answer: Any, folder: Path) -> None:
    ids, expected, bound = of_a_task(folder)
    assert expected.std() > 100 * bound
    for row, said, wanted in zip(ids, torch.tensor(answer), expected, strict=True):
        stop = len(row) if expected.dim() == 3 else None
        torch.testing.assert_close(said[:stop], wanted[:stop], atol=bound, rtol=0)


def test_fine_tuned_models_in_transformers(tuned: Path) -> None:
    """Under its own names, from its automatic classes; labels, and the bits of a head in other units."""
    transformers = pytest.importorskip("transformers")
    autos = {"tagging": "TokenClassification", "independent": "QuestionAnswering"}
    for kind in TUNED:
        auto = autos.get(kind, "SequenceClassification")
        model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(tuned / kind).eval()
        assert type(model).__name__ == f"ModernBertFor{auto}"
        rows_of, _, _ = of_a_task(tuned / kind)
        ids = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows_of], batch_first=True)
        with torch.no_grad():
            found = model(ids, attention_mask=(ids > 0).long())
        logits = found.logits if "logits" in found else torch.stack([found.start_logits, found.end_logits], -1)
        assert_same(logits.tolist(), tuned / kind)
        assert (tuned / kind / "head.safetensors").exists()
        assert "as in transformers" in (tuned / kind / "README.md").read_text()
    said = transformers.pipeline("text-classification", model=str(tuned / "texts"))([text for text, _ in rows(9)])
    mine = dataclasses.replace(load_finetuned(tuned / "texts"), precision="fp32").predict([text for text, _ in rows(9)])
    for one, two in zip(said, mine, strict=True):
        assert one["label"] == two["label"] and one["score"] == pytest.approx(
            two["probabilities"][two["label"]], abs=1e-5
        )


@EACH
def test_same_logits_in_transformers(modern: Path, folder: Path, name: str) -> None:
    assert check_agreement(folder / name, network_of(modern, name), load(modern).tokenizer, length=300) <= 1e-5


@EACH
def test_what_is_read_back_is_written_alike(folder: Path, name: str) -> None:
    """Every tensor and setting, bit for bit."""
    network, model = read_back.read_network(folder / name)
    written = read_back.read_tensors(folder / name / "model.safetensors")
    again = as_modern.modern_tensors(network.state_dict())
    assert again.keys() == written.keys() and all(torch.equal(again[key], written[key]) for key in written)
    table = json.loads((folder / name / "config.json").read_text())
    assert table.items() >= as_modern.modern_table(model, pad_id=0).items()


@EACH
def test_a_folded_table_is_the_projected_words(modern: Path, folder: Path, name: str) -> None:
    """Vectors that the encoder reads for each word, in fp32."""
    network = network_of(modern, name)
    assert isinstance(network.electra, ModernEncoder) and network.electra.embeddings_project is not None
    projected_VD = network.electra.embeddings_project(network.electra.embeddings.word_embeddings.weight)
    stored_VD = read_back.read_tensors(folder / name / "model.safetensors")["model.embeddings.tok_embeddings.weight"]
    torch.testing.assert_close(stored_VD, projected_VD.detach(), atol=1e-6, rtol=0)


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


@pytest.mark.parametrize(
    ("sharing", "embedding", "dtype"),
    [
        ("disentangled", 12, "float32"),  # mini
        ("disentangled", 32, "bfloat16"),  # demo
        ("disentangled", 16, "float32"),  # the generator has no projection
        ("embeddings", 12, "bfloat16"),
        ("embeddings", 48, "float32"),  # wider than all layers
        ("none", 12, "float32"),
        ("all", 12, "float32"),
    ],
)
def test_another_run_begins_with_an_export_whose_tables_were_narrower(
    sharing: str, embedding: int, dtype: str, modern: Path, tmp_path: Path
) -> None:
    """Its networks compute what the export's do, with what they share, and no tensor is fresh."""
    config = changed(settings(), model={"embedding_size": embedding, "num_hidden_layers": 2})
    width = 1.0 if sharing == "all" else 0.5
    config = dataclasses.replace(config, sharing=sharing, generator=Learned(width=width))
    before, source = build(config).eval(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source) / 20)
    export.export(
        before.exported(), card=lambda _: "", tokenizer=modern / "tokenizer", length=32,
        out=tmp_path / "out", form=export.Form(dtype=dtype),
    )  # fmt: skip
    initial = fit_tables(InitFrom(name=str(tmp_path / "out")).read(), config)
    check_initial(initial, config, Store.open(modern.parent / "data"))
    after = build(config).eval()
    assert begin_with(after, initial) == []
    for one, two in zip(before.exported(), after.exported(), strict=True):
        theirs, mine = (
            logits(made.network, LONG[:40], discriminator=one.name == "discriminator") for made in (one, two)
        )
        assert float((theirs - mine).abs().max()) < (1e-4 if dtype == "float32" else 0.2), one.name


def test_a_run_begins_from_an_export(modern: Path, folder: Path, tmp_path: Path, electra: Electra) -> None:
    """The command, with the settings of the run that was exported: what it evaluates first is what that run evaluated last."""
    words = ("pretrain", modern.parent / "data", "--config", modern / "config.json", "--init", folder)
    code, _, err = electra(*words, "--out", tmp_path / "on")
    assert code == 0, err
    last, now = (evaluate(run, modern.parent / "data").metrics for run in (modern, f"{tmp_path / 'on'}@0"))
    assert now == pytest.approx(last, abs=1e-4)
    code, _, err = electra(*words, "--out", tmp_path / "narrow", "--model.embedding-size", 8)
    assert code == ConfigError.exit_code and "embedding_size 32 there and 8 here" in err


def test_shapes_that_mean_the_same(folder: Path) -> None:
    """Rows may be shorter, since no position has weights; windows matter where a layer has one."""
    shape = read_back.read_encoder(folder / "discriminator")[1]
    alone = dataclasses.replace(shape, num_hidden_layers=1)
    same = [(shape, {"max_position_embeddings": 8}), (alone, {"local_attention": 0, "local_rotary_theta": 7.0})]
    assert not any(shape_differences(one, dataclasses.replace(one, **change)) for one, change in same)
    assert shape_differences(shape, dataclasses.replace(shape, local_attention=8)).keys() == {"local_attention"}


def test_it_is_not_written_as_bert(modern: Path, tmp_path: Path, electra: Electra) -> None:
    code, _, err = electra("export", modern, "--out", tmp_path / "out", "--as", "bert")
    assert code == ConfigError.exit_code and "--as bert: expected BERT's block" in err and "has block modern" in err
    assert not (tmp_path / "out").exists()


class Ungated(GatedFeedForward):
    """Another function of the same parameters."""


def test_layers_with_another_arithmetic_are_not_written(modern: Path, tmp_path: Path) -> None:
    loaded = load(modern)
    kept = loaded.networks[0].network.get_submodule("electra.encoder")
    kept.layer[1].mlp = Ungated(settings().model)  # type: ignore[index, union-attr]
    with pytest.raises(ConfigError, match="export: Ungated does not declare to be a part of ModernBERT's block"):
        export.shape_table(loaded.networks[0].model, pad_id=0, layers=kept)  # type: ignore[arg-type]


FOREIGN = {
    "windows": ({"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]}, "expected one a layer"),
    "fewer kinds": ({"layer_types": ["full_attention"]}, "expected one a layer"),
    "no window": ({"local_attention": 0}, "local_attention 0, expected at least 1"),
    "biases": ({"attention_bias": True}, "attention_bias True, expected False"),
    "activation": ({"hidden_activation": "silu"}, "hidden_activation 'silu', expected 'gelu'"),
    "epsilon": ({"norm_eps": 1e-6}, "norm_eps 1e-06, expected 1e-05"),
    "inner width": ({"intermediate_size": 34}, "intermediate_size 34, expected a multiple of 32"),
    "stretched positions": (
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}}, "rope_type 'yarn', expected 'default'",
    ),
    "scaled positions": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type 'linear', expected 'default'"),
    "a task's labels": ({"id2label": {"0": "O", "1": "B-PER"}}, "describes 'ModernBertForTokenClassification'"),
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
    """As 4.57 writes it, without `rope_parameters` and `layer_types`; null is the other layers' base, and what is missing ModernBERT's."""
    place = shutil.copytree(folder / "encoder", tmp_path / "encoder")
    table = json.loads((place / "config.json").read_text()) | {"global_rope_theta": 500.0, "local_rope_theta": None}
    for name in ("rope_parameters", "layer_types", "global_attn_every_n_layers", "local_attention"):
        del table[name]
    (place / "config.json").write_text(json.dumps(table))
    model = read_back.read_network(place)[1]
    assert (model.rotary_theta, model.local_rotary_theta, model.local_attention) == (500.0, 500.0, 128)
    assert [model.is_local(layer) for layer in range(4)] == [False, True, True, False]


@torch.no_grad()
@pytest.mark.parametrize("tied", [True, False])
def test_a_modern_bert_that_transformers_made(tmp_path: Path, folder: Path, tied: bool) -> None:
    """The shape of answerdotai/ModernBERT-base, scaled down; its window is smaller than the row."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.ModernBertConfig(
        vocab_size=70, hidden_size=64, intermediate_size=96, num_hidden_layers=7, num_attention_heads=2,
        pad_token_id=0, local_attention=16, tie_word_embeddings=tied, initializer_range=0.3,
    )  # fmt: skip
    theirs = transformers.ModernBertForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ids_BT = torch.tensor([LONG[:100]])
    encoder, model = read_back.read_encoder(tmp_path)
    assert (model.local_attention, model.rotary_theta, model.local_rotary_theta) == (16, 160_000.0, 10_000.0)
    wanted = theirs.model(ids_BT).last_hidden_state
    torch.testing.assert_close(encoder(ids_BT, encode_rows(ids_BT)), wanted, atol=1e-4, rtol=0)
    if not tied:
        with pytest.raises(CheckpointError, match="the output's weights are not the word embeddings"):
            read_back.read_network(tmp_path)
        return
    found = logits(read_back.read_network(tmp_path)[0], ids_BT[0].tolist(), discriminator=False)
    torch.testing.assert_close(found, theirs(ids_BT).logits[0], atol=1e-4 * float(found.std()), rtol=0)


def test_agreement_reads_beyond_a_window(folder: Path, tmp_path: Path) -> None:
    """Rows of 64 tokens would not show that two windows of more than twice as many tokens differ."""
    pytest.importorskip("transformers")
    place = shutil.copytree(folder / "discriminator", tmp_path / "discriminator")
    table = json.loads((place / "config.json").read_text())
    for window in (140, 150):
        (place / "config.json").write_text(json.dumps(table | {"local_attention": window}))
        if window == 140:
            network, _ = read_back.read_network(place)
            check_agreement(place, network, load(folder).tokenizer)
    with torch.no_grad():  # large enough to see what one more token does
        for name, parameter in network.named_parameters():
            if "Wqkv" in name:
                parameter.mul_(5)
    export_tensors = as_modern.modern_tensors(network.state_dict())
    (place / "model.safetensors").write_bytes(export.safetensors_bytes(export_tensors))
    with pytest.raises(CheckpointError, match="logits differ from transformers'"):
        check_agreement(place, network, load(folder).tokenizer)
