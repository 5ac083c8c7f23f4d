"""`electra export --to onnx` in ONNX Runtime: the numbers of the run."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.prepared import small_config, write_store

from electra_trainer import load
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import CheckpointError
from electra_trainer.finetuning import onnx as serving
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.settings.config import changed
from electra_trainer.train.loop import pretrain

BLOCKS = pytest.mark.parametrize("run", ["bert", pytest.param("modern", marks=pytest.mark.slow)], indirect=True)
WRITE = serving.write_onnx


@pytest.fixture(scope="module", autouse=True)
def traced_once() -> Iterator[None]:
    """The first export writes both forms of ONNX, and later ones copy what was asked for: each takes ten seconds."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    kept = dict[str, tuple[str, dict[str, bytes]]]()

    def once(folder: Path, network: Any, tokenizer: Any, *, int8: bool = False) -> str:
        key = (folder / "config.json").read_text()
        if key not in kept:
            found = WRITE(folder, network, tokenizer, int8=True)
            kept[key] = found, {path.name: path.read_bytes() for path in (folder / "onnx").iterdir()}
        (folder / "onnx").mkdir(exist_ok=True)
        found, files = kept[key]
        for name, content in files.items():
            if int8 or name != "model_int8.onnx":
                (folder / "onnx" / name).write_bytes(content)
        return found if int8 else found.partition(";")[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "write_onnx", once)
        yield


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose scores differ from word to word; one layer, and in the modern block a second one with windows."""
    folder, block = tmp_path_factory.mktemp("onnx"), request.param
    shape = {"initializer": "fan-in", "block": block, "num_hidden_layers": 1 + (block == "modern")}
    settings = changed(small_config(steps=12), model=shape, generator={"depth": 0.5})
    return pretrain(settings, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)


@BLOCKS
def test_onnx_computes_what_the_run_does(electra: Electra, run: Path, tmp_path: Path) -> None:
    """Logits of both networks, for other numbers of rows and tokens than it was traced with; the states are for embeddings."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    code, out, err = electra("export", run, "--out", tmp_path / "out", "--to", "onnx", "--int8")
    assert code == 0, err
    assert out.count("ONNX Runtime has the run's logits within") == 2
    pretrained = load(run)
    network = next(one.network for one in pretrained.networks if one.name == "discriminator")
    modern = pretrained.networks[0].model.block == "modern"
    file = tmp_path / "out" / "discriminator" / "onnx" / "model.onnx"
    session = runtime.InferenceSession(str(file))
    names = [one.name for one in session.get_inputs()]
    assert names == ["input_ids", "attention_mask", "token_type_ids"][: 2 if modern else 3]
    for text in ("The class returns a value of the object.", "with many more words in it than the first has", "x"):
        ids = torch.tensor([pretrained.tokenizer.encode(text).ids])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        states, logits = map(torch.from_numpy, session.run(None, {name: inputs[name].numpy() for name in names}))
        with torch.no_grad():
            expected_BTD = network.get_submodule("electra")(ids, encode_rows(ids))
        torch.testing.assert_close(states, expected_BTD, atol=1e-4, rtol=0)
        expected = torch.tensor(pretrained.score(text).replaced_probability)
        logits = logits[..., 1] - logits[..., 0] if modern else logits
        torch.testing.assert_close(logits[0, 1:-1].sigmoid(), expected, atol=1e-5, rtol=0)
    sizes = [file.with_name(name).stat().st_size for name in ("model.onnx", "model_int8.onnx")]
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("run", ["bert"], indirect=True)
def test_onnx_that_differs_is_not_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is the run's own logits, not those of the folder; 8 bits have a bound too."""
    pretrained = load(run)
    folder = next(one for one in export_run(run, tmp_path / "out") if one.name == "discriminator")
    network = next(one.network for one in pretrained.networks if one.name == "discriminator")
    serving.write_onnx(folder, network, pretrained.tokenizer)
    plain = (folder / "onnx" / "model.onnx").read_bytes()
    shutil.rmtree(folder / "onnx")
    monkeypatch.setattr(serving, "trace", lambda network, out, **_: out.write_bytes(plain))
    monkeypatch.setattr(serving, "quantize", with_lost_scales)
    with pytest.raises(CheckpointError, match=r"outputs in 8 bits are 0\.\d+ away on average, expected at most 0\.02"):
        WRITE(folder, network, pretrained.tokenizer, int8=True)
    with torch.no_grad():
        network.discriminator_predictions.dense_prediction.bias += 0.01
    with pytest.raises(CheckpointError, match=r"logits differs by 1\.0e-02"):
        WRITE(folder, network, pretrained.tokenizer)
    assert not (folder / "onnx").exists()


def with_lost_scales(plain: Path, small: Path) -> None:
    """A file in 8 bits that is wrong: every matrix is ten times as large."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(plain)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2 and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(10 * onnx.numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, small)
