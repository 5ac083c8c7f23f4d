"""SIGTERM, SIGINT and SIGUSR1 to a rank, to all, to torchrun or to the supervisor, in every part of a run: saved, and out in seconds.

The long form is under torchrun; the short one joins two ranks without it.
"""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.forking import PATHS
from tests.reliability.moments import TOLD, Signalled, just_before, signal_at
from tests.reliability.rank_program import DEAF
from tests.reliability.ranks import run_ranks, start_ranks, wait_for
from tests.reliability.runs import lost
from tests.reliability.whole_runs import differences

from electra_trainer.errors import ElectraError
from electra_trainer.runs.progress import Status
from electra_trainer.runs.restarts import supervise
from electra_trainer.runs.signals import FORWARDS, STOP, StopRequest, leave_when_told
from electra_trainer.settings.records import to_dict
from electra_trainer.train import loop

CONFIG = dataclasses.replace(small_config(layers=LAYERS), deterministic=True)  # so that one process may go on, quickly
LIMIT = 10.0
"""Seconds from the signal to the end of all."""


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signals") / "whole"
    assert run_ranks(1, lambda _: trained(data, out)) == [0]
    return out


def trained(data: Path, out: Path) -> int:
    try:
        with Status(out) as status:
            loop.pretrain(CONFIG, data, out=out, device="cpu", quiet=True, status=status)
    except ElectraError as error:
        return error.exit_code
    return 0


def joined_ranks(told: Signalled, data: Path, notes: Path) -> list[int]:
    """Two ranks without torchrun; their codes."""

    def work(_: int) -> int:
        leave_when_told()
        signal_at(told, notes)
        return trained(data, notes / "run")

    return wait_for(start_ranks(2, work))


def launched(told: Signalled, data: Path, notes: Path, *, deaf: bool = False) -> int:
    """Two ranks of torchrun, of a supervisor where that gets the signal; the code of what was started. Deaf: the program does not listen."""
    notes.mkdir()
    config = notes / "config.json"
    config.write_text(json.dumps(to_dict(CONFIG)))
    spec = DEAF * deaf + ";".join(map(str, (notes, told.moment, told.nth, int(told.number), told.target)))
    words = ["pretrain", str(data), "--config", str(config), "--out", str(notes / "run"), "--device", "cpu", "--quiet"]
    module = "electra_trainer.runs.launcher" if told.target == "supervisor" else "torch.distributed.run"
    launcher = [sys.executable, "-m", module, "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "-m", "tests.reliability.rank_program", spec, *words]
    variables = {**PATHS, "GLIBC_TUNABLES": ""}
    if told.target == "supervisor":

        def supervised(_: int) -> int:
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                del os.environ[name]
            os.environ |= {**variables, "ELECTRA_TEST_SUPERVISOR": str(os.getpid())}
            return supervise(command, notes / "run", restarts=0)

        return wait_for(start_ranks(1, supervised))[0]
    with (notes / "said").open("w") as said:
        return subprocess.run(
            command, env={**os.environ, **variables, **FORWARDS}, stderr=said, check=False, timeout=300
        ).returncode


class Moments:
    """Results of many moments."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.stopped = self.saved = self.identical = 0

    def add(self, told: Signalled, notes: Path, codes: list[int], data: Path, whole: Path) -> None:
        self.times.append(time.time() - (notes / TOLD).stat().st_mtime)
        run = notes / "run"
        state = json.loads((run / "status.json").read_text()) if (run / "status.json").exists() else None
        ended = {(75, "stopped"), (0, "done")} if state else set()
        assert not state or (state["exit_code"], state["state"]) in ended, (told, codes, state)
        assert state or told.moment in ("joining", "start-up"), (told, codes)
        self.stopped += not state or state["exit_code"] == 75
        self.saved += lost(run) == 0
        assert run_ranks(1, lambda _: trained(data, run)) == [0]
        self.identical += not differences(run, whole)
        assert self.saved == self.identical == len(self.times), told

    def report(self, test: str, **more: object) -> None:
        n = len(self.times)
        times = {"p50_s": sorted(self.times)[n // 2], "p100_s": max(self.times)}
        report(test, moments=n, stopped=self.stopped, saved=self.saved, identical=self.identical, **times, **more)


def test_two_ranks(data: Path, whole: Path, tmp_path: Path) -> None:
    chance, found = random.Random(3), Moments()
    for at in range(35 if LONG else 7):
        told, notes = Signalled.drawn(at, chance, ("rank 0", "rank 1", "both", "rank 1")), tmp_path / str(at)
        notes.mkdir()
        codes = joined_ranks(told, data, notes)
        assert set(codes) in ({0}, {75}) or told.moment == "end", (told, codes)
        found.add(told, notes, codes, data, whole)
    assert found.stopped >= len(found.times) // 2
    assert max(found.times) < LIMIT
    control = [unanswered(data, tmp_path / f"control-{nth}", nth) for nth in ((3, 7) if LONG else (7,))]
    assert min(control) > 0
    found.report("signals_two_ranks", control_moments=len(control), control_saved=sum(steps == 0 for steps in control))


def test_a_rank_that_comes_late_hears_of_the_signal(data: Path, tmp_path: Path) -> None:
    """Rank 0 hosts the store and gets the signal while it waits for rank 1, which is connected and about to come."""

    def work(rank: int) -> int:
        leave_when_told()
        signal_at(Signalled("joining", 1, signal.SIGTERM, "rank 0"), tmp_path)
        if rank == 1:
            just_before("joining", 1, lambda: time.sleep(1))
        return trained(data, tmp_path / "run")

    assert wait_for(start_ranks(2, work)) == [75, 75]


def unanswered(data: Path, notes: Path, nth: int) -> int:
    """The control: a program that does not listen; steps that are lost."""
    notes.mkdir()

    def work(_: int) -> int:
        StopRequest.__enter__ = lambda self: self
        signal_at(Signalled("data", nth, signal.SIGTERM, "rank 0"), notes)
        return trained(data, notes / "run")

    assert wait_for(start_ranks(2, work))[0] == -signal.SIGTERM
    return lost(notes / "run")


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a minute for each of 40 starts of torchrun: `make reliability`")
def test_under_torchrun(data: Path, whole: Path, tmp_path: Path) -> None:
    chance, found = random.Random(4), Moments()
    for at in range(int(os.environ.get("ELECTRA_RELIABILITY_MOMENTS", "40"))):
        targets = ("launcher", "rank 0", "supervisor", "rank 1")
        told, notes = Signalled.drawn(at, chance, targets), tmp_path / str(at)
        code = launched(told, data, notes)
        allowed = (0, 75) if told.target == "supervisor" else (0, 1)  # torchrun hides it; status.json does not
        assert code in allowed, (told, code)
        found.add(told, notes, [code], data, whole)
    assert max(found.times) < LIMIT
    control = []
    for target in ("launcher", "rank 0"):
        notes = tmp_path / f"control-{target}"
        launched(Signalled("data", 7, signal.SIGTERM, target), data, notes, deaf=True)
        control.append(lost(notes / "run"))
    assert min(control) > 0
    found.report(
        "signals_torchrun",
        targets=sorted(targets),
        signals=sorted(number.name for number in STOP),
        control_moments=len(control),
        control_saved=sum(steps == 0 for steps in control),
    )
