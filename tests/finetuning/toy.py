"""A small encoder on disk and a task that any process can load: what experiments of a few seconds are made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from tests.finetuning.small_source import shape, source_of

from electra_trainer.data.tokenizer import SPECIAL_TOKENS, save_tokenizer
from electra_trainer.errors import DataError
from electra_trainer.finetuning import run
from electra_trainer.finetuning.run import Job
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initial_weights import initialize
from electra_trainer.pretrained.export import shape_table
from electra_trainer.pretrained.source import Source
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.recipe import Recipe
from electra_trainer.tasks.task import Task, TaskData, TaskSource, hash_files
from electra_trainer.tasks.texts import Classification, Regression

WORDS = tuple(f"w{number}" for number in range(40))
GOOD = WORDS[:8]
"""A text is positive where most of its telling words are of these; `BAD` are the others that tell."""
BAD = WORDS[8:16]


def source(*, seed: int = 5, layers: int = 1) -> Source:
    """Random weights, as an encoder begins."""
    model = shape(vocab_size=len(SPECIAL_TOKENS) + len(WORDS), num_hidden_layers=layers)
    encoder = initialize(Encoder(model), model, lambda name: torch.Generator().manual_seed(seed + len(name)))
    return source_of("toy", model, encoder, WORDS)


def write_model(folder: Path, *, seed: int = 5, layers: int = 1) -> str:
    """Write the model as a folder that `load_source` reads; return its name."""
    made = source(seed=seed, layers=layers)
    folder.mkdir(parents=True, exist_ok=True)
    table = {"architectures": ["ElectraModel"], **shape_table(made.model, pad_id=made.specials.pad)}
    (folder / "config.json").write_text(json.dumps(table))
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(dict(made.weights)))
    save_tokenizer(made.tokenizer, folder, max_length=made.length)
    return str(folder)


@dataclass(frozen=True, kw_only=True)
class Toy(TaskSource):
    """A task of made-up texts; the same fields give the same texts."""

    name: str = "toy"
    epochs: float = 3.0
    rows: int = 96
    dev: int = 24
    kind: str = "classification"
    paired: bool = False
    note: str | None = None
    save_every: float | None = None
    """Seconds between checkpoints, in whatever process the task is loaded."""
    breaks_from: int | None = None
    """Training labels from this row on are no labels: an error that the rows are met with, in a worker."""

    def load(self) -> TaskData:
        if self.save_every is not None:
            run.SAVE_EVERY = self.save_every
        if self.rows < 0:
            raise DataError(f"{self.name}.tsv:3: expected a number of rows, found {self.rows}.")
        task: Task = Classification(labels=("bad", "good"), metrics=("accuracy", "matthews"), name=self.name)
        if self.kind == "regression":
            task = Regression(name=self.name)
        if self.breaks_from is not None:
            task = Broken(labels=("bad", "good"), name=self.name)
        return TaskData(
            task=task,
            train=self._examples(self.rows, seed=1),
            dev={"dev": self._examples(self.dev, seed=2), "other": self._examples(10, seed=3)},
            test={"test": self._examples(6, seed=4)},
            notes=() if self.note is None else (self.note,),
            sha256=hash_files({"toy": f"{self.rows} {self.dev} {self.kind} {self.paired}".encode()}),
        )

    def _examples(self, count: int, *, seed: int) -> list[TextExample]:
        random = np.random.default_rng(seed)
        made = []
        for number in range(count):
            words = [str(word) for word in random.choice(WORDS, random.integers(3, 12))]
            balance = sum((word in GOOD) - (word in BAD) for word in words)
            half = len(words) // 2 if self.paired else len(words)
            made.append(
                TextExample(
                    text=" ".join(words[:half]),
                    pair=" ".join(words[half:]) if self.paired else None,
                    label="good" if balance > 0 else "bad",
                    value=float(balance),
                    place=f"toy.tsv:{number + 1}",
                )
            )
        return made


@dataclass(frozen=True, kw_only=True)
class Broken(Classification):
    """Finds out only while it trains that something is wrong."""

    def loss(self, *arguments: object, **more: object) -> tuple[torch.Tensor, int]:
        raise DataError("toy.tsv:7: label 'ugly': expected one of bad, good.")


def job(*, seed: int = 1, rows: int = 96, source_seed: int = 5, **changes: object) -> Job:
    """A run of a second: 12 steps of 8 rows an epoch, dropout on; in fp32 also where the machine prefers bf16."""
    small = {"learning_rate": 5e-3, "epochs": 1.0, "batch_size": 8, "max_length": 24, "precision": "fp32"}
    recipe = Recipe(**{**small, **changes})  # type: ignore[arg-type]
    return Job(source=source(seed=source_seed), data=Toy(rows=rows).load(), recipe=recipe, seed=seed)


def without_times(file: Path) -> bytes:
    """Content of a file; of a result without its seconds and where it was computed."""
    content = file.read_bytes()
    if file.name != "result.json":
        return content
    table = json.loads(content)
    table["facts"].pop("seconds", None)
    return json.dumps({**table, "environment": None}).encode()
