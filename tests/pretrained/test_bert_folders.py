"""A BERT is read wherever an encoder is, with the numbers of transformers; `--init` names every part as taken or fresh."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv
from tests.prepared import small_config
from torch import Tensor

from electra_trainer.data.batches import encode_rows
from electra_trainer.data.tokenizer import load_tokenizer
from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.finetuning.model_folder import load_finetuned
from electra_trainer.pretrained.pretrained import kept_encoder, load
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, changed
from electra_trainer.settings.methods import MLM, Learned
from electra_trainer.train.loop import pretrain

transformers = pytest.importorskip("transformers")
KINDS = ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification")
TEXTS = ["a class of", "with many more words in it than the first " * 3, "Ünïcode, naïvely"]


@pytest.fixture(scope="module")
def berts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each class, as transformers saves it, and `old`: the last with the names and buffer of early releases."""
    tokenizer = load_tokenizer(data / "tokenizer")
    config = transformers.BertConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(5)
    whole = transformers.BertForPreTraining(config)
    for name, parameter in whole.named_parameters():
        if "bias" in name or "LayerNorm" in name:
            torch.nn.init.normal_(parameter)  # zeros and ones hide an exchange
    folders, out = {}, tmp_path_factory.mktemp("berts")
    for kind in KINDS:
        network = getattr(transformers, kind)(config)
        network.load_state_dict(whole.bert.state_dict() if kind == "BertModel" else whole.state_dict(), strict=False)
        folders[kind] = save(network, data, out / kind)
    folders["old"] = save(whole, data, out / "old")
    weights = folders["old"] / "model.safetensors"
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in safetensors.torch.load_file(weights).items()}  # fmt: skip
    safetensors.torch.save_file({"bert.embeddings.position_ids": torch.arange(32)[None], **old}, weights)
    return folders


def save(network: Any, data: Path, out: Path) -> Path:
    network.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes((data / "tokenizer" / name).read_bytes())
    return out


def settings(*, width: float = 0.5, depth: float = 1.0, positions: int = 32, **changes: Any) -> Config:
    model = {"embedding_size": 32, "max_position_embeddings": positions}
    made = dataclasses.replace(small_config(steps=4), generator=Learned(width=width, depth=depth), **changes)
    return changed(made, model=model)


def begun(data: Path, out: Path, bert: Path, config: Config) -> tuple[dict[str, Tensor], str]:
    pretrain(config, data, out=out, init=InitFrom(name=str(bert)), device="cpu", quiet=True)
    return read(out / "checkpoints" / "step-00000000").weights, (out / "log.txt").read_text()


ROWS = [[2, *range(5, 25), 3], [2, *range(30, 50), 3]]


@torch.no_grad()
def test_what_load_gives(berts: dict[str, Path], electra: Electra) -> None:
    """A vector of any, words by a token head, and an error that names what is missing."""
    for kind in ("BertModel", "BertForMaskedLM", "old"):
        model = load(berts[kind])
        np.testing.assert_array_equal(model.embed(TEXTS), load_source(berts[kind]).embedder().embed(TEXTS))
        for verb, missing in (("score", "no discriminator"), ("fill", "which predicts no words")):
            code, _, err = electra(verb, berts[kind], "a [MASK] of")
            held = "an encoder without a head" if kind == "BertModel" else "a network that predicts words"
            assert (code == 0) == (verb == "fill" and kind != "BertModel")
            assert code == 0 or (code == ConfigError.exit_code and f"holds {held}" in err and missing in err)
    theirs = transformers.BertForMaskedLM.from_pretrained(berts["BertForMaskedLM"]).eval()
    words = transformers.AutoTokenizer.from_pretrained(berts["BertForMaskedLM"])
    (expected,) = theirs(**words("a [MASK] of", return_tensors="pt")).logits[:, 2].softmax(-1)
    (found,) = load(berts["BertForMaskedLM"]).fill("a [MASK] of", top=4)
    assert [one.probability for one in found] == pytest.approx(expected.topk(4).values.tolist(), abs=1e-5)
    assert [words.convert_tokens_to_ids(one.token) for one in found] == expected.topk(4).indices.tolist()


@pytest.mark.parametrize(("width", "heads", "depth"), [(24, 3, 1), (64, 1, 3)])
def test_a_folder_of_sentence_transformers(data: Path, width: int, heads: int, depth: int, tmp_path: Path) -> None:
    """Vectors of the published form: half precision, a vocabulary without tokenizer.json, cut, mean, normalised."""
    models = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    vocab = load_tokenizer(data / "tokenizer").get_vocab()
    config = transformers.BertConfig(
        vocab_size=len(vocab), hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads, num_labels=5,
        intermediate_size=3 * width, max_position_embeddings=48, layer_norm_eps=1e-3,
    )  # fmt: skip
    torch.manual_seed(5)
    transformers.BertModel(config).half().save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocab, key=vocab.__getitem__)))
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    parts = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    files = {
        "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 48},
        "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": False},
        "modules.json": [{"idx": index, "name": str(index), **part} for index, part in enumerate(parts)],
        "1_Pooling/config.json": {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
    }
    for name, table in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(table))
    expected = models.SentenceTransformer(str(tmp_path), device="cpu").float().encode(TEXTS)
    np.testing.assert_allclose(load(tmp_path).embed(TEXTS), expected, atol=1e-5)


def test_two_berts_are_fine_tuned_and_compared(berts: dict[str, Path], tmp_path: Path, electra: Electra) -> None:
    """And transformers computes what comes out."""
    write_csv(tmp_path / "rows.csv", rows(60), ("text", "label"))
    asked = ("--train", tmp_path / "rows.csv", "--epochs", 1, "--pooling", "cls", "--precision", "fp32")
    model, other = berts["BertModel"], berts["BertForMaskedLM"]
    code, _, err = electra("finetune", model, *asked, "--against", other, "--device", "cpu", "--out", tmp_path / "out")
    assert code == 0 and "+against" in (tmp_path / "out" / "summary.json").read_text(), err
    pipeline = transformers.pipeline("text-classification", model=str(tmp_path / "out" / "model"), top_k=None)
    for one, two in zip(pipeline(TEXTS, truncation=True), load_finetuned(tmp_path / "out").predict(TEXTS), strict=True):
        assert {item["label"]: item["score"] for item in one} == pytest.approx(two["probabilities"], abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", [*KINDS, "old"])
def test_the_encoder_has_the_hidden_states_of_transformers(berts: dict[str, Path], kind: str) -> None:
    encoder = load_source(berts[kind]).encoder(dropout=0.0, attention_dropout=0.0).eval()
    batch = encode_rows(ROWS)
    theirs = transformers.BertModel.from_pretrained(berts["BertModel"], add_pooling_layer=False).eval()
    expected = theirs(input_ids=torch.tensor(ROWS)).last_hidden_state
    assert (encoder(batch.ids_BT, batch) - expected).abs().max() < 1e-5


def test_the_token_head_has_the_logits_of_transformers(data: Path, berts: dict[str, Path], tmp_path: Path) -> None:
    begun(data, tmp_path / "run", berts["BertForMaskedLM"], settings(objective=MLM(), positions=48))
    run = load(f"{tmp_path / 'run'}@0")
    theirs = transformers.BertForMaskedLM.from_pretrained(berts["BertForMaskedLM"]).eval()
    assert run.encoder is not None and kept_encoder(run).embeddings.position_embeddings.weight.shape[0] == 48
    batch = encode_rows(ROWS)
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ROWS)).logits
        found = run.encoder(batch.ids_BT, batch, torch.arange(len(ROWS) * len(ROWS[0])))
    assert (found - expected.flatten(0, 1)).abs().max() < 1e-4


PARTS: dict[str, tuple[float, float, str, set[str]]] = {
    "BertModel": (0.5, 1.0, "BertModel: the encoder; fresh: ", {"electra", "generator_lm_head", "generator_predictions"}),
    "BertForPreTraining": (
        0.5, 1.0, "the encoder, and for the generator the output bias; fresh: ", {"electra", "generator_predictions"},
    ),
    "BertForMaskedLM": (
        1.0, 0.5, "the encoder, and for the generator the token head and the first 1 of 2 layers; fresh: ", set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PARTS)
def test_both_networks_take_what_fits(data: Path, berts: dict[str, Path], tmp_path: Path, kind: str) -> None:
    """And the log says it."""
    width, depth, said, fresh = PARTS[kind]
    weights, log = begun(data, tmp_path / "run", berts[kind], settings(width=width, depth=depth))
    assert said in log and "discriminator.discriminator_predictions" in log
    named = log.split("fresh: ")[1].split(", moments")[0].split(", ")
    assert {name.removeprefix("generator.") for name in named if name.startswith("generator.")} == fresh
    encoder = load_source(berts[kind]).weights
    for name, tensor in encoder.items():
        assert torch.equal(weights[f"discriminator.electra.{name}"], tensor), name
    if not fresh:
        stored = safetensors.torch.load_file(berts[kind] / "model.safetensors")
        assert torch.equal(weights["generator.generator_lm_head.bias"], stored["cls.predictions.bias"])
        query = "encoder.layer.0.attention.self.query.weight"
        assert torch.equal(weights[f"generator.electra.{query}"], encoder[query])


def test_another_width_names_the_flags_that_work(data: Path, berts: dict[str, Path], tmp_path: Path) -> None:
    narrow = changed(settings(), model={"embedding_size": 16})
    with pytest.raises(ConfigError, match=r"embedding_size 32 there and 16 here\. .*--model\.embedding-size 32\."):
        begun(data, tmp_path / "run", berts["BertModel"], narrow)


OTHERS = {
    "is_decoder": (True, "is_decoder True, expected False"),
    "position_embedding_type": ("relative_key", "position_embedding_type 'relative_key', expected 'absolute'"),
    "hidden_act": ("gelu_new", "hidden_act 'gelu_new', expected 'gelu'"),
    "model_type": ("roberta", "describes 'roberta' 'BertModel', expected 'electra', 'modernbert' or 'bert'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_another_function_is_refused(berts: dict[str, Path], name: str, tmp_path: Path) -> None:
    folder, (value, said) = shutil.copytree(berts["BertModel"], tmp_path / "bert"), OTHERS[name]
    table = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**table, name: value}))
    with pytest.raises(CheckpointError, match=said):
        load_source(folder)


def test_output_weights_that_are_not_the_word_embeddings_are_refused(berts: dict[str, Path], tmp_path: Path) -> None:
    """With a remedy that works."""
    folder = berts["BertForMaskedLM"]
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"AutoModel\.from_pretrained\(FOLDER\)\.save_pretrained\(DIR\)"):
        InitFrom(name=str(tmp_path)).read()
    transformers.BertModel.from_pretrained(tmp_path).save_pretrained(tmp_path / "DIR")
    (tmp_path / "DIR" / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    assert InitFrom(name=str(tmp_path / "DIR")).read().networks == {}
