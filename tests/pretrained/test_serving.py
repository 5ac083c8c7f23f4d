"""Other programs' readings of an exported folder, read by those programs or by their rules."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.command import Electra
from torch import Tensor

from electra_trainer import errors, load
from electra_trainer.batch import Batch
from electra_trainer.errors import CheckpointError, ConfigError, DataError
from electra_trainer.finetuning import onnx as serving
from electra_trainer.pretrained.agreement import own_outputs

TEXTS = ["a class", "with many more words in it than the first has", "x"]


def test_tei_can_parse_the_folder(exported: Path) -> None:
    """Its router requires these keys, of these types, and takes every position of the model without `max_seq_length`."""
    folder = exported / "discriminator"
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_cls_token"] is False and pooling["pooling_mode_mean_tokens"] is True
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 32
    assert not (exported / "generator" / "modules.json").exists()


def test_embed_gives_the_vectors_of_sentence_transformers(
    electra: Electra, run: Path, exported: Path, tmp_path: Path
) -> None:
    """Vectors of a run, its export, and models that sentence-transformers saved with other poolings; in batches of like length."""
    models = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    words = " ".join(TEXTS).split()
    texts = [" ".join(words[: 1 + index % 13]) for index in range(600)] + ["word " * 90, "Ünïcode, naïvely"]
    theirs = models.SentenceTransformer(str(exported / "discriminator"), device="cpu")
    expected = theirs.encode(texts, batch_size=7)
    assert theirs.max_seq_length == 32
    counted: list[int] = []
    for model in (load(run), load(exported)):
        found = model.embed(texts, progress=counted.append)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert counted == [512, 602] * 2
    (tmp_path / "texts.txt").write_text("\n\n".join(texts))
    for pooling in ("mean", "cls", "max"):
        parts = [theirs[0], modules.Pooling(32, pooling), modules.Normalize()]
        saved, out = models.SentenceTransformer(modules=parts, device="cpu"), tmp_path / f"{pooling}.npy"
        saved.save(str(tmp_path / pooling))
        code, said, err = electra("embed", tmp_path / pooling, tmp_path / "texts.txt", "--out", out)
        assert code == 0 and f"{out}: 602 vectors of 32 numbers" in said and "blank lines" in err
        np.testing.assert_allclose(np.load(out), saved.encode(texts), atol=1e-5)
    saved = models.SentenceTransformer(modules=[theirs[0], modules.Pooling(32), modules.Dense(32, 8)], device="cpu")
    saved.save(str(tmp_path / "dense"))
    code, _, err = electra("embed", tmp_path / "dense", tmp_path / "texts.txt", "--search", "a class")
    assert code == CheckpointError.exit_code and "'Dense'" in err and "Use sentence-transformers." in err
    named = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    models.SentenceTransformer(str(exported / "discriminator"), device="cpu", **named).save(str(tmp_path / "prompt"))
    code, _, err = electra("embed", tmp_path / "prompt", tmp_path / "texts.txt", "--search", "a class")
    assert code == CheckpointError.exit_code and "the prompt 'query: ' before each text" in err


def test_embed_writes_columns_and_finds_the_nearest(electra: Electra, exported: Path, tmp_path: Path) -> None:
    rows = [{"id": 7, "text": "a class of numbers"}, {"id": "b", "text": "with many more words in it", "more": [1]}]
    table, out = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    table.write_text("\n".join(map(json.dumps, rows)))
    code, said, err = electra("embed", exported, table, "--out", out, "--search", rows[1]["text"], "--top", 1)
    assert code == 0 and said.splitlines()[1] == f"1.000  {table}:2  with many more words in it", said + err
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    read = parquet.read_table(out).to_pydict()
    assert read["id"] == ["7", '"b"'] and read["text"] == [row["text"] for row in rows] and read["more"] == [None, [1]]
    np.testing.assert_array_equal(
        np.array(read["vector"], dtype=np.float32), load(exported).embed([str(row["text"]) for row in rows])
    )
    (tmp_path / "rows.pdf").write_bytes(b"%PDF-1.4")
    for words, message in {
        (table,): "give --out vectors.npy",
        (table, "--out", tmp_path / "v.csv"): "ends in .npy or .parquet",
        (table, "--out", tmp_path / "none" / "v.npy"): "does not exist",
        (table, "--search", "x", "--text", "body"): "no such column",
        (tmp_path / "rows.pdf", "--search", "x"): "the name ends in '.pdf', expected .txt",
    }.items():
        code, _, err = electra("embed", exported, *words)
        assert code in (65, 74, 78) and message in err, err
    with pytest.raises(DataError, match=r"embed: item 1 is ' ', expected a text"):
        load(exported).embed(["a", " "])
    with pytest.raises(DataError, match=r"found \['a'\], expected one text"):
        load(exported).score(["a"])  # type: ignore[arg-type]
    assert np.array_equal(load(exported).embed(iter(["a", "b"])), load(exported).embed(["a", "b"]))


@pytest.mark.parametrize("wrong", ["last_hidden_state", "logits"])
def test_each_output_of_onnx_is_compared(
    run: Path, exported: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    folder, loaded = exported / "discriminator", load(run)
    assert loaded.discriminator is not None

    def computed(_: Path, batch: Batch) -> dict[str, Tensor]:
        names = ("last_hidden_state", "logits")
        return {name: own_outputs(loaded.discriminator, folder, batch, of=name) + (name == wrong) for name in names}

    monkeypatch.setattr(serving, "need_onnx", lambda: None)
    monkeypatch.setattr(serving, "trace", lambda _, out, **__: out.write_bytes(b""))
    monkeypatch.setattr(serving, "run", computed)
    with pytest.raises(CheckpointError, match=rf"ONNX Runtime's {wrong} differs by 1\.0e\+00"):
        serving.write_onnx(folder, loaded.discriminator, loaded.tokenizer)


def test_a_missing_package_is_named_before_any_work(
    electra: Electra, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "onnxscript" else sys)
    code, _, err = electra("export", run, "--out", tmp_path / "out", "--to", "onnx")
    assert code == ConfigError.exit_code and "needs onnxscript" in err and "'.[onnx]'" in err
    assert not (tmp_path / "out").exists()
    code, _, err = electra("export", run, "--out", tmp_path / "out", "--int8")
    assert code == ConfigError.exit_code and "belongs to --to onnx" in err
