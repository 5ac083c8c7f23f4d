"""SIGKILL at every single file operation of a save, removal of the old one included: a verified checkpoint is found each time."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tests.reliability.children import in_a_child
from tests.reliability.figures import report
from tests.reliability.operations import Operations, killing
from tests.reliability.tiny_checkpoints import RUN, made, naive_step, same, write, write_in_place

from electra_trainer.runs.checkpoint import load_newest


def kills(tmp_path: Path, before: Callable[[Path], None], work: Callable[[Path], None], *, torn: bool) -> list[Path]:
    """The folders that `work` leaves when it dies before its first operation, its second, and so on; or in its first write, its second."""
    left = []
    for at in range(1, 1000):
        folder = tmp_path / f"{'torn' if torn else 'before'}-{at}"
        folder.mkdir()
        before(folder)

        def doomed(at: int = at, folder: Path = folder) -> None:
            with Operations(folder, killing(at, torn=torn), sync=False):
                work(folder)

        status = in_a_child(doomed)
        if status == 0:
            shutil.rmtree(folder)
            break
        assert status == -signal.SIGKILL, at
        left.append(folder)
    return left


def recovered(folder: Path) -> bool:
    """Whether the old or the new checkpoint is found, and the run resumes from there, with nothing left behind."""
    warnings: list[str] = []
    found = load_newest(folder, origin=RUN, warn=warnings.append)
    if warnings or not any(same(found, made(step)) for step in (1, 2)):
        return False
    write(folder, 3)
    return same(load_newest(folder, origin=RUN, warn=warnings.append), made(3)) and len(list(folder.iterdir())) == 1


def test_kill_in_save(tmp_path: Path) -> None:
    found, control = [], []
    for torn in (False, True):
        for folder in kills(tmp_path, lambda folder: write(folder, 1), lambda folder: write(folder, 2), torn=torn):
            found.append(recovered(folder))
            shutil.rmtree(folder)
        for folder in kills(
            tmp_path,
            lambda folder: write_in_place(folder / "model.pt", 1),
            lambda folder: write_in_place(folder / "model.pt", 2),
            torn=torn,
        ):
            control.append(naive_step(folder / "model.pt", range(1, 3)) is not None)
            shutil.rmtree(folder)
    report(
        "kill_in_save", kills=len(found), recovered=sum(found), control_kills=len(control), control_recovered=sum(control)
    )  # fmt: skip
    assert all(found) and len(found) > 20
    assert sum(control) < len(control)
