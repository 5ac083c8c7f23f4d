"""A save beside the steps: how long a step waits for it, and how long it pauses a thread that runs meanwhile."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tests import small
from tests.reliability.figures import LONG, report

from electra_trainer.runs import checkpoint
from electra_trainer.runs.checkpoint import Saver
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.records import to_dict

MEGABYTES = 400 if LONG else 40
TENSORS = 6
ROUNDS = 4 if LONG else 3
"""The least of each counts: what else the machine does only adds to it."""
pytestmark = pytest.mark.alone


def made(step: int) -> Saved:
    """Few large tensors in one file, which is the harder case."""
    numbers = MEGABYTES * 250_000 // TENSORS
    tensors = {str(n): torch.full((numbers,), float(step + n)) for n in range(TENSORS)}
    return Saved(step=step, weights={"a": torch.ones(3)}, optimizer=tensors, state={"seconds": 0.0})


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def longest_pause(goes_on: Callable[[], bool]) -> float:
    """Seconds between two looks at the clock of this thread, at most, while something runs next to it."""
    longest, before = 0.0, time.perf_counter()
    while goes_on():
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return max(longest, time.perf_counter() - before)


def beside(saver: Saver, saved: Saved) -> tuple[float, float]:
    """Seconds that the step waits for its save to begin, and the longest pause from then on until it is done."""
    start = time.perf_counter()
    saver.begin(saved)
    begun = time.perf_counter() - start
    thread = saver._thread
    assert thread is not None
    return begun, longest_pause(thread.is_alive)


class Whole:
    """Control: the file of a library that makes it in one block."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._content = safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()})

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self._content,))


def test_saving_beside_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open_for_writing()
    folder.begin(to_dict(small.config()), {"train_sha256": "0"})
    said: list[str] = []
    saver = Saver(folder=folder, keep=1, say=said.append)
    waits, pauses, copies, in_step, in_blocks = [], [], [], [], []
    gc.disable()
    try:
        for number in range(ROUNDS):
            saved = made(3 * number)
            copies.append(seconds(lambda saved=saved: checkpoint._copied(saved.optimizer)))  # type: ignore[misc]
            wait, pause = beside(saver, saved)
            waits.append(wait)
            pauses.append(pause)
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, "TensorFile", Whole)
                in_blocks.append(beside(saver, made(3 * number + 1))[1])
        for number in range(2):
            saved = made(3 * ROUNDS + number)
            in_step.append(seconds(lambda saved=saved: saver.write(saved)))  # type: ignore[misc]
    finally:
        gc.enable()
    assert not said
    ours = {"seconds_of_a_copy": copies, "seconds_that_a_step_waits": waits, "longest_pause_beside": pauses}
    controls = {
        "control_pause_of_a_save_in_the_step": in_step,
        "control_longest_pause_beside_a_file_in_one_block": in_blocks,
    }
    least = {name: round(min(found), 4) for name, found in {**ours, **controls}.items()}
    report("saving_beside_steps", megabytes=MEGABYTES, rounds=ROUNDS, **least)
    assert min(waits) <= 3 * max(copies) and min(waits) < min(in_step)
    assert 2 * min(pauses) < min(in_blocks) and 4 * min(pauses) < min(in_step)
