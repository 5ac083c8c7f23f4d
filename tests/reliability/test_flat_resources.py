"""Many steps and many saves: memory, file descriptors and threads stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from typing import Any
from unittest import mock

import torch
from tests.conftest import pytest_configure
from tests.reliability.figures import LONG, report
from tests.reliability.forking import ROOT, UNTUNED
from tests.reliability.operations import Operations
from tests.reliability.whole_runs import each_step, saved_by_now, tiny_run, train

from electra_trainer.runs import checkpoint, run_folder

STEPS, SAVES = (2000, 50) if LONG else (80, 40)
EVERY = STEPS // SAVES
CONTROL_STEPS, CONTROL_SAVES = 40, 40
MOST_MEGABYTES = 4.0 if LONG else 2.7
"""Growth of resident memory over the second half of the saves; one copy of what a checkpoint holds is 0.7 MB."""
Sample = tuple[float, int, int]
"""Resident megabytes, open file descriptors, threads."""


def now() -> Sample:
    megabytes = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return megabytes, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def sample_two_runs(data: str, folder: str) -> None:
    """One that leaks after one that does not, in a process that begins with this: elsewhere growth may fill the holes of what was before."""
    pytest_configure()
    ours = samples(Path(data), Path(folder, "run"), steps=STEPS, every=EVERY)
    every = CONTROL_STEPS // CONTROL_SAVES
    control = samples(Path(data), Path(folder, "leaking"), steps=CONTROL_STEPS, every=every, leaking=True)
    Path(folder, "samples.json").write_text(json.dumps([ours, control]))


def samples(data: Path, out: Path, *, steps: int, every: int, leaking: bool = False) -> list[Sample]:
    """One sample before each save of a run."""
    found: list[Sample] = []

    def before(step: int) -> None:
        if step % every == every - 1:
            saved_by_now()
            found.append(now())

    with (
        each_step(before),
        mock.patch.object(run_folder, "environment_facts", dict),
        mock.patch.object(checkpoint, "_copied", leaky if leaking else checkpoint._copied),
        Operations(out, lambda operation: None, sync=False),
    ):
        config = tiny_run(steps=steps, every=every)
        train(replace(config, batch=replace(config.batch, lanes=1)), data, out)
    return found


_kept: list[Any] = []


def leaky(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A copy that is never given back, with a file and a thread that are not either."""
    copied = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    _kept.append((copied, os.open(os.devnull, os.O_RDONLY)))
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return copied


def growth(found: list[Sample]) -> Sample:
    """From the middle to the end, each the median of a quarter of the samples: a joined thread may still be listed in one of them."""
    quarter = max(len(found) // 4, 1)
    middle, end = found[quarter : 2 * quarter], found[-quarter:]
    first, last = (tuple(median_low(column) for column in zip(*part, strict=True)) for part in (middle, end))
    return round(last[0] - first[0], 2), last[1] - first[1], last[2] - first[2]


def test_flat_resources(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", __name__, str(data), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **UNTUNED}, check=True)
    ours, control = map(growth, json.loads((tmp_path / "samples.json").read_text()))
    names = ("growth_in_megabytes", "growth_in_descriptors", "growth_in_threads")
    grown = dict(zip(names, ours, strict=True)) | {
        f"control_{name}": value for name, value in zip(names, control, strict=True)
    }
    report("flat_resources", steps=STEPS, saves=SAVES, **grown)
    assert ours[0] < MOST_MEGABYTES and ours[1:] == (0, 0)
    assert control[0] > MOST_MEGABYTES and min(control[1:]) > 0


if __name__ == "__main__":
    sample_two_runs(*sys.argv[1:])
