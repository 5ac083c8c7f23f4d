"""The disk fills up or fails, at any byte and at any call: the last checkpoint stays; training continues, or stops with 74 and a sentence."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, suppress
from pathlib import Path
from unittest import mock

import pytest
import torch
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operation, Operations
from tests.reliability.tiny_checkpoints import RUN, made, naive, naive_step, same, write, write_in_place
from tests.reliability.whole_runs import differences, each_step, saved_by_now, store, tiny_run, train

from electra_trainer.cli import main as cli
from electra_trainer.errors import StorageError
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.runs.checkpoint import load_newest
from electra_trainer.settings.records import to_dict

CODES = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS)
OFFSETS = 200 if LONG else 24
NUMBERS = 2048
"""Rows of a tensor: files of 32 kB, so that there is a place for each offset."""
REFUSED = 3


def found(folder: Path, *steps: int) -> bool:
    """Whether one of these steps is found, to the bit, without a word."""
    warnings: list[str] = []
    newest = load_newest(folder, origin=RUN, warn=warnings.append)
    return not warnings and any(same(newest, made(step, numbers=NUMBERS)) for step in steps)


def limited(size: int, work: Callable[[], None]) -> int:
    """Do it in a process that may make no file larger than `size`; REFUSED where it says that the disk is at fault."""

    def child() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            work()
        except (StorageError, OSError, RuntimeError):  # torch.save's own is a RuntimeError
            return REFUSED
        return 0

    return in_a_child(child)


def test_full_at_any_byte(tmp_path: Path) -> None:
    ours, control = [], []
    for number in range(OFFSETS):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, 1, numbers=NUMBERS)
        largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        size = largest * number // OFFSETS
        status = limited(size, lambda folder=folder: write(folder, 2, numbers=NUMBERS))  # type: ignore[misc]
        ours.append(status == REFUSED and found(folder, 1) and len(list(folder.iterdir())) == 1)
        old = folder / "model.pt"
        torch.save(naive(1, numbers=NUMBERS), old)
        limited(size, lambda old=old: torch.save(naive(2, numbers=NUMBERS), old))  # type: ignore[misc]
        control.append(loads(old))
        shutil.rmtree(folder)
    report("disk_full_at_byte", offsets=len(ours), kept=sum(ours), control_kept=sum(control))
    assert all(ours) and len(ours) >= 20
    assert not all(control)


def loads(path: Path) -> bool:
    try:
        torch.load(path, weights_only=True)
    except Exception:
        return False
    return True


def failing(at: int, code: int, *, stays: bool) -> Callable[[Operation], None]:
    """The `at`-th operation fails; `stays`: and all after it."""
    count = iter(range(1, 1 << 30))

    def meet(operation: Operation) -> None:
        number = next(count)
        if number == at or (stays and number > at):
            raise OSError(code, os.strerror(code))

    return meet


def test_an_error_at_every_call(tmp_path: Path) -> None:
    """Opening, writing, syncing, reading back, renaming, removing: a storage error or a save that is there; the old one otherwise."""
    kept, refused, control = [], 0, []
    for code in CODES:
        for stays in (False, True):
            for at in range(1, 1000):
                folder = tmp_path / "now"
                folder.mkdir()
                write(folder, 1, numbers=NUMBERS)
                meet = failing(at, code, stays=stays)
                count = len(kept)
                try:
                    with Operations(folder, meet, reads=True, sync=False):
                        write(folder, 2, numbers=NUMBERS)
                    kept.append(found(folder, 2))
                except StorageError as error:
                    refused += 1
                    kept.append(found(folder, 1, 2) and str(folder) in str(error))
                assert len(kept) == count + 1
                write(folder, 3, numbers=NUMBERS)  # and the disk is well again
                kept[-1] &= found(folder, 3)
                calls = calls_of(folder)
                shutil.rmtree(folder)
                if at >= calls:
                    break
        control += [control_kept(tmp_path / "model.pt", at, code) for at in range(1, 6)]
    report("disk_error_at_call", calls=len(kept), kept=sum(kept), refused=refused, control_kept=f"{sum(control)} of {len(control)}")  # fmt: skip
    assert all(kept) and refused > len(CODES) * 20
    assert not all(control)


def calls_of(folder: Path) -> int:
    """How many calls a save with removal makes."""
    met: list[Operation] = []
    with Operations(folder, lambda operation: met.append(operation), reads=True, sync=False):
        write(folder, 4, numbers=NUMBERS)
    return len(met)


def control_kept(path: Path, at: int, code: int) -> bool:
    write_in_place(path, 1)
    try:
        with Operations(path.parent, failing(at, code, stays=True)):
            write_in_place(path, 2)
    except OSError:
        pass
    return naive_step(path, range(1, 3)) is not None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory)


STEPS, EVERY = 12, 2
CODES_OF_RUNS = CODES if LONG else CODES[:2]
"""Each save and each row of the metrics meets them at one call; test_an_error_at_every_call has all of them."""


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny_run(steps=STEPS, every=EVERY), data, tmp_path_factory.mktemp("whole") / "run")


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
            train(tiny_run(steps=STEPS, every=EVERY), data, out)
        same_ends.append(differences(whole, out) == [])
        told.append("SAVING FAILED (1 of 3" in (out / "log.txt").read_text())
        stopped.append(stops(data, whole, tmp_path / f"{errno.errorcode[code]}-for-good", code))
    control = sum(naive_run(tmp_path / "naive.pt", code) for code in CODES_OF_RUNS)
    report(
        "disk_full_in_a_run",
        runs_that_went_on=len(same_ends),
        identical=sum(same_ends),
        told=sum(told),
        runs_that_stopped=len(stopped),
        exit_74_and_went_on_later_identical=sum(stopped),
        control_models_that_naive_runs_keep=f"{control} of {len(CODES_OF_RUNS)}",
    )
    assert all(same_ends) and all(told) and all(stopped) and not control


def naive_run(path: Path, code: int) -> bool:
    """Control with torch.save over the one file: the disk fails from step 5 to step 9, and what is there then is not what was saved before."""
    for step in range(1, 9):
        with (
            suppress(OSError),
            Operations(path.parent, failing(3 if step >= 5 else 1000, code, stays=True), sync=False),
        ):
            write_in_place(path, step)
    return naive_step(path, range(1, 9)) is not None


def stops(data: Path, whole: Path, out: Path, code: int) -> bool:
    """The disk fails for good at step 5: exit 74 with one sentence, and, once it is well, the same command ends as if nothing was."""
    config, said = out.with_suffix(".json"), out.with_suffix(".said")
    config.write_text(json.dumps(to_dict(tiny_run(steps=STEPS, every=EVERY))))

    def child() -> int:
        with said.open("w") as stream, redirect_stderr(stream), broken_between(out, code, 5, 1000):
            return cli.main(["pretrain", str(data), "--out", str(out), "--config", str(config), "--device", "cpu"])

    status, words = in_a_child(child), said.read_text()
    good = status == 74 and "3 saves in a row failed; the newest checkpoint is that of step 4" in words
    good &= "Traceback" not in words
    train(tiny_run(steps=STEPS, every=EVERY), data, out)
    return good and differences(whole, out) == []
