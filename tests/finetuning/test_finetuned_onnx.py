"""Whole fine-tuned models in ONNX: the logits of `predict`, in 8 bits nearly."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.finetuning.own_files import rows, write_encoder
from tests.finetuning.test_folder_heads import data_of
from tests.playground.test_web import with_lost_scales
from torch import Tensor

from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.finetuning.examples import TextExample
from electra_trainer.finetuning.finetuned_onnx import export_onnx
from electra_trainer.finetuning.model_folder import export_finetuned, load_finetuned
from electra_trainer.finetuning.recipe import recipe
from electra_trainer.finetuning.run import Job, collate, finetune_run
from electra_trainer.finetuning.task import TaskData
from electra_trainer.finetuning.text_tasks import Classification, Regression
from electra_trainer.pretrained import serving
from electra_trainer.pretrained.source import load_source

NEEDED = ("onnxruntime", "onnxscript")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=" or ".join(NEEDED) + " is not installed")
TRACED = ("modern pair", "bert independent")
COMPUTED = ("modern halves", "bert halves", "modern numbers", "bert means", "modern tagging")
"""For which the network that would be traced is computed, since tracing takes ten seconds; `halves` are `pair` in the middle of two layers."""


def model(kind: str, root: Path) -> Path:
    block, name = kind.split()
    source = load_source(
        write_encoder(
            root / "encoder", block="bert" if block == "bert" else "modern", layers=2 if name == "halves" else 1
        )
    )
    name = name.replace("halves", "pair")
    texts = [TextExample(text=text, label=label, value=1e4 + 700 * at) for at, (text, label) in enumerate(rows(24))]
    pairs = [
        TextExample(text=one.text, pair=two.text, label=one.label) for one, two in zip(texts, texts[3:], strict=False)
    ]
    pooling: Any = {"pair": "pair", "means": "mean"}.get(name, "cls")
    own: dict[str, Any] = {
        "numbers": (Regression(shift=18_000.0, scale=5_000.0), texts),
        "pair": (Classification(labels=("fruit", "tool"), pooling="pair"), pairs),
        "means": (Classification(labels=("fruit", "tool"), pooling="mean"), pairs),
    }
    data = (
        TaskData(task=own[name][0], train=own[name][1], dev={"dev": own[name][1][:4]}) if name in own else data_of(name)
    )
    pools = {"pooling": pooling} if name in own else {}
    job = Job(source=source, data=data, recipe=recipe("paper", hidden_size=32, epochs=1, **pools), seed=1)
    finetune_run(job, out=root / "run", keep_weights=True, quiet=True, device="cpu")
    return export_finetuned(root / "run", out=root / "model", data=data)


def assert_same(folder: Path, kind: str, outputs: Callable[[dict[str, Tensor]], Tensor], *, bound: float) -> None:
    """Outputs of other rows than those that the export compared are those of `predict`."""
    loaded = load_finetuned(folder)
    one, two = (text for text, _ in rows(2))
    paired = loaded.pair or kind.endswith("independent")
    asked: list[Any] = (
        [one.split()] if kind.endswith("tagging") else [(one, two), (two[:9], one)] if paired else [one, two[:9]]
    )
    batch = collate(
        loaded.task.rows(loaded.task.examples_from(asked, pair=loaded.pair), loaded.text, training=False),
        loaded.text.specials, torch.device("cpu"),
    )  # fmt: skip
    with torch.no_grad():
        head, states = loaded.network.head, loaded.network(batch)
        task: Any = loaded.task
        wanted = task.output(head, states, batch) if hasattr(task, "output") else head(states)
    wanted = wanted * task.scale + task.shift if isinstance(task, Regression) else wanted
    inputs = {"input_ids": batch.ids_BT, "attention_mask": batch.real_BT.long(), "token_type_ids": batch.segment_BT}
    away = (outputs(inputs) - wanted).abs() / getattr(task, "scale", 1.0)
    assert float((away[batch.real_BT] if away.dim() == 3 else away).max()) <= bound


def assert_wrong_8_bits_are_refused(folder: Path, out: Path) -> None:
    with pytest.raises(CheckpointError, match=r"outputs in 8 bits are .* away on average, expected at most 0\.1"):
        export_onnx(folder, out, int8=True)
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRACED)
def test_onnx_predicts_as_the_model_does(
    electra: Electra, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command; the folder is still one that `predict` reads. 8 bits that are wrong are refused."""
    import onnxruntime

    folder = model(kind, tmp_path)
    code, out, err = electra("export", folder, "--out", tmp_path / "out", "--to", "onnx", "--int8")
    assert code == 0, err
    assert "ONNX Runtime has the logits of `electra predict` within" in out and "in 8 bits its" in out
    for name, bound in (("model.onnx", 1e-4), ("model_int8.onnx", 0.5)):
        session = onnxruntime.InferenceSession(str(tmp_path / "out" / "onnx" / name))
        names = [put.name for put in session.get_inputs()]
        assert ("token_type_ids" in names) == kind.startswith("bert")

        def outputs(inputs: dict[str, Tensor], session: Any = session, names: list[str] = names) -> Tensor:
            return torch.from_numpy(session.run(None, {put: inputs[put].numpy() for put in names})[0])

        assert_same(tmp_path / "out", kind, outputs, bound=bound)
    plain = (tmp_path / "out" / "onnx" / "model.onnx").read_bytes()
    monkeypatch.setattr(serving, "trace", lambda network, out, **_: out.write_bytes(plain))
    monkeypatch.setattr(serving, "quantize", with_lost_scales)
    assert_wrong_8_bits_are_refused(folder, tmp_path / "wrong")


@pytest.mark.parametrize("kind", COMPUTED)
def test_the_traced_network_predicts_as_the_model_does(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file says what its outputs are multiplied by; those that are wrong are refused."""
    traced: list[Any] = []

    def answers(file: Path, inputs: list[dict[str, Tensor]]) -> list[Tensor]:
        network, segments = traced
        names, factor = serving.INPUTS[: 2 + segments], float(file.read_text())
        with torch.no_grad():
            return [factor * network(**{name: one[name] for name in names}) for one in inputs]

    def files(plain: float, small: float) -> None:
        def trace(network: Any, out: Path, *, outputs: list[str], segments: bool) -> None:
            assert outputs == ["logits"] and segments == kind.startswith("bert")
            traced[:] = network, segments
            out.write_text(str(plain))

        monkeypatch.setattr(serving, "trace", trace)
        monkeypatch.setattr(serving, "quantize", lambda plain, out: out.write_text(str(small)))

    folder = model(kind, tmp_path)
    monkeypatch.setattr(serving, "answers", answers)
    files(1.0, 1.001)
    assert "in 8 bits its" in export_onnx(folder, tmp_path / "out", int8=True)[1]
    plain = tmp_path / "out" / "onnx" / "model.onnx"
    assert_same(tmp_path / "out", kind, lambda inputs: answers(plain, [inputs])[0], bound=1e-4)
    files(1.0, -10.0)
    assert_wrong_8_bits_are_refused(folder, tmp_path / "wrong")
    files(1.1, 1.0)
    with pytest.raises(CheckpointError, match="ONNX Runtime's logits differ by"):
        export_onnx(folder, tmp_path / "wrong")


def test_what_has_no_onnx(electra: Electra, tmp_path: Path) -> None:
    """The joint head; and flags of export that a fine-tuned model does not have."""
    folder = model("bert joint", tmp_path)
    code, _, err = electra("export", folder, "--out", tmp_path / "out", "--to", "onnx")
    assert code == ConfigError.exit_code and "Fine-tune with --head independent" in err
    for flags in ([], ["--to", "onnx", "--dtype", "float16"], ["--to", "web"]):
        code, _, err = electra("export", folder, "--out", tmp_path / "out", *flags)
        assert code == ConfigError.exit_code and "it takes --out, --to onnx and --int8" in err
    assert not (tmp_path / "out").exists()
