"""A fine-tuned run, exported: transformers gives the same outputs, and it reads back bit for bit."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from tests.finetuning import test_folder_heads
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.pretrained.ask_transformers import refused

from electra_trainer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    ElectraError,
    MissingInputError,
    StorageError,
)
from electra_trainer.finetuning import model_folder as folder_module
from electra_trainer.finetuning.model_folder import Finetuned, export_finetuned, load_finetuned
from electra_trainer.finetuning.run import Job, collate, finetune_run
from electra_trainer.pretrained import export
from electra_trainer.pretrained.source import load_source
from electra_trainer.tasks.own_files import OwnTask, RegressionTask
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.task import TaskData
from electra_trainer.tasks.texts import Classification, Regression

TEXTS = [text for text, _ in rows(12)]
OTHERS = [text for text, _ in rows(40)][28:]
heads = test_folder_heads.models
KINDS = ("classes", "pairs", "numbers", "many", "means", "compared")
PAIRED = ("pairs", "means", "compared")


@dataclass(frozen=True)
class Made:
    root: Path

    def run(self, kind: str) -> Path:
        return self.root / "runs" / kind

    def model(self, kind: str) -> Path:
        return self.root / "models" / kind

    def data(self, kind: str) -> TaskData:
        source, label = (RegressionTask, "price") if kind == "numbers" else (OwnTask, "label")
        return source(train=self.root / f"{kind}.csv", label=label, folds=False).load()


def table_of(kind: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    pairs = rows(60)
    if kind in PAIRED:
        return [(a, b, c) for (a, c), (b, _) in zip(pairs, pairs[3:], strict=False)], (
            "sentence1",
            "sentence2",
            "label",
        )
    if kind == "numbers":
        return [(text, str(30_000 + 700 * len(text))) for text, _ in pairs], ("text", "price")
    if kind == "many":  # 2 x 17 classes, and 32 units
        return [(f"{text} {number}", f"class {number % 17}") for number, (text, _) in enumerate(rows(170))], (
            "text",
            "label",
        )
    return pairs, ("text", "label")  # type: ignore[return-value]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """encoder/, runs/KIND, models/KIND."""
    root = tmp_path_factory.mktemp("folder")
    source = load_source(write_encoder(root / "encoder"))
    for kind in KINDS:
        table, header = table_of(kind)
        write_csv(root / f"{kind}.csv", table, header)
        data = Made(root).data(kind)
        pooling = {"means": "mean", "compared": "pair"}.get(kind)
        settings = recipe("paper", hidden_size=32, epochs=2, pooling=pooling)
        settings = replace(settings, max_length=24) if kind == "many" else settings
        job = Job(source=source, data=data, recipe=settings, seed=3)
        finetune_run(job, out=Made(root).run(kind), keep_weights=True, quiet=True, device="cpu")
        export_finetuned(Made(root).run(kind), out=Made(root).model(kind), data=data)
    return Made(root)


def inputs(kind: str) -> list[Any]:
    return list(zip(TEXTS, OTHERS, strict=True)) if kind in PAIRED else TEXTS


@torch.no_grad()
def our_logits(loaded: Finetuned, kind: str) -> torch.Tensor:
    """[B, C] in fp32; of a regression in the file's units."""
    task_rows = loaded.task.rows(loaded.task.examples_from(inputs(kind), pair=loaded.pair), loaded.text, training=False)
    batch = collate(task_rows, loaded.text.specials, torch.device("cpu"))
    logits: torch.Tensor = loaded.network.head(loaded.network(batch)[:, 0])
    return logits * loaded.task.scale + loaded.task.shift if isinstance(loaded.task, Regression) else logits


def tolerance(loaded: Finetuned) -> float:
    """1e-5 of what was learned; numbers in the file's units are `scale` times that."""
    return 1e-5 * (loaded.task.scale if isinstance(loaded.task, Regression) else 1.0)


def test_pipelines(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels and probabilities of 200 rows are those of `predict`."""
    from transformers import pipeline

    monkeypatch.setattr(folder_module, "choose_precision", lambda name, device: "fp32")
    many = [text for text, _ in rows(230)]
    monkeypatch.setattr(sys.modules[__name__], "TEXTS", many[:200])
    monkeypatch.setattr(sys.modules[__name__], "OTHERS", many[30:])
    said = pipeline("text-classification", model=str(made.model("classes")))(TEXTS, truncation=True, top_k=None)
    for one, two in zip(said, load_finetuned(made.model("classes")).predict(TEXTS), strict=True):
        assert one[0]["label"] == two["label"]
        assert {item["label"]: item["score"] for item in one} == pytest.approx(two["probabilities"], abs=1e-5)
    pairs = [{"text": one, "text_pair": two} for one, two in inputs("pairs")]
    said = pipeline("text-classification", model=str(made.model("pairs")))(pairs, truncation=True)
    for one, two in zip(said, load_finetuned(made.model("pairs")).predict(inputs("pairs")), strict=True):
        assert (one["label"], pytest.approx(one["score"], abs=1e-5)) == (
            two["label"],
            max(two["probabilities"].values()),
        )
    said = pipeline("text-classification", model=str(made.model("numbers")))(TEXTS, truncation=True)
    loaded = load_finetuned(made.model("numbers"))
    assert {item["label"] for item in said} == {"value"}
    assert [item["score"] for item in said] == pytest.approx(
        [item["value"] for item in loaded.predict(TEXTS)], abs=tolerance(loaded)
    )


def test_sentence_transformers_reads_it(made: Made) -> None:
    """A classifier of pairs as a CrossEncoder, and any encoder up to the length of its rows; pooling is for sentence-transformers to choose."""
    models = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    scores = models.CrossEncoder(str(made.model("pairs")), device="cpu").predict(
        inputs("pairs"), convert_to_tensor=True
    )
    assert (scores - our_logits(load_finetuned(made.model("pairs")), "pairs")).abs().max() <= 1e-5
    folder = made.model("classes")
    assert models.SentenceTransformer(str(folder), device="cpu").max_seq_length == 32
    assert not {"modules.json", "1_Pooling", "sentence_bert_config.json"} & {path.name for path in folder.iterdir()}


def without_class(made: Made, heads: Path) -> list[Path]:
    """Models whose heads transformers does not have."""
    return [*(made.model(kind) for kind in ("many", "means", "compared")), heads / "joint"]


def test_heads_that_transformers_does_not_have(made: Made, heads: Path) -> None:
    """The folder is refused, and the encoder in it is read; for older versions see test_transformers_4.py."""
    from transformers import AutoModel

    for folder in without_class(made, heads):
        card = ModelCard.load(folder / "README.md")
        header = card.data.to_dict()
        assert "pipeline_tag" not in header and header["library_name"] == "electra-trainer"
        assert "transformers has no head like this task's, and refuses the folder" in card.text
        assert "the head, in head.safetensors, is read by electra-trainer" in card.text
        refused(str(folder))
        assert json.loads((folder / "encoder" / "config.json").read_text())["architectures"] == ["ElectraModel"]
        theirs = AutoModel.from_pretrained(folder, subfolder="encoder").state_dict()
        mine = load_finetuned(folder).network.electra.state_dict()
        assert theirs.keys() == mine.keys() and all(torch.equal(theirs[name], mine[name]) for name in mine)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_run_predicted_is_predicted_again(made: Made, kind: str) -> None:
    """Through export and back, on the same rows, in the same precision; its temperature is in the head then."""
    data = made.data(kind)
    said = load_finetuned(made.model(kind)).predict_examples(data.dev["dev"], device="cpu")
    lines = (made.run(kind) / "predictions" / "dev.jsonl").read_text().splitlines()
    for one, line in zip(said, lines, strict=True):
        (name, answer), *rest = json.loads(line).items()
        assert one[name] == answer and all(one[other] == pytest.approx(share, rel=1e-4) for other, share in rest)


def test_it_predicts_in_the_precision_that_it_was_scored_in(made: Made, tmp_path: Path) -> None:
    """In bf16 the same weights say other probabilities."""
    shutil.copytree(made.model("classes"), tmp_path / "model")
    said = []
    for precision in ("bf16", "fp32"):
        table = json.loads((tmp_path / "model/electra_task.json").read_text())
        table["recipe"]["precision"] = precision
        (tmp_path / "model/electra_task.json").write_text(json.dumps(table))
        said.append(load_finetuned(tmp_path / "model").predict(TEXTS, device="cpu"))
    exact = replace(load_finetuned(made.model("classes")), precision="fp32").predict(TEXTS, device="cpu")
    assert said[0] != said[1] == exact


@pytest.mark.slow
def test_the_code_on_the_cards_runs(made: Made, heads: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each piece by itself: what it uses it imports."""
    capsys.readouterr()
    for folder in (*map(made.model, KINDS), *(heads / kind for kind in test_folder_heads.KINDS)):
        (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
        exec(code.replace("PATH", str(folder)), {"__name__": "__main__"})
        (line,) = capsys.readouterr().out.splitlines()
        said = {"numbers": "value", "many": "class "}.get(folder.name, "label")
        assert folder.parent == heads or said in line


def test_card_and_description(made: Made) -> None:
    card = (made.model("classes") / "README.md").read_text()
    precision = json.loads((made.model("classes") / "electra_task.json").read_text())["recipe"]["precision"]
    assert f"| precision | {precision}" in card
    assert card.startswith(
        "---\nlibrary_name: transformers\npipeline_tag: text-classification\ntags:\n- electra\n- electra-trainer\n"
    )
    assert "| dev, accuracy | 1 |" in card and "- columns: text = 'text', label = 'label'." in card
    assert str(made.root) not in card
    table = json.loads((made.model("pairs") / "electra_task.json").read_text())
    assert table["task"]["kind"] == "Classification" and table["seed"] == 3 and table["max_length"] == 32
    assert table["columns"] == {
        "text": "sentence1",
        "pair": "sentence2",
        "label": "label",
        "labels": [],
        "separator": None,
    }
    assert table["scores"]["dev"]["accuracy"].keys() == {"3"}
    config = json.loads((made.model("classes") / "config.json").read_text())
    assert config["id2label"] == {"0": "fruit", "1": "tool"} and config["problem_type"] == "single_label_classification"
    assert json.loads((made.model("numbers") / "config.json").read_text())["problem_type"] == "regression"


def test_scores_of_seeds_stand_on_the_card(made: Made, tmp_path: Path) -> None:
    scores = {"dev": {"matthews": {1: 0.5}, "accuracy": {1: 0.5, 2: 0.7, 3: 0.9}}}
    export_finetuned(made.run("classes"), out=tmp_path / "model", data=made.data("classes"), scores=scores)
    lines = (tmp_path / "model" / "README.md").read_text().splitlines()
    at = lines.index("| dev, accuracy | 3 | 70.0 | 70.0 | 20.0 |")
    assert "The weights are those of seed 3, the best of 3 by these scores: expect the median of it." in lines
    assert lines[at + 1] == "| dev, matthews | 1 | 50.0 | 50.0 | - |"


def test_what_strangers_wrote_does_not_break_the_card(made: Made, tmp_path: Path) -> None:
    data = replace(made.data("classes"), notes=("a | bar\n\n# no title <b>",))
    export_finetuned(made.run("classes"), out=tmp_path / "model", data=data)
    assert "\n- a \\| bar # no title \\<b\\>\n" in (tmp_path / "model" / "README.md").read_text()


def test_an_export_replaces_an_export_only(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "model"
    export_finetuned(made.run("classes"), out=out, data=made.data("classes"))
    export_finetuned(made.run("numbers"), out=out, data=made.data("numbers"))
    assert isinstance(load_finetuned(out).task, Regression)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match=r"is not an empty folder and holds no electra_task\.json"):
        export_finetuned(made.run("classes"), out=tmp_path / "other", data=made.data("classes"))


def test_a_full_disk_leaves_the_old_export(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "model"
    export_finetuned(made.run("classes"), out=out, data=made.data("classes"))

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_durably", full)
    with pytest.raises(StorageError, match="the disk is full"):
        export_finetuned(made.run("numbers"), out=out, data=made.data("numbers"))
    assert isinstance(load_finetuned(out).task, Classification)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_runs_that_cannot_be_exported(made: Made, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made.run("classes"), run)
    shutil.rmtree(run / "weights")
    with pytest.raises(MissingInputError):
        export_finetuned(run, out=tmp_path / "model", data=made.data("classes"))
    shutil.copytree(made.run("classes") / "weights", run / "weights")
    other = str(write_encoder(tmp_path / "other", hidden_size=16))
    with pytest.raises(CheckpointError, match=r"began with another encoder"):
        export_finetuned(run, out=tmp_path / "model", data=made.data("classes"), model=other)
    assert not (tmp_path / "model").exists()


def test_it_is_an_encoder_to_fine_tune_on(made: Made) -> None:
    """MNLI before RTE, say: the encoder of an exported folder, whichever head it has, and for rows as long as before,
    though `many` learned from shorter ones.
    """
    for kind in ("classes", "many"):
        assert load_finetuned(made.model(kind)).text.length == {"classes": 32, "many": 24}[kind]
        tuned = load_finetuned(made.model(kind)).network.electra.state_dict()
        source = load_source(made.model(kind))
        assert all(torch.equal(tensor, tuned[name]) for name, tensor in source.weights.items())
        assert source.length == 32


def changed(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        table = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(change(table)))

    return write


def flipped(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return write


RECIPES: tuple[tuple[Any, type[ElectraError]], ...] = (
    (None, DataError), ([], DataError), ({"precision": "fp8"}, CheckpointError),
)  # fmt: skip
DAMAGE: dict[str, tuple[Callable[[Path], None], type[ElectraError], str]] = {
    "no description": (lambda folder: (folder / "electra_task.json").unlink(), MissingInputError, "holds no electra_task.json. Expected a fine-tuned model, such as DIR/model"),
    "broken description": (lambda folder: (folder / "electra_task.json").write_text("{"), ConfigError, "not valid JSON"),
    "of another version": (changed("electra_task.json", lambda table: {**table, "format": 1}), CheckpointError, "format 1 with the files"),
    "a weight changed": (flipped("encoder/model.safetensors"), CheckpointError, "encoder/model.safetensors: its bytes are not those that were exported"),
    "the head changed": (flipped("head.safetensors"), CheckpointError, "head.safetensors: its bytes are not those that were exported"),
    "no weights": (lambda folder: (folder / "encoder" / "model.safetensors").unlink(), MissingInputError, "model.safetensors: no such file"),
    "no tokenizer": (lambda folder: [(folder / "encoder" / name).unlink() for name in ("tokenizer.json", "vocab.txt")] and None, MissingInputError, "neither tokenizer.json nor vocab.txt"),
    "unknown kind": (changed("electra_task.json", lambda table: {**table, "task": {**table["task"], "kind": "Clasification"}}), DataError, "unknown kind of task 'Clasification'. Known: Classification"),
    "no kind": (changed("electra_task.json", lambda table: {**table, "task": {}}), DataError, "unknown kind of task None"),
    "unknown field": (changed("electra_task.json", lambda table: {**table, "task": {**table["task"], "label": []}}), DataError, "Classification: unknown field 'label'. Did you mean 'labels'?"),
    "wrong labels": (changed("electra_task.json", lambda table: {**table, "task": {**table["task"], "labels": [1, 2]}}), DataError, "labels[0] = 1: expected str"),
    **{
        f"recipe {recipe}": (changed("electra_task.json", lambda table, recipe=recipe: {**table, "recipe": recipe}), kind, "electra_task.json: recipe")
        for recipe, kind in RECIPES
    },
    "a label less": (changed("electra_task.json", lambda table: {**table, "task": {**table["task"], "labels": table["task"]["labels"][1:]}}), CheckpointError, "its head is not that of its task"),
    "no length": (changed("electra_task.json", lambda table: {**table, "max_length": 99999}), CheckpointError, "max_length 99999 cannot be"),
    "a list for a task": (changed("electra_task.json", lambda table: {**table, "task": ["Classification"]}), DataError, "electra_task.json: task = ['Classification']: expected"),
    "no hash": (changed("electra_task.json", lambda table: {**table, "files": {}}), CheckpointError, "this version reads 2"),
    "columns without names": (changed("electra_task.json", lambda table: {**table, "columns": {"text": 1}}), CheckpointError, "columns: text = 1: expected str"),
    "odd columns": (changed("electra_task.json", lambda table: {**table, "columns": {"texts": "a"}}), CheckpointError, "columns: unknown field 'texts'. Did you mean 'text'?"),
    "another model": (changed("encoder/config.json", lambda table: {**table, "model_type": "roberta"}), CheckpointError, "describes 'roberta'"),
    "another shape": (changed("encoder/config.json", lambda table: {**table, "hidden_size": 64}), CheckpointError, "shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_folders_are_refused(made: Made, tmp_path: Path, case: str) -> None:
    damage, kind, words = DAMAGE[case]
    shutil.copytree(made.model("many"), tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(kind) as caught:
        load_finetuned(tmp_path / "model")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("classes", "one text"),
        ("classes", ["a", 5]),
        ("classes", [("a", "b")]),
        ("pairs", ["ab"]),
        ("pairs", [("a", "b", "c")]),
        ("pairs", [["a", 1]]),
        ("pairs", [[]]),
    ],
)
def test_what_is_no_text(made: Made, kind: str, texts: Any) -> None:
    with pytest.raises(DataError, match=r"predict: (item \d is .*, )?expected a (list|text|pair)"):
        load_finetuned(made.model(kind)).predict(texts)
