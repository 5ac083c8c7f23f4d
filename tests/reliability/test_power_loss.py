"""The power goes after any file operation of a save, and any part of what is not surely on the disk is gone: a checkpoint is found."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operation, Operations
from tests.reliability.power import KINDS, Disk, disks
from tests.reliability.tiny_checkpoints import RUN, made, naive_step, same, write, write_and_rename, write_in_place
from tests.reliability.whole_runs import differences, tiny_run, train

from electra_trainer.errors import CheckpointError
from electra_trainer.runs import run_folder
from electra_trainer.runs.checkpoint import load_newest

STEPS = (2, 3)
"""Saved while the power may go; step 1 is on the disk already."""
CONFIG = tiny_run(steps=8, every=2)
STATES_OF_A_RUN = 250 if LONG else 12


def recovered(
    tmp_path: Path, save: Callable[[Path, int], None], find: Callable[[Path], int | None]
) -> list[tuple[str, bool]]:
    """For each state that a power cut may leave, by kind: whether the newest checkpoint that was promised, or a newer one, is found."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    save(folder, 1)
    disk = Disk(folder)
    done: list[Operation] = []
    promised = {0: 1}
    for step in STEPS:
        with Operations(folder, done.append):
            save(folder, step)
        promised[len(done)] = step
    outcome, newest = [], 0
    for number, state in enumerate(disks(disk, done)):
        newest = promised.get(number, newest)
        for seed, kind in enumerate(KINDS):
            place = tmp_path / "found"
            state.write(place, kind, seed=100 * number + seed)
            step = find(place)
            outcome.append((kind, step is not None and step >= newest))
            shutil.rmtree(place)
    shutil.rmtree(folder)
    return outcome


def ours(place: Path) -> int | None:
    try:
        found = load_newest(place, origin=RUN, warn=lambda line: None)
    except CheckpointError:
        return None
    return found.step if found is not None and same(found, made(found.step)) else None


def naive(place: Path) -> int | None:
    return naive_step(place / "model", range(1, 4))


def test_power_loss(tmp_path: Path) -> None:
    found = recovered(tmp_path, write, ours) + recovered(tmp_path, lambda place, step: write(place, step, keep=2), ours)
    in_place = recovered(tmp_path, lambda place, step: write_in_place(place / "model", step), naive)
    renamed = recovered(tmp_path, lambda place, step: write_and_rename(place / "model", step), naive)
    controls = {"control_in_place": in_place, "control_renamed_without_fsync": renamed}
    kept = {name: f"{sum(good for _, good in states)} of {len(states)}" for name, states in controls.items()}
    report("power_loss", states=len(found), recovered=sum(good for _, good in found), **kept)
    assert not [kind for kind, good in found if not good] and len(found) >= 80
    for control in (in_place, renamed):
        assert not all(good for _, good in control)


def test_power_loss_in_a_run(data: Path, tmp_path: Path) -> None:
    """From the making of its folder to its last save: the same command, after any such state, ends in the same bits and metrics."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    disk, unsynced, done = Disk(folder), Disk(folder), list[Operation]()
    with Operations(folder, done.append), mock.patch.object(run_folder, "environment_facts", dict):
        whole = train(CONFIG, data, folder / "run")
    choose = random.Random(0)
    every = [(number, kind) for number in range(len(done) + 1) for kind in KINDS]
    chosen = set(choose.sample(every, STATES_OF_A_RUN))
    identical = []
    for number, state in enumerate(disks(disk, done)):
        for kind in KINDS:
            if (number, kind) in chosen:
                place = tmp_path / "found"
                state.write(place, kind, seed=number)
                with (
                    mock.patch.object(run_folder, "environment_facts", dict),
                    Operations(place, lambda _: None, sync=False),
                ):
                    train(CONFIG, data, place / "run")
                identical.append((number, kind, differences(whole, place / "run")))
                shutil.rmtree(place)
    bad = [outcome for outcome in identical if outcome[2]]
    for operation in done:
        if operation.name != "fsync":
            unsynced.apply(operation)
    kept, control = (ended_and_whole(whole, one, tmp_path / "ended") for one in (disk, unsynced))
    report(
        "power_loss_in_a_run",
        operations=len(done),
        states=len(identical),
        whole=kept,
        control_whole_without_fsync=control,
    )
    assert not bad and len(identical) == STATES_OF_A_RUN
    assert control < kept == len(KINDS)


def ended_and_whole(whole: Path, disk: Disk, place: Path) -> int:
    """In how many of the states that a power cut after the end of a run may leave its last checkpoint is there."""
    found = 0
    for kind in KINDS:
        disk.write(place, kind, seed=0)
        with suppress(OSError, IndexError, ValueError, CheckpointError):
            found += not differences(whole, place / "run")
        shutil.rmtree(place)
    return found
