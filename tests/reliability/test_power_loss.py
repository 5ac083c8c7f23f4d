"""The power goes after any file operation of a save, and any part of what is not surely on the disk is gone: a checkpoint is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.reliability.figures import report
from tests.reliability.operations import Operation, Operations
from tests.reliability.power import KINDS, Disk, disks
from tests.reliability.tiny_checkpoints import RUN, made, naive_step, same, write, write_and_rename, write_in_place

from electra_trainer.train.checkpoint import load_newest

STEPS = (2, 3)
"""Saved while the power may go; step 1 is on the disk already."""


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
    found = load_newest(place, origin=RUN, warn=lambda line: None)
    return found.step if found is not None and same(found, made(found.step)) else None


def naive(place: Path) -> int | None:
    return naive_step(place / "model", range(1, 4))


def test_power_loss(tmp_path: Path) -> None:
    found = recovered(tmp_path, write, ours) + recovered(tmp_path, lambda place, step: write(place, step, keep=2), ours)
    in_place = recovered(tmp_path, lambda place, step: write_in_place(place / "model", step), naive)
    renamed = recovered(tmp_path, lambda place, step: write_and_rename(place / "model", step), naive)
    report(
        "power_loss",
        states=len(found),
        recovered=sum(good for _, good in found),
        control_in_place=f"{sum(good for _, good in in_place)} of {len(in_place)}",
        control_renamed_without_fsync=f"{sum(good for _, good in renamed)} of {len(renamed)}",
    )
    assert not [kind for kind, good in found if not good] and len(found) >= 80
    for control in (in_place, renamed):
        assert not all(good for _, good in control)
