"""Whole fine-tuned models in ONNX: the logits of `predict`, in 8 bits nearly."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command import Electra
from tests.finetuning.own_files import rows, write_encoder
from tests.finetuning.test_folder_heads import data_of
from tests.pretrained.test_onnx import with_lost_scales

from electra_trainer.errors import CheckpointError, ConfigError
from electra_trainer.finetuning import onnx as serving
from electra_trainer.finetuning.model_folder import export_finetuned, load_finetuned
from electra_trainer.finetuning.onnx import export_onnx
from electra_trainer.finetuning.run import Job, collate, finetune_run
from electra_trainer.pretrained.source import load_source
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification, Regression

NEEDED = ("onnxruntime", "onnxscript")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason=" or ".join(NEEDED) + " is not installed")
KINDS = ("modern numbers", "bert means", "modern pair", "modern tagging", "bert independent")


def model(kind: str, root: Path) -> Path:
    block, name = kind.split()
    source = load_source(
        write_encoder(
            root / "encoder", block="bert" if block == "bert" else "modern", layers=2 if kind == "modern pair" else 1
        )
    )
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_predicts_as_the_model_does(
    electra: Electra, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For other rows than it was compared with, by the command; the folder is still one that `predict` reads. 8 bits
    that are wrong are refused."""
    import onnxruntime

    folder = model(kind, tmp_path)
    code, out, err = electra("export", folder, "--out", tmp_path / "out", "--to", "onnx", "--int8")
    assert code == 0, err
    assert "ONNX Runtime has the logits of `electra predict` within" in out and "in 8 bits its" in out
    loaded = load_finetuned(tmp_path / "out")
    one, two = (text for text, _ in rows(2))
    paired = loaded.pair or kind.endswith("independent")
    asked: list[Any] = (
        [one.split()] if kind.endswith("tagging") else [(one, two), (two[:9], one)] if paired else [one, two[:9]]
    )
    batch = collate(
        loaded.task.rows(loaded.task.examples_from(asked, pair=loaded.pair), loaded.text, training=False),
        loaded.text.specials, torch.device("cpu"),
    )  # fmt: skip
    inputs = {"input_ids": batch.ids_BT, "attention_mask": batch.real_BT.long(), "token_type_ids": batch.segment_BT}
    with torch.no_grad():
        head, states = loaded.network.head, loaded.network(batch)
        task: Any = loaded.task
        wanted = task.output(head, states, batch) if hasattr(task, "output") else head(states)
    wanted = wanted * task.scale + task.shift if isinstance(task, Regression) else wanted
    for name, bound in (("model.onnx", 1e-4), ("model_int8.onnx", 0.5)):
        session = onnxruntime.InferenceSession(str(tmp_path / "out" / "onnx" / name))
        names = [put.name for put in session.get_inputs()]
        assert ("token_type_ids" in names) == kind.startswith("bert")
        found = torch.from_numpy(session.run(None, {put: inputs[put].numpy() for put in names})[0])
        away = (found - wanted).abs() / getattr(task, "scale", 1.0)
        assert float((away[batch.real_BT] if away.dim() == 3 else away).max()) <= bound, name
    plain = (tmp_path / "out" / "onnx" / "model.onnx").read_bytes()
    monkeypatch.setattr(serving, "trace", lambda network, out, **_: out.write_bytes(plain))
    monkeypatch.setattr(serving, "quantize", with_lost_scales)
    with pytest.raises(CheckpointError, match=r"outputs in 8 bits are .* away on average, expected at most 0\.1"):
        export_onnx(folder, tmp_path / "wrong", int8=True)
    assert not (tmp_path / "wrong").exists()


def test_what_has_no_onnx(electra: Electra, tmp_path: Path) -> None:
    """The joint head; and flags of export that a fine-tuned model does not have."""
    folder = model("bert joint", tmp_path)
    code, _, err = electra("export", folder, "--out", tmp_path / "out", "--to", "onnx")
    assert code == ConfigError.exit_code and "Fine-tune with --head independent" in err
    for flags in ([], ["--to", "onnx", "--dtype", "float16"]):
        code, _, err = electra("export", folder, "--out", tmp_path / "out", *flags)
        assert code == ConfigError.exit_code and "it takes --out, --to onnx and --int8" in err
    assert not (tmp_path / "out").exists()
