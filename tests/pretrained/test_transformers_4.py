"""Exported and fine-tuned folders in transformers 4.57, the last of its line, and 4.49: the ids and outputs that they have here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.finetuning import test_folder, test_folder_heads
from tests.finetuning.test_folder import OTHERS, TEXTS, Made, our_logits, tolerance, without_class
from tests.finetuning.test_folder_heads import ASKED, SENTENCES, ours
from tests.prepared import embedded_lines
from tests.pretrained import ask_transformers, test_as_modern
from tests.pretrained.test_as_modern import IDS, LONG, NETWORKS, TUNED, assert_same, logits, network_of, of_a_task

from electra_trainer.data.batches import encode_rows
from electra_trainer.data.tokenizer import load_tokenizer
from electra_trainer.finetuning.model_folder import load_finetuned
from electra_trainer.pretrained import read_back
from electra_trainer.pretrained.pretrained import export_run
from electra_trainer.tasks.texts import Classification

OLD, OLDEST = (Path(sys.prefix) / name for name in ("transformers-4", "transformers-4.49"))
PLACES = {"4.57": [OLD], "4.49": [OLDEST, OLD]}
LINES = {"4.57": 10_000, "4.49": 1000}
ROW = [2, *range(5, 30), 3]
made, heads = test_folder.made, test_folder_heads.models
modern, folder, tuned = test_as_modern.modern, test_as_modern.folder, test_as_modern.tuned

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Folders:
    """All that are asked about."""

    exported: Path
    half: Path
    modern: Path
    tuned: Path
    made: Made
    heads: Path

    def questions(self, version: str) -> Iterator[tuple[str, list[Any]]]:
        """The function in ask_transformers.py, and its arguments, the folder first."""
        yield "ids", [self.exported, embedded_lines(LINES[version])]
        yield "outputs", [self.exported, "ElectraForPreTraining", {"input_ids": [ROW]}]
        yield "precision", [self.half]
        rows = [*IDS, LONG]
        for place in (*(self.modern / name for name in NETWORKS), *self.modern_models(version)):
            name = json.loads((place / "config.json").read_text())["architectures"][0]
            yield "outputs", [place, name, padded(rows if place.parent == self.modern else of_a_task(place)[0])]
        for kind in ("classes", "pairs", "numbers"):
            yield "classes", [self.made.model(kind), [TEXTS, OTHERS] if kind == "pairs" else [TEXTS]]
        for kind, auto in (("tagging", "TokenClassification"), ("independent", "QuestionAnswering")):
            ids_BT, segment_BT, _ = self.tokens(kind)
            mask_BT = (ids_BT > 0).long()
            inputs = {"input_ids": ids_BT, "token_type_ids": segment_BT, "attention_mask": mask_BT}
            named = {name: tensor.tolist() for name, tensor in inputs.items()}
            yield "outputs", [self.heads / kind, f"AutoModelFor{auto}", named]
        for place in without_class(self.made, self.heads):
            yield "refused", [place]

    def modern_models(self, version: str) -> list[Path]:
        """Fine-tuned; 4.49 has no ModernBERT for questions."""
        return [self.tuned / kind for kind in TUNED if version != "4.49" or kind != "independent"]

    def tokens(self, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Ids, segments and logits of tagged words or questions."""
        loaded = load_finetuned(self.heads / kind)
        texts: Any = SENTENCES if kind == "tagging" else ASKED
        return ours(loaded, loaded.task.examples_from(texts, pair=False))


def padded(rows: list[list[int]]) -> dict[str, Any]:
    ids = [row + [0] * (max(map(len, rows)) - len(row)) for row in rows]
    return {"input_ids": ids, "attention_mask": [[int(one > 0) for one in row] for row in ids]}


@pytest.fixture(scope="module")
def folders(run: Path, exported: Path, folder: Path, tuned: Path, made: Made, heads: Path) -> Folders:
    half = export_run(run, run.parent / "half", dtype="float16")
    return Folders(exported / "discriminator", run.parent / "half" / half[0].name, folder, tuned, made, heads)


@pytest.mark.parametrize("version", PLACES)
def test_the_same_as_here(folders: Folders, modern: Path, tmp_path: Path, version: str) -> None:
    if not all(place.is_dir() for place in PLACES[version]):
        pytest.skip(f"transformers {version} is not installed beside the environment (make test does it)")
    asked, files = list(folders.questions(version)), [tmp_path / "asked.json", tmp_path / "answers.json"]
    files[0].write_text(json.dumps(asked, default=str))
    done = subprocess.run(
        [sys.executable, ask_transformers.__file__, version, *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PLACES[version]))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(files[1].read_text())
    answers = {(name, words[0]): answer for (name, words), answer in zip(asked, found, strict=True)}
    outputs = {place: answer for (name, place), answer in answers.items() if name == "outputs"}
    assert_pretrained(folders.exported, answers["ids", folders.exported], outputs[folders.exported])
    assert answers["precision", folders.half] == "{torch.float32}"
    assert_modern(folders, modern, outputs)
    for place in folders.modern_models(version):
        assert_same(outputs[place], place)
    for kind in ("classes", "pairs", "numbers"):
        assert_classes(folders.made, kind, *answers["classes", folders.made.model(kind)])
    for kind in ("tagging", "independent"):
        ids_BT, _, expected_BTC = folders.tokens(kind)
        away = (torch.tensor(outputs[folders.heads / kind]) - expected_BTC).abs()
        assert away[ids_BT > 0].max() <= 1e-5
    assert sum(name == "refused" for name, _ in answers) == 4


def assert_pretrained(exported: Path, ids: list[list[int]], found: list[list[float]]) -> None:
    tokenizer = load_tokenizer(exported)
    assert [tokenizer.encode(line).ids for line in embedded_lines(len(ids))] == ids
    network, _ = read_back.read_network(exported)
    batch = encode_rows([ROW])
    with torch.no_grad():
        torch.testing.assert_close(torch.tensor(found), network(batch.ids_BT, batch), atol=1e-5, rtol=0)


def assert_modern(folders: Folders, modern: Path, outputs: dict[Path, Any]) -> None:
    """With padding."""
    for name in NETWORKS:
        for ids, answer in zip([*IDS, LONG], outputs[folders.modern / name], strict=True):
            found, said = torch.tensor(answer)[: len(ids)], name == "discriminator"
            found = found[:, 1] - found[:, 0] if said else found
            expected = logits(network_of(modern, name), ids, discriminator=said)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def assert_classes(made: Made, kind: str, found: Any, said: list[tuple[str, float]]) -> None:
    loaded = load_finetuned(made.model(kind))
    mine = our_logits(loaded, kind)
    assert (torch.tensor(found) - mine).abs().max() <= tolerance(loaded)
    if isinstance(loaded.task, Classification):
        assert [label for label, _ in said] == [loaded.task.labels[number] for number in mine.argmax(-1).tolist()]
    else:
        assert [score for _, score in said] == pytest.approx(mine[:, 0].tolist(), abs=tolerance(loaded))
