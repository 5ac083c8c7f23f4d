"""Resumed at every step of a run: the same weights, moments and metrics as if it had not been disturbed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operations
from tests.reliability.runs import curve
from tests.reliability.whole_runs import different_tensors, each_step, tiny_run, train

from electra_trainer.runs import run_folder
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.train import resumable

STEPS = 40 if LONG else 12
GOES_ON = STEPS if LONG else 2
"""Steps after a resumption that are compared; each step's checkpoint is, so that few are enough."""
CONFIG = tiny_run(steps=STEPS, every=1, keep=STEPS + 1)


class Enough(Exception):
    """The run is left here."""


@contextmanager
def left_before(out: Path, last: int) -> Iterator[None]:
    """Leave a run before a step; nothing waits for the disk, which lives on."""

    def before(step: int) -> None:
        if step >= last:
            raise Enough

    facts = mock.patch.object(run_folder, "environment_facts", dict)
    with facts, each_step(before), Operations(out, lambda _: None, sync=False), suppress(Enough):
        yield


def resumed(whole: Path, data: Path, out: Path, step: int) -> list[str]:
    """Names of what differs after resuming at `step`, where rows of later steps are logged already."""
    shutil.copytree(whole, out, ignore=shutil.ignore_patterns("step-*"))
    name, last = f"step-{step:08d}", min(step + GOES_ON, STEPS)
    shutil.copytree(whole / "checkpoints" / name, out / "checkpoints" / name)
    with left_before(out, last):
        train(CONFIG, data, out)
    saved = numbered(out / "checkpoints")
    found = [] if saved[-1][0] == last else ["steps"]
    for at, path in saved:
        found += different_tensors(whole / "checkpoints" / f"step-{at:08d}", path)
    found += [] if curve(out) == [row for row in curve(whole) if row["step"] <= last] else ["metrics"]
    shutil.rmtree(out)
    return found


def test_resume_everywhere(data: Path, tmp_path: Path) -> None:
    """The control puts back the weights alone, as many do."""
    with left_before(tmp_path, STEPS):
        whole = train(CONFIG, data, tmp_path / "whole")
    outcome = {step: resumed(whole, data, tmp_path / "run", step) for step in range(STEPS + 1)}
    with mock.patch.object(resumable, "load_optimizer_tensors", lambda *_: None):
        control = resumed(whole, data, tmp_path / "run", STEPS // 2)
    identical = sum(not found for found in outcome.values())
    report("resume_everywhere", cut_points=len(outcome), identical=identical, control_without_moments=int(not control))
    assert not {step: found for step, found in outcome.items() if found}
    assert control
