"""Resumed at every step of a run: the same rows, masks, samples, weights, moments and metrics as if nothing had been."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operations
from tests.reliability.runs import curve
from tests.reliability.whole_runs import different_tensors, each_step, store, tiny_run, train

from electra_trainer.objectives import generation
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.train import resumable

STEPS = 40 if LONG else 12
GOES_ON = STEPS if LONG else 2
"""Steps after a resumption that are compared; each step's checkpoint is, so that few are enough."""
CONFIG = tiny_run(steps=STEPS, every=1, keep=STEPS + 1)
Trace = dict[int, str]
"""Hashes by step: of the rows, the masks and the sampled words of all its lanes."""


class Enough(Exception):
    """The run is left here."""


@contextmanager
def tracing(trace: Trace, out: Path, *, until: int) -> Iterator[None]:
    """Note what each step sees, and leave after that many; nothing waits for the disk, which lives on."""
    hasher, real = hashlib.sha256(), generation.corrupt

    def corrupt(masked: Any, sampled_K: torch.Tensor) -> Any:
        if torch.is_grad_enabled():  # not in an evaluation
            for tensor in (masked.batch.ids_BT, masked.input_BT, masked.slots_K, sampled_K):
                hasher.update(tensor.numpy().tobytes())
        return real(masked, sampled_K)

    def before(step: int) -> None:
        nonlocal hasher
        if step >= until:
            raise Enough
        hasher = hashlib.sha256()

    def after(step: int) -> None:
        trace[step] = hasher.hexdigest()

    with (
        mock.patch.object(generation, "corrupt", corrupt),
        mock.patch.object(run_folder, "environment_facts", dict),
        each_step(before, after),
        Operations(out, lambda operation: None, sync=False),
    ):
        with suppress(Enough):
            yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory)


def left_at(whole: Path, step: int, out: Path) -> None:
    """The run's folder as it was with the checkpoint of `step` as its newest, and rows of later steps already logged."""
    shutil.copytree(whole, out, ignore=shutil.ignore_patterns("step-*"))
    name = f"step-{step:08d}"
    shutil.copytree(whole / "checkpoints" / name, out / "checkpoints" / name)


def resumed(whole: Path, data: Path, out: Path, step: int, expected: Trace) -> list[str]:
    """Names of what differs after going on from `step`."""
    left_at(whole, step, out)
    trace: Trace = {}
    last = min(step + GOES_ON, STEPS)
    with tracing(trace, out, until=last):
        train(CONFIG, data, out)
    steps = range(step, last)
    found = [] if trace == {at: expected[at] for at in steps} else ["rows, masks or samples"]
    for at, path in numbered(out / "checkpoints"):
        found += different_tensors(whole / "checkpoints" / f"step-{at:08d}", path)
    found += [] if numbered(out / "checkpoints")[-1][0] == last else ["steps"]
    rows = [row for row in curve(whole) if row["step"] <= last]
    return found + ([] if curve(out) == rows else ["metrics"])


def test_resume_everywhere(data: Path, tmp_path: Path) -> None:
    expected: Trace = {}
    with tracing(expected, tmp_path, until=STEPS):
        whole = train(CONFIG, data, tmp_path / "whole")
    assert len(set(expected.values())) == STEPS  # no two steps see the same
    outcome = {}
    for step in range(STEPS + 1):
        outcome[step] = resumed(whole, data, tmp_path / "run", step, expected)
        shutil.rmtree(tmp_path / "run")
    control = without_moments(whole, data, tmp_path / "run", expected)
    report(
        "resume_everywhere",
        cut_points=len(outcome),
        steps_compared_after_each=GOES_ON,
        identical=sum(not found for found in outcome.values()),
        control_without_moments_identical=int(not control),
    )
    assert not {step: found for step, found in outcome.items() if found}
    assert control


def without_moments(whole: Path, data: Path, out: Path, expected: Trace) -> list[str]:
    """Control: what differs when the weights alone are put back, as many do."""
    with mock.patch.object(resumable, "load_optimizer_tensors", lambda *arguments: None):
        found = resumed(whole, data, out, STEPS // 2, expected)
    kept = read(numbered(out / "checkpoints")[0][1])
    assert kept.step == STEPS // 2 and isinstance(kept, checkpoint.Saved)
    return found
