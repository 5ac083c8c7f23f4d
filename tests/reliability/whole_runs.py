"""Runs of a second or two in this process or in copies of it, and what two of them are compared by."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from tests.prepared import small_config
from tests.reliability.figures import LAYERS
from tests.reliability.runs import curve

from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config, Evaluation
from electra_trainer.settings.records import to_dict
from electra_trainer.train import fast_step
from electra_trainer.train.loop import pretrain


def tiny_run(*, steps: int, every: int, keep: int = 2) -> Config:
    """Saved each `every` steps, with held-out rows looked at four times."""
    config = small_config(steps=steps, layers=LAYERS)
    saving = replace(config.checkpoint, every=every, keep=keep)
    return replace(config, checkpoint=saving, evaluation=Evaluation(every=max(steps // 4, 1), rows=8))


def train(config: Config, data: Path, out: Path) -> Path:
    """Begin a run or go on with it."""
    return pretrain(config, data, out=out, device="cpu", quiet=True)


def words(config: Config, data: Path, out: Path, *more: str) -> list[str]:
    """The command that trains; its settings are in a file next to `out`."""
    path = out.with_suffix(".json")
    path.write_text(json.dumps(to_dict(config)))
    return ["pretrain", str(data), "--config", str(path), "--out", str(out), "--device", "cpu", *more]


@contextmanager
def each_step(before: Any, after: Any = None) -> Iterator[None]:
    """Call `before(step)` before each training step and `after(step)` after it."""
    real = fast_step.train_step

    def watched(*arguments: Any, step: int, **more: Any) -> Any:
        before(step)
        result = real(*arguments, step=step, **more)
        if after is not None:
            after(step)
        return result

    with mock.patch.object(fast_step, "train_step", watched):
        yield


def saved_by_now() -> None:
    """Wait for the checkpoint that is being written."""
    for thread in threading.enumerate():
        if thread.name == "electra-save":
            thread.join()


def differences(one: Path, two: Path) -> list[str]:
    """Names of what differs, in any bit, between two runs: steps, weights, moments, metrics, examples."""
    found = different_tensors(*(numbered(run / "checkpoints")[-1][1] for run in (one, two)))
    found += ["metrics"] if curve(one) != curve(two) else []
    texts = [(run / "examples.jsonl").read_text() for run in (one, two)]
    return found + (["examples"] if texts[0] != texts[1] else [])


def different_tensors(one: Path, two: Path) -> list[str]:
    """Compare two checkpoints."""
    first, second = read(one), read(two)
    if first.step != second.step:
        return [f"step {first.step} and {second.step}"]
    found = []
    for mine, theirs in ((first.weights, second.weights), (first.optimizer, second.optimizer)):
        found += sorted(mine.keys() ^ theirs.keys())
        found += [name for name in mine.keys() & theirs.keys() if not torch.equal(mine[name], theirs[name])]
    return found
