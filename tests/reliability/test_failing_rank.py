"""One rank fails while the others compute: all end at once with its exit code and its message, and none hangs."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.moments import just_before
from tests.reliability.rank_program import TORCHRUN, TWO_HERE, UNWATCHED, launch
from tests.reliability.ranks import free_port, start_ranks, wait_for, wait_until
from tests.reliability.whole_runs import words

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, as_known
from electra_trainer.ranks import failure, world
from electra_trainer.runs.progress import Status
from electra_trainer.runs.restarts import supervise
from electra_trainer.train import loop

CONFIG = small_config(steps=40, lanes=4, layers=LAYERS)
LIMIT = 10.0
"""Seconds from the fault to the end of the last rank."""


def happens(notes: Path, what: Callable[[], object]) -> Callable[[], None]:
    """Note the time, then do it."""

    def act() -> None:
        (notes / "began").touch()
        what()

    return act


def fails(error: Exception) -> Callable[..., None]:
    def act(*_: object) -> None:
        raise error

    return act


def bad_data(notes: Path, rank: int) -> None:
    """The rows of rank 1 are cut short: its folder is another, as on another machine."""
    if rank == 1:
        real = loop.Store.open

        def cut(folder: Path, **more: bool) -> object:
            own = shutil.copytree(folder, notes / "data")
            with (own / "train.bin").open("r+b") as rows:
                rows.truncate(100)
            (notes / "began").touch()
            return real(own, **more)

        loop.Store.open = cut


def no_device(notes: Path, rank: int) -> None:
    if rank == 1:
        loop.choose_device = lambda _: happens(notes, fails(ConfigError("no GPU on this machine")))()


def at_a_step(error: Exception, *, of: int) -> Callable[[Path, int], None]:
    def arrange(notes: Path, rank: int) -> None:
        if rank == of:
            just_before("step", 3, happens(notes, fails(error)))

    return arrange


def killed(notes: Path, rank: int) -> None:
    if rank == 1:
        just_before("step", 3, happens(notes, lambda: os.kill(os.getpid(), signal.SIGKILL)))


def killed_while_starting(notes: Path, rank: int) -> None:
    """torchrun then sends the others SIGTERM: they are not to say that they were told to stop, or nobody would start again."""
    if rank == 1:
        just_before("start-up", 1, happens(notes, lambda: os.kill(os.getpid(), signal.SIGKILL)))
    else:
        just_before("start-up", 1, lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGTERM)))


def others_are_stuck(notes: Path, rank: int) -> None:
    """Failures without a broken connection: a GPU's collective operation, a file system that does not answer."""
    failure.LEAVES_WITHIN = 1.0
    if rank == 1:
        just_before("data", 3, happens(notes, fails(MemoryError())))
    else:
        just_before("data", 3, lambda: time.sleep(600))


FAULTS: dict[str, tuple[Callable[[Path, int], None], int, str]] = {
    "data": (bad_data, 65, "train.bin"),
    "device": (no_device, 78, "no GPU on this machine"),
    "memory": (at_a_step(MemoryError(), of=1), 78, "not enough memory"),
    "bug": (at_a_step(ValueError("of rank 1"), of=1), 70, "ValueError: of rank 1"),
    "disk": (at_a_step(OSError(errno.ENOSPC, "full", "metrics.jsonl"), of=0), 74, "the disk is full"),
    "killed": (killed, 70, "another process of this run has ended"),
    "stuck": (others_are_stuck, 78, "not enough memory"),
}


if LONG:
    FAULTS["killed while starting"] = (killed_while_starting, 70, "")
NO_RUN_YET = ("data", "device", "killed while starting")


def unwatched(arrange: Callable[[Path, int], None]) -> Callable[[Path, int], None]:
    """The control: a rank knows of the others only what its connections tell."""

    def without(notes: Path, rank: int) -> None:
        arrange(notes, rank)
        failure.Watch.settled = lambda self, error: error
        failure.Watch._look = lambda self, store: None

    return without


def end_of(arrange: Callable[[Path, int], None], data: Path, notes: Path, *, size: int, seconds: float = 60) -> dict:
    """Train until it happens: codes of the ranks (None: one runs that many seconds later), what status.json says, the seconds it took."""
    notes.mkdir()

    def work(rank: int) -> int:
        arrange(notes, rank)
        try:
            with Status(notes / "run") as status:
                loop.pretrain(CONFIG, data, out=notes / "run", device="cpu", quiet=True, status=status)
        except Exception as error:
            return (as_known(error) or ElectraError()).exit_code
        return 0

    processes = start_ranks(size, work)
    wait_until((notes / "began").exists)
    try:
        codes: list[int] | None = wait_for(processes, seconds=seconds)
    except AssertionError:
        codes = None
    status = notes / "run" / "status.json"
    return {
        "codes": codes,
        "status": json.loads(status.read_text()) if status.exists() else {},
        "seconds": time.time() - (notes / "began").stat().st_mtime,
    }


def test_all_end_with_its_code(data: Path, tmp_path: Path) -> None:
    times = []
    for size in (2, 4) if LONG else (2,):
        for name, (arrange, code, cause) in FAULTS.items():
            found = end_of(arrange, data, tmp_path / f"{name}-{size}", size=size)
            expected = [code] * size if not name.startswith("killed") else [code, -signal.SIGKILL, *[code] * (size - 2)]
            assert found["codes"] == expected, (name, found)
            if name in NO_RUN_YET:
                assert not found["status"]
            else:
                assert found["status"]["exit_code"] == code and cause in found["status"]["message"], (name, found)
            times.append(found["seconds"])
    assert max(times) < LIMIT
    control = {
        name: end_of(unwatched(FAULTS[name][0]), data, tmp_path / f"control-{name}", size=2, seconds=seconds)
        for name, seconds in (("memory", 60), ("stuck", 5))
    }
    control_hung = sum(found["codes"] is None for found in control.values())
    assert control_hung == 1 and [78, 78] not in [found["codes"] for found in control.values()], control
    report(
        "failing_rank",
        faults=len(times),
        p50_s=sorted(times)[len(times) // 2],
        p100_s=max(times),
        control_hung=control_hung,
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["memory", *(["settings"] if LONG else [])])
def test_under_torchrun_and_a_supervisor(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], fault: str, untuned: None
) -> None:
    """torchrun ends with code 1 and says nothing of why; our launcher does, and what would fail again is not started again."""
    out, began = tmp_path / "run", time.monotonic()
    code = supervise(launch(fault, words(CONFIG, data, out, "--quiet")), out, restarts=2, pause=0.1)
    took, said = round(time.monotonic() - began, 1), capfd.readouterr().err
    assert code == 78
    if fault == "memory":
        assert "electra: not enough memory" in said
        assert known_by_all(out)["starts"] == 1
    else:
        assert "config.json: is not on this machine" in said
    report("failing_rank_torchrun", fault=fault, exit_code=code, seconds=took, **(untold(tmp_path) if LONG else {}))


def untold(tmp_path: Path) -> dict[str, int]:
    """The control: a rank that ends with the same code and tells nobody. All that torchrun says is 1, which means 70, so it is started again and again."""
    program, starts = tmp_path / "program.py", tmp_path / "starts"
    program.write_text(
        "import os, sys\n"
        f"if os.environ['RANK'] == '0':\n    open({str(starts)!r}, 'a').write('x')\n"
        "sys.exit(78 if os.environ['RANK'] == '1' else 0)\n"
    )
    command = [sys.executable, "-m", TORCHRUN, *TWO_HERE, str(program)]
    code = supervise(command, tmp_path / "untold", restarts=2, pause=0.1)
    assert (code, starts.read_text()) == (70, "xxx")
    return {"control_exit_code": code, "control_starts": 3}


def known_by_all(run: Path) -> dict[str, Any]:
    """The status, in which rank 0 wrote what rank 1 failed of."""
    status: dict[str, Any] = json.loads((run / "status.json").read_text())
    assert (status["exit_code"], status["state"]) == (78, "failed")
    assert status["message"].startswith("rank 1 of 2 on ") and "not enough memory" in status["message"]
    return status


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="two torchruns: `make reliability`")
def test_two_machines(data: Path, tmp_path: Path, untuned: None) -> None:
    """Two launchers that know of each other by an address alone: an error on one machine ends the processes of the other."""
    codes = {}
    for fault in ("memory", UNWATCHED):
        out, where = tmp_path / fault, ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=1"]
        where.append(f"--rdzv-endpoint=127.0.0.1:{free_port()}")
        command, began = launch(fault, words(CONFIG, data, out), by=TORCHRUN, where=where), time.monotonic()
        machines = [subprocess.Popen(command) for _ in range(2)]
        ends = [machine.wait(timeout=300) for machine in machines]
        codes[fault] = json.loads((out / "status.json").read_text())["exit_code"]
        if fault == "memory":
            assert ends == [1, 1] and known_by_all(out)
            seconds = round(time.monotonic() - began, 1)
    report(
        "failing_rank_two_machines",
        exit_code=78,
        seconds=seconds,
        control_exit_code_where_no_rank_tells=codes[UNWATCHED],
    )
    assert codes[UNWATCHED] != 78


def test_an_error_of_all_is_reported_by_one(data: Path, tmp_path: Path) -> None:
    """An error that each rank meets by itself, such as a device that is not there: two ranks, one sentence, the code of both."""
    told = tmp_path / "told"

    def work(rank: int) -> int:
        loop.choose_device = fails(ConfigError("no GPU on these machines"))
        try:
            loop.pretrain(CONFIG, data, out=tmp_path / "run", device="cpu", quiet=True)
        except ElectraError as error:
            assert str(error) == "no GPU on these machines"
            with told.open("a") as file:
                file.write(f"{error.reported} ")
            return error.exit_code
        return 0

    assert wait_for(start_ranks(2, work)) == [78, 78]
    assert sorted(told.read_text().split()) == ["False", "True"]


def test_one_is_stopped_while_the_other_connects_to_it() -> None:
    """A connection that nothing interrupts: it does not wait there until it counts as hanging."""

    def stops(*_: object, **__: object) -> None:
        raise Interrupted("SIGTERM: stopped.")

    def work(rank: int) -> None:
        if rank == 1:
            torch.distributed.init_process_group = stops  # type: ignore[assignment]
        with world.joined(lambda: torch.device("cpu")):
            pass

    began = time.monotonic()
    assert wait_for(start_ranks(2, work)) == [75, 75]
    assert time.monotonic() - began < LIMIT
