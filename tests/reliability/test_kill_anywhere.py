"""SIGKILL at seeded events, several times a run, and the same command again: every run ends in the same bits."""

from __future__ import annotations

import random
import shutil
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tests.reliability.children import in_a_child
from tests.reliability.figures import LONG, report
from tests.reliability.operations import Operation, Operations, die
from tests.reliability.whole_runs import differences, each_step, tiny_run, train
from torch.optim.optimizer import register_optimizer_step_post_hook

from electra_trainer.objectives import Objective
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.runs.checkpoint import Saver, numbered
from electra_trainer.train import resumable

STEPS, EVERY = 16, 4
CONFIG = tiny_run(steps=STEPS, every=EVERY)
RUNS, KILLS = (50, 200) if LONG else (3, 14)
MOST_KILLS = 5
"""Sessions of one run; then it may end."""
EVENTS = {"step": 7, "forward": 14, "backward": 14, "optimizer": 7, "saving": 60, "rows": 40}
"""Events at which a session may die, and the latest occurrence of it: `saving` are file operations of a checkpoint, `rows` all others."""


FIRST, DONE, BEGUN = range(3)
"""Facts that the parent has of a child that is gone, in memory that both have: the first step of the session (-1: none), the steps that were
done, and the step whose checkpoint it began last (-1: none)."""


class Death:
    """Dies at the `at`-th event of a kind."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.left = kind, at

    def meet(self, kind: str) -> None:
        if kind == self.kind:
            self.left -= 1
            if self.left == 0:
                die()

    def meet_operation(self, operation: Operation) -> None:
        self.meet("saving" if operation.saving else "rows")


def session(data: Path, out: Path, progress: torch.Tensor, death: Death) -> int:
    """Begin or go on, in a copy of this process; its exit status."""
    progress[FIRST] = progress[BEGUN] = -1

    def before(step: int) -> None:
        if progress[FIRST] < 0:
            progress[FIRST] = progress[DONE] = step
        death.meet("step")

    real_begin, real_backward = Saver.begin, torch.Tensor.backward

    def begin(saver: Saver, saved: Any) -> None:
        saver._settle()  # it waits for the save before, which is the one that counts until then
        progress[BEGUN] = saved.step
        real_begin(saver, saved)

    def backward(tensor: torch.Tensor, *arguments: Any, **more: Any) -> None:
        real_backward(tensor, *arguments, **more)
        death.meet("backward")

    def forward(module: torch.nn.Module, *_: object) -> None:
        if isinstance(module, Objective):
            death.meet("forward")

    def work() -> None:
        torch.nn.modules.module.register_module_forward_hook(forward)
        register_optimizer_step_post_hook(lambda *_: death.meet("optimizer"))
        with ExitStack() as stack:
            for place, name, put in (
                (Saver, "begin", begin),
                (torch.Tensor, "backward", backward),
                (run_folder, "environment_facts", dict),
            ):
                stack.enter_context(mock.patch.object(place, name, put))
            stack.enter_context(each_step(before, lambda step: progress[DONE].fill_(step + 1)))
            stack.enter_context(Operations(out, death.meet_operation, sync=False))
            train(CONFIG, data, out)

    return in_a_child(work)


def recomputed(out: Path, progress: torch.Tensor) -> tuple[int, int]:
    """After a kill: the steps that are computed again, and how many of them were done while a checkpoint was being written beside them."""
    _, done, begun = progress.tolist()
    kept = numbered(out / "checkpoints")[-1][0]
    return done - kept, done - begun if begun > kept else 0


def killed_run(data: Path, out: Path, seed: int, progress: torch.Tensor) -> tuple[list[str], list[tuple[int, int]]]:
    """One run, killed now and then until it ends: what it was killed at, and what each kill in which steps were done cost."""
    choose = random.Random(seed)
    kills: list[str] = []
    costs: list[tuple[int, int]] = []
    while True:
        kind = choose.choice(sorted(EVENTS)) if len(kills) < MOST_KILLS else "nothing"
        status = session(data, out, progress, Death(kind, choose.randint(1, EVENTS.get(kind, 1))))
        if status == 0:
            return kills, costs
        assert status == -signal.SIGKILL
        kills.append(kind)
        if progress[FIRST] >= 0:  # steps were done
            costs.append(recomputed(out, progress))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(CONFIG, data, tmp_path_factory.mktemp("whole") / "run")


def test_kill_anywhere(data: Path, whole: Path, tmp_path: Path) -> None:
    progress = torch.zeros(3, dtype=torch.long).share_memory_()
    identical: list[bool] = []
    kills: list[str] = []
    costs: list[tuple[int, int]] = []
    while len(identical) < RUNS or len(kills) < KILLS:
        out = tmp_path / "run"
        killed_at, cost = killed_run(data, out, len(identical), progress)
        kills += killed_at
        costs += cost
        identical.append(differences(whole, out) == [])
        shutil.rmtree(out)
    slow = killed_on_a_slow_disk(data, whole, tmp_path / "slow", progress)
    control = killed_without_going_back(data, whole, tmp_path / "control", progress)
    most = max(again - beside for again, beside in costs)
    report(
        "kill_anywhere", runs=len(identical), kills=len(kills), identical=sum(identical), interval=EVERY,
        most_recomputed_but_for_steps_during_a_save=most, recomputed_where_a_save_takes_a_whole_interval=slow,
        control_rows_kept_identical=int(control),
    )  # fmt: skip
    assert all(identical)
    assert all(again <= EVERY + beside and beside <= EVERY for again, beside in costs)
    assert any(beside == 0 for _, beside in costs) and slow == 2 * EVERY
    assert not control


def killed_on_a_slow_disk(data: Path, whole: Path, out: Path, progress: torch.Tensor) -> int:
    """The most that a kill can cost: a save is not done when the next one is due, which waits for it, and there the process dies."""
    real = checkpoint.save

    def never(folder: Path, saved: Any, **more: Any) -> Path:
        if saved.step == 2 * EVERY:
            threading.Event().wait()
        return real(folder, saved, **more)

    def settle(saver: Saver) -> None:
        if progress[DONE] == 3 * EVERY:
            die()
        waits(saver)

    waits = Saver._settle
    with mock.patch.object(checkpoint, "save", never), mock.patch.object(Saver, "_settle", settle):
        assert session(data, out, progress, Death("nothing", 1)) == -signal.SIGKILL
    again, beside = recomputed(out, progress)
    assert again == EVERY + beside
    assert session(data, out, progress, Death("nothing", 1)) == 0 and differences(whole, out) == []
    return again


def killed_without_going_back(data: Path, whole: Path, out: Path, progress: torch.Tensor) -> bool:
    """Control: one kill, and rows of metrics.jsonl beyond the checkpoint stay, as where a file is only added to."""
    assert session(data, out, progress, Death("step", EVERY + 3)) == -signal.SIGKILL
    with mock.patch.object(resumable, "forget_after", lambda *_: None):
        assert session(data, out, progress, Death("nothing", 1)) == 0
    return differences(whole, out) == []
