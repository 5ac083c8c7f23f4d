"""Ten training steps from every kind of export, in other programs: fp32 parameters, and a loss that stays finite."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.prepared import small_config, write_store

from electra_trainer.finetuning.model_folder import export_finetuned
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.pretrained.source import load_source
from electra_trainer.settings.config import changed
from electra_trainer.settings.methods import MLM, Learned
from electra_trainer.tasks.own_files import OwnTask
from electra_trainer.tasks.recipe import recipe
from electra_trainer.train.loop import pretrain

TEXTS, LABELS = [text for text, _ in rows(16)], [int(name == "fruit") for _, name in rows(16)]
STEPS = 10
ARGUMENTS: dict[str, Any] = {
    "learning_rate": 1e-3, "max_steps": STEPS, "logging_steps": 1, "use_cpu": True, "report_to": [],
    "save_strategy": "no", "disable_tqdm": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind of export -> its folder."""
    root = tmp_path_factory.mktemp("training")
    data = write_store(root / "data")
    settings = changed(small_config(steps=4), model={"initializer": "fan-in", "embedding_size": 32})
    settings = replace(settings, generator=Learned(width=1.0))
    electra = pretrain(settings, data, out=root / "electra", device="cpu", quiet=True)
    mlm = pretrain(replace(settings, objective=MLM()), data, out=root / "mlm", device="cpu", quiet=True)
    forms = {"half": "float16", "bfloat": "bfloat16", "bert": "float16"}
    for name, dtype in forms.items():
        export_run(electra, root / name, dtype=dtype, bert=name == "bert")
    export_run(mlm, root / "mlm-half", dtype="float16")
    source = load_source(write_encoder(root / "encoder"))
    task = OwnTask(train=write_csv(root / "rows.csv", rows(60)), label="label")
    job = Job(source=source, data=task.load(), recipe=recipe("paper", hidden_size=32, epochs=1), seed=3)
    finetune_run(job, out=root / "finetuning", keep_weights=True, quiet=True, device="cpu")
    export_finetuned(root / "finetuning", out=root / "classifier", data=job.data)
    return {
        **{name: root / name / "discriminator" for name in forms},
        "generator": root / "half" / "generator",
        "bert generator": root / "bert" / "generator",
        "mlm": root / "mlm-half" / "encoder",
        "classifier": root / "classifier",
    }


BY_TRAINER = ("half", "bfloat", "bert", "mlm", "classifier")
BY_SENTENCE_TRANSFORMERS = ("bfloat", "generator", "bert generator")


def check(model: torch.nn.Module, losses: list[float]) -> None:
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert len(losses) == STEPS and all(map(math.isfinite, losses)) and max(losses) < 2 * losses[0] + 1, losses
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("kind", BY_TRAINER)
def test_trainer(folders: dict[str, Path], kind: str, tmp_path: Path) -> None:
    """The code of the cards, with its arguments' defaults."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    tokenizer = AutoTokenizer.from_pretrained(folders[kind])
    examples = [{**tokenizer(text), "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    model = AutoModelForSequenceClassification.from_pretrained(folders[kind])
    arguments = TrainingArguments(str(tmp_path), **ARGUMENTS)
    trainer = Trainer(model, arguments, train_dataset=examples, processing_class=tokenizer)  # type: ignore[arg-type]
    trainer.train()
    check(model, [row["loss"] for row in trainer.state.log_history if "loss" in row])


@pytest.mark.parametrize("kind", BY_SENTENCE_TRANSFORMERS)
def test_sentence_transformers(folders: dict[str, Path], kind: str, tmp_path: Path) -> None:
    models = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = models.SentenceTransformer(str(folders[kind]), device="cpu")
    arguments = models.SentenceTransformerTrainingArguments(str(tmp_path), **ARGUMENTS)
    pairs = datasets.Dataset.from_dict({"anchor": TEXTS[:8], "positive": TEXTS[8:]})
    loss = MultipleNegativesRankingLoss(model)
    trainer = models.SentenceTransformerTrainer(model, arguments, train_dataset=pairs, loss=loss)
    trainer.train()
    check(model, [row["loss"] for row in trainer.state.log_history if "loss" in row])


def test_the_card_has_the_code(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    monkeypatch.chdir(tmp_path)
    card = (folders["half"] / "README.md").read_text()
    assert "stored in float16 and load in fp32" in card
    (code,) = [piece for piece in re.findall(r"```python\n(.*?)```", card, re.S) if "Trainer" in piece]
    found: dict[str, Any] = {}
    exec(code.replace("PATH", str(folders["half"])), found)
    check(found["model"], [0.0] * STEPS)
