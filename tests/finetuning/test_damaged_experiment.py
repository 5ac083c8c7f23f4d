"""A finished experiment with a damaged file: the same command needs the file not, repeats a run, or names it in a sentence with a remedy."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.faults.test_fuzz import mutated
from tests.finetuning import plans
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.reliability.figures import LONG

from electra_trainer.errors import CheckpointError, ConfigError, DataError, ElectraError, MissingInputError
from electra_trainer.finetuning.experiment import export_best
from electra_trainer.tasks.own_files import OwnTask

CASES = 3000 if LONG else 40


class Finished:
    """An experiment of two seeds with baselines and predictions; `again` is the same command."""

    def __init__(self, folder: Path) -> None:
        write_encoder(folder / "encoder")
        write_csv(folder / "train.csv", rows(40))
        write_csv(folder / "dev.csv", rows(50)[40:])
        write_csv(folder / "new.csv", [(str(n), text) for n, (text, _) in enumerate(rows(60)[50:])], ("id", "text"))
        self.sound, self.out, self.model = folder / "sound", folder / "out", str(folder / "encoder")
        self.task = OwnTask(train=folder / "train.csv", dev=folder / "dev.csv", predict=folder / "new.csv")
        self.data = self.task.load()
        self.again()
        self.out.rename(self.sound)
        every = [path.relative_to(self.sound) for path in (self.sound / "cells").rglob("*.json*")]
        self.files = sorted([Path("experiment.json"), *(path for path in every if path.name != "metrics.jsonl")])

    def again(self) -> None:
        more: dict[str, Any] = {"changes": {"epochs": 1.0}, "baselines": True}
        plan = plans.plan(self.model, self.task, seeds=(1, 2), keep_weights=True, **more)
        summary = plans.go(plan, self.out, data=self.data)
        export_best(self.task, self.data, summary=summary, model=self.model)

    def damaged(self, name: Path | str, content: bytes | None) -> Path:
        """A copy with other bytes in a file, or without it."""
        shutil.rmtree(self.out, ignore_errors=True)
        shutil.copytree(self.sound, self.out)
        (self.out / name).unlink()
        if content is not None:
            (self.out / name).write_bytes(content)
        return self.out / name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("damaged"))


def test_no_damage_is_our_bug(finished: Finished) -> None:
    chance, refused = random.Random(1), 0
    for _ in range(CASES):
        name = chance.choice(finished.files)
        sound = (finished.sound / name).read_bytes()
        finished.damaged(name, content := mutated(sound, chance) if chance.random() < 0.9 else None)
        try:
            finished.again()
        except ElectraError as error:
            assert isinstance(error, ConfigError | DataError | CheckpointError | MissingInputError), (name, content)
            assert str(finished.out) in str(error) or "began" in str(error), (name, error)
            refused += 1
        except Exception as error:
            raise AssertionError(f"{name}: {content!r}") from error
    assert refused > CASES // 8


RUN = "cells/classification/seed-2"


@pytest.mark.parametrize(
    "name, content, wrong",
    [
        (f"{RUN}/config.json", b"{}", "field model is missing"),
        (f"{RUN}/config.json", None, "no such file"),
        (f"{RUN}/environment.json", b"{", "is not valid JSON"),
        (f"{RUN}/weights/step-00000001/manifest.json", b"{}", "none of its 1 checkpoints can be used"),
        (f"{RUN}/result.json", b'{"scores": 1}', "field key is missing"),
        ("cells/classification+majority/seed-0/result.json", b'{"majority": true}', "unknown field 'majority'"),
    ],
)
def test_the_remedy_works(finished: Finished, name: str, content: bytes | None, wrong: str) -> None:
    """The file that the message names is deleted, and the same command ends as before."""
    best = finished.damaged("summary.json", b"").parent / RUN
    if not (best / "weights").is_dir():
        pytest.skip("another seed is the best")
    path = finished.damaged(name, content)
    with pytest.raises(ElectraError) as caught:
        finished.again()
    said = str(caught.value)
    assert wrong in said and (str(path) in said or str(best) in said)
    if f"delete {best}" in said.lower():
        shutil.rmtree(best)
    else:
        assert "Delete it and repeat the command" in said
        path.unlink()
    finished.again()
    for kept in ("summary.md", "predictions.csv", "model/model.safetensors"):
        assert (finished.out / kept).read_bytes() == (finished.sound / kept).read_bytes()
