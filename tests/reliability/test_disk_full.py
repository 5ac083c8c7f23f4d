"""The disk of a run fills up or fails: the last checkpoint stays; training continues, or stops with 74 and a sentence."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, suppress
from pathlib import Path
from unittest import mock

import pytest
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operation, Operations
from tests.reliability.test_stopped_saves import CODES
from tests.reliability.tiny_checkpoints import naive_step, write_in_place
from tests.reliability.whole_runs import differences, each_step, saved_by_now, tiny_run, train, words

from electra_trainer.cli import main as cli
from electra_trainer.runs import checkpoint, run_folder

STEPS, EVERY = 12, 2
CONFIG = tiny_run(steps=STEPS, every=EVERY)
CODES_OF_RUNS = CODES if LONG else CODES[:2]
"""Each save and each row of the metrics meets them at one call; test_stopped_saves.py has all of them."""


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(CONFIG, data, tmp_path_factory.mktemp("whole") / "run")


def broken_between(out: Path, code: int, first: int, last: int) -> ExitStack:
    """From the beginning of step `first` to that of step `last` nothing can be written to the run."""
    now = {"step": 0}

    def meet(operation: Operation) -> None:
        if first <= now["step"] < last:
            raise OSError(code, os.strerror(code))

    def before(step: int) -> None:
        if step == first:
            saved_by_now()
        now["step"] = step

    stack = ExitStack()
    stack.enter_context(Operations(out, meet, sync=False))
    stack.enter_context(each_step(before))
    stack.enter_context(mock.patch.object(run_folder, "environment_facts", dict))
    stack.enter_context(mock.patch.object(checkpoint, "RETRY_AFTER", 0.0))
    return stack


def test_training_continues_and_ends_the_same(data: Path, whole: Path, tmp_path: Path) -> None:
    """Two saves in a row fail, with every row of the metrics in between; then there is space again."""
    same_ends, told, stopped = [], [], []
    for code in CODES_OF_RUNS:
        out = tmp_path / errno.errorcode[code]
        with broken_between(out, code, 5, 9):
            train(CONFIG, data, out)
        same_ends.append(differences(whole, out) == [])
        told.append("SAVING FAILED (1 of 3" in (out / "log.txt").read_text())
        stopped.append(stops(data, whole, tmp_path / f"{errno.errorcode[code]}-for-good", code))
    control = sum(naive_run(tmp_path / "naive.pt", code) for code in CODES_OF_RUNS)
    counts = {"identical": sum(same_ends), "told": sum(told), "exit_74_and_resumed_identical": sum(stopped)}
    report("disk_full_in_a_run", runs=len(same_ends), **counts, control_models_that_naive_runs_keep=control)
    assert all(same_ends) and all(told) and all(stopped) and not control


def naive_run(path: Path, code: int) -> bool:
    """Control with torch.save over the one file: the disk fails from step 5 to step 9, and what is there then is not what was saved before."""
    for step in range(1, 9):
        count = itertools.count(1)

        def meet(_: Operation, step: int = step, count: Iterator[int] = count) -> None:
            if step >= 5 and next(count) >= 3:
                raise OSError(code, os.strerror(code))

        with suppress(OSError), Operations(path.parent, meet, sync=False):
            write_in_place(path, step)
    return naive_step(path, range(1, 9)) is not None


def stops(data: Path, whole: Path, out: Path, code: int) -> bool:
    """The disk fails for good at step 5: exit 74 with one sentence, and, once it is well, the same command ends as if nothing was."""
    said = out.with_suffix(".said")

    def child() -> int:
        with said.open("w") as stream, redirect_stderr(stream), broken_between(out, code, 5, 1000):
            return cli.main(words(CONFIG, data, out))

    status, told = in_a_child(child), said.read_text()
    good = status == 74 and "3 saves in a row failed; the newest checkpoint is that of step 4" in told
    good &= "Traceback" not in told
    train(CONFIG, data, out)
    return good and differences(whole, out) == []
