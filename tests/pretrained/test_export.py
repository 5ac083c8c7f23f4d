"""An export loads in transformers as it is: the same logits, the same ids; and reads back bit for bit."""

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store
from torch import nn

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.data.prepare import prepare, train_tokenizer_from
from electra_trainer.data.tokenizer import load_tokenizer, save_tokenizer
from electra_trainer.data.vocabulary import train_tokenizer
from electra_trainer.errors import CheckpointError, ConfigError, MissingInputError
from electra_trainer.inspection.replay import evaluate
from electra_trainer.objectives import build
from electra_trainer.pretrained import export, read_back
from electra_trainer.pretrained.agreement import check_agreement, lines_of
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import InitFrom, load_source
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import changed
from electra_trainer.settings.methods import RtdMLM
from electra_trainer.train.loop import pretrain


def network_of(run: Path, name: str) -> nn.Module:
    return next(item.network for item in load(run).networks if item.name == name)


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_same_logits_in_transformers(run: Path, exported: Path, name: str) -> None:
    """As the run's own networks, on text."""
    assert check_agreement(exported / name, network_of(run, name), load(run).tokenizer, length=30) <= 1e-5


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "heads": ("config.json", {"num_attention_heads": 8}, "logits differ from transformers' by"),
    "epsilon": ("config.json", {"layer_norm_eps": 0.1}, "logits differ from transformers' by"),
    "activation": ("config.json", {"hidden_act": "relu"}, "logits differ from transformers' by"),
    "normalizer": ("tokenizer.json", {"normalizer": None}, "has other ids in transformers"),
}


@pytest.mark.parametrize("name", ["discriminator", "generator"])
@pytest.mark.parametrize("fault", FAULTS)
def test_files_that_say_another_function_are_found(
    run: Path, exported: Path, tmp_path: Path, name: str, fault: str
) -> None:
    """The run is what transformers is compared with, not what is read back from the same file."""
    folder, (file, change, said) = shutil.copytree(exported / name, tmp_path / name), FAULTS[fault]
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | change))
    with pytest.raises(CheckpointError, match=said):
        check_agreement(folder, network_of(run, name), load(run).tokenizer, length=30)


def test_what_disagrees_does_not_appear(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, electra: Electra
) -> None:
    """The comparison comes before the folder has its name, so the same command can be given again."""
    monkeypatch.setattr("electra_trainer.pretrained.agreement.BOUND", -1.0)
    code, _, err = electra("export", run, "--out", tmp_path / "out")
    assert code == CheckpointError.exit_code and "logits differ from transformers' by" in err
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="dtype 'fp16': expected float32, float16, bfloat16"):
        export_run(run, tmp_path / "out", dtype="fp16")


def test_a_network_of_few_positions(tmp_path: Path, electra: Electra) -> None:
    settings = changed(small_config(steps=4), model={"max_position_embeddings": 32})
    run = pretrain(settings, write_store(tmp_path / "data"), out=tmp_path / "run", device="cpu", quiet=True)
    assert electra("export", run, "--out", tmp_path / "out")[0] == 0


@pytest.mark.parametrize(
    ("letters", "every", "lacks"), [("กขคงจฉชซญดตถ", 1, True), ("的一是不了人我在有他", 1, False), ("abc", 40, False)]
)
def test_words_of_more_than_100_letters(letters: str, every: int, lacks: bool, tmp_path: Path) -> None:
    """AutoTokenizer reads them as the vocabulary does. BERT's classes do not, so that a text with many has no
    vocab.txt; to them each Chinese letter is a word.
    """
    import transformers

    draw = random.Random(2)
    long = ["".join(draw.choices(letters, k=draw.choice((20, 99, 101, 350)))) for _ in range(60)]
    lines = [line if at % every == 0 else "short words " * 20 for at, line in enumerate(long)]
    save_tokenizer(train_tokenizer(lines, vocab_size=300), tmp_path, max_length=64)
    mine = [load_tokenizer(tmp_path).encode(line, add_special_tokens=False).ids for line in lines]
    differ = {}
    for name in ("AutoTokenizer", "BertTokenizer", "ElectraTokenizer"):
        ids = getattr(transformers, name).from_pretrained(tmp_path)(lines, add_special_tokens=False)["input_ids"]
        differ[name] = sum(a != b for a, b in zip(mine, ids, strict=True))
    odd = sum(any(len(word) > 100 for word in line.split()) for line in lines) * lacks
    assert differ == {"AutoTokenizer": 0, "BertTokenizer": odd, "ElectraTokenizer": odd}
    assert (tmp_path / "vocab.txt").exists() is not lacks


def test_ids_are_compared_on_text_of_the_run(tmp_path: Path, electra: Electra) -> None:
    """With words as long as they are in its files, which rows cut; the run's rows may be gone."""
    draw = random.Random(3)
    lines = ["".join(draw.choices("กขคงจฉชซญ", k=150)) for _ in range(60)]
    (tmp_path / "lines.txt").write_text("\n\n".join(lines), encoding="utf-8")
    tokenizer, _ = train_tokenizer_from([tmp_path / "lines.txt"], vocab_size=300)
    prepare([tmp_path / "lines.txt"], tokenizer=tokenizer, sequence_length=32, out=tmp_path / "data")
    settings = changed(small_config(steps=4), model={"vocab_size": tokenizer.get_vocab_size()})
    run = pretrain(settings, tmp_path / "data", out=tmp_path / "run", device="cpu", quiet=True)
    whole = [word for line in lines_of(run) for word in line.split() if word in lines]
    assert len(whole) > 30
    shutil.rmtree(tmp_path / "data")
    assert lines_of(run) == []
    code, said, _ = electra("export", run, "--out", tmp_path / "out")
    assert code == 0 and "has the ids of 1,000 lines" in said


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_reads_back_bit_for_bit(run: Path, exported: Path, tmp_path: Path, name: str) -> None:
    """Also what transformers saved itself, so a folder from the Hub."""
    import transformers

    kind = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}[name]
    getattr(transformers, kind).from_pretrained(exported / name).save_pretrained(tmp_path)
    mine = next(item for item in load(run).networks if item.name == name)
    for folder in (exported / name, tmp_path):
        network, model = read_back.read_network(folder)
        theirs = network.state_dict()
        assert mine.network.state_dict().keys() == theirs.keys()
        for key, tensor in mine.network.state_dict().items():
            assert torch.equal(tensor, theirs[key]), key
        assert model.hidden_size == mine.model.hidden_size


@torch.no_grad()
def test_a_score_is_the_probability_of_replaced(run: Path) -> None:
    """Not that of an original, and of each token by its own logit."""
    made = load(run)
    assert made.discriminator is not None
    scored = made.score("a class with methods")
    batch = encode_rows([made.tokenizer.encode("a class with methods").ids])
    logits = made.discriminator(batch.ids_BT, batch)[0, 1:-1]
    assert scored.replaced_probability == pytest.approx((1 / (1 + torch.exp(-logits))).tolist(), abs=1e-6)
    made.discriminator.discriminator_predictions.dense_prediction.bias.add_(9)
    assert min(made.score("a class with methods").replaced_probability) > 0.99


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_16_bits(run: Path, exported: Path, tmp_path: Path, dtype: str, electra: Electra) -> None:
    """Half the size; rounded once, and read as fp32 here and on request in transformers."""
    assert electra("export", run, "--out", tmp_path / "half", "--dtype", dtype)[0] == 0
    for name in ("discriminator", "generator"):
        whole, half = (folder / name for folder in (exported, tmp_path / "half"))
        assert (half / "model.safetensors").stat().st_size < 0.6 * (whole / "model.safetensors").stat().st_size
        table = json.loads((half / "config.json").read_text())
        assert table["dtype"] == table["torch_dtype"] == "float32"  # transformers 5 would train in what it says
        read, before = (read_back.read_network(folder)[0].state_dict() for folder in (half, whole))
        for key, tensor in before.items():
            assert torch.equal(read[key], tensor.to(getattr(torch, dtype)).float()), key
        assert check_agreement(half, network_of(run, name), load(run).tokenizer, length=30) <= 1e-5


@pytest.mark.parametrize(("block", "width"), [("modern", 32), ("modern", 16), ("bert", 32), ("bert", 16)])
def test_rounded_tables_of_several_parameters(
    block: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disentangled table is a sum, the modern block's also a product; 32 needs no projection. As BERT where it can be."""
    monkeypatch.setattr("electra_trainer.pretrained.agreement.LINES", 30)
    config = changed(small_config(), model={"block": block, "embedding_size": width, "initializer": "fan-in"})
    made = build(dataclasses.replace(config, sharing="disentangled", objective=RtdMLM())).eval()
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source) / 20)
    tokenizer = write_store(tmp_path / "data") / "tokenizer"
    found = list[float]()
    for dtype in ("float16", "bfloat16"):
        form = export.Form(dtype=dtype, bert=(block, width) == ("bert", 32))
        export.export(
            made.exported(), card=lambda _: "", tokenizer=tokenizer, length=32, out=tmp_path / dtype, form=form,
            compare=lambda *written: found.append(check_agreement(*written, length=30)),
        )  # fmt: skip
    assert len(found) == 6 and max(found) <= 1e-5


def test_half_a_line_of_metrics(run: Path, tmp_path: Path) -> None:
    """A run that was killed while writing is exported, with what its whole lines say on the card."""
    killed = shutil.copytree(run, tmp_path / "run")
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "split": "val')
    for folder, out in ((run, "one"), (killed, "two")):
        export_run(folder, tmp_path / out)
    one, two = ((tmp_path / out / "discriminator" / "README.md").read_text() for out in ("one", "two"))
    assert one == two


def test_an_earlier_checkpoint(run: Path, tmp_path: Path, electra: Electra) -> None:
    """RUN@STEP is the run as it was then, wherever weights of a run are read."""
    then = read(run / "checkpoints" / "step-00000000").weights
    name, words = "embeddings.word_embeddings.weight", then["discriminator.electra.embeddings.word_embeddings.weight"]
    export_run(f"{run}@0", tmp_path / "export")
    assert "step 0 of 4" in (tmp_path / "export" / "discriminator" / "README.md").read_text()
    for model in (f"{run}@0", tmp_path / "export"):
        assert torch.equal(load_source(model).weights[name], words)
    assert torch.equal(InitFrom(name=f"{run}@0").read().networks["discriminator"][f"electra.{name}"], words)
    assert not torch.equal(load_source(run).weights[name], words)
    assert evaluate(f"{run}@0", run.parent / "data").step == 0
    Path(f"{run}@4").mkdir()  # what is not a run does not hide one
    assert load(f"{run}@4").step == 4
    Path(f"{run}@4").rmdir()
    code, _, err = electra("export", f"{run}@3", "--out", tmp_path / "none")
    assert code == MissingInputError.exit_code and "no checkpoint of step 3 is there. Give one of 0, 4;" in err


def test_auto_model_and_files(exported: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(exported / "discriminator")
    encoded = tokenizer("a class", "with methods", return_tensors="pt")
    assert set(encoded) == {"input_ids", "token_type_ids", "attention_mask"}
    assert encoded["token_type_ids"].max() == 1
    hidden = AutoModel.from_pretrained(exported / "discriminator")(**encoded).last_hidden_state
    assert hidden.shape[-1] == 32
    files = {path.name for path in (exported / "generator").iterdir()}
    assert files == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    }  # fmt: skip
    card = (exported / "discriminator" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers") and "Use the generator.\n" in card
    assert "Positions from 32 on were never trained" in card
    assert "| discriminator standard auc, held out | 0." in card


def test_the_tokenizer_of_an_earlier_run_gets_the_fields_of_its_classes(run: Path, tmp_path: Path) -> None:
    """Runs had a tokenizer_config.json without them, and ElectraTokenizer lower-cased their exports."""
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "tokenizer" / "tokenizer_config.json"
    fields = {"do_lower_case": True, "strip_accents": True, "tokenize_chinese_chars": True}
    now = json.loads(path.read_text())
    assert fields.items() <= now.items()
    path.write_text(json.dumps({name: value for name, value in now.items() if name not in fields}))
    for folder in export_run(tmp_path / "run", tmp_path / "out"):
        assert json.loads((folder / "tokenizer_config.json").read_text()) == now


def test_refusals(run: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not an empty folder"):
        export_run(run, exported, dtype="float16")
    with pytest.raises(MissingInputError, match="neither a run nor an exported model"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="is an exported model already"):
        export_run(exported, tmp_path / "again")
