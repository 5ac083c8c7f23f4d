"""A supervisor and its run, when one of them is stopped or gone: what is being saved is waited for, nothing is left behind."""

import dataclasses
import json
import os
import pty
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.forking import PATHS
from tests.reliability.rank_program import SLOW, launch
from tests.reliability.ranks import start_ranks, wait_for, wait_until
from tests.reliability.runs import lost
from tests.reliability.whole_runs import words

from electra_trainer.cli.main import main
from electra_trainer.runs.restarts import supervise
from electra_trainer.runs.signals import WAITS
from electra_trainer.settings.config import Checkpoint

RUN = """
import os, pathlib, signal, sys, time
from electra_trainer.runs.signals import stop_with_parent
notes, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2])
def stop(number, frame):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    (notes / "saved").write_text(signal.Signals(number).name)
    os._exit(75)
signal.signal(signal.SIGTERM, stop)
stop_with_parent()
while True:
    (notes / "began").touch()
    time.sleep(0.05)
"""
"""Stands for a run: once told to stop it takes its time to save."""


@pytest.fixture(autouse=True)
def terminals_count() -> Iterator[None]:
    """Also where the tests themselves are run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def program(notes: Path, seconds: float) -> list[str]:
    (notes / "program.py").write_text(RUN)
    return [sys.executable, str(notes / "program.py"), str(notes), str(seconds)]


def supervisor(command: list[str], notes: Path) -> int:
    """In a separate process; its id, once the run goes."""
    os.environ["PYTHONPATH"] = PATHS["PYTHONPATH"]
    (process,) = start_ranks(1, lambda _: supervise(command, notes / "run", restarts=3))
    wait_until((notes / "began").exists)
    return process


@pytest.mark.parametrize(("told", "heard", "seconds"), [("SIGTERM", "SIGTERM", 2), ("SIGHUP", "SIGTERM", 0)])
def test_a_save_is_waited_for(tmp_path: Path, told: str, heard: str, seconds: float) -> None:
    """Also where a terminal is closed."""
    process = supervisor(program(tmp_path, seconds), tmp_path)
    os.kill(process, signal.Signals[told])
    assert wait_for([process], seconds=20) == [75]
    assert (tmp_path / "saved").read_text() == heard


def test_the_terminal_is_closed_under_nohup(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = supervisor(program(tmp_path, 0), tmp_path)
        os.kill(process, signal.SIGHUP)
        time.sleep(0.5)
        assert os.waitpid(process, os.WNOHANG) == (0, 0) and not (tmp_path / "saved").exists()
    finally:
        signal.signal(signal.SIGHUP, before)
    os.kill(process, signal.SIGTERM)
    assert wait_for([process], seconds=20) == [75]


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere nobody tells a process that its parent is gone"
)
def test_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Its run is stopped and saves, as nobody would start it again."""
    process = supervisor(program(tmp_path, 0), tmp_path)
    os.kill(process, signal.SIGKILL)
    assert wait_for([process]) == [-signal.SIGKILL]
    wait_until((tmp_path / "saved").exists, seconds=20)


SELDOM = dataclasses.replace(
    small_config(steps=5000, lanes=2, layers=LAYERS), checkpoint=Checkpoint(every=5000, keep=2)
)


def status_of(out: Path) -> dict:
    path = out / "status.json"
    return json.loads(path.read_text()) if path.exists() else {}


def trains(out: Path) -> bool:
    return (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_bytes().count(b"\n") > 4


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, *([2] if LONG else [])])
@pytest.mark.parametrize("how", ["hangup", "killed"])
def test_a_run_is_not_left_alone(data: Path, tmp_path: Path, how: str, processes: int) -> None:
    """A real run on a terminal that goes away, and one whose supervisor is killed: saved, with nobody left that trains."""
    out, more = tmp_path / "run", ["--restarts", "3", *(["--processes", str(processes)] if processes > 1 else [])]
    began, code = on_a_terminal(words(SELDOM, data, out, *more), out, how)
    assert code == (75 if how == "hangup" else -signal.SIGKILL)
    wait_until(lambda: status_of(out).get("state") == "stopped", seconds=60)
    told = {"how": how, "processes": processes, "seconds": round(time.monotonic() - began, 2)}
    code, steps = status_of(out)["exit_code"], lost(out)
    control = {}
    if LONG:
        on_a_terminal(words(SELDOM, data, tmp_path / "alone"), tmp_path / "alone", how)
        control = {"control_steps_that_an_unwatched_run_loses": lost(tmp_path / "alone")}
    report("not_left_alone", **told, exit_code=code, lost_steps=steps, **control)
    assert (code, steps) == (75, 0) and all(control.values())


def on_a_terminal(command: list[str], out: Path, how: str) -> tuple[float, int]:
    """Run it on a terminal that is closed once it trains, or kill what was started there: when that was, and its code."""
    os.environ["PYTHONPATH"] = PATHS["PYTHONPATH"]
    child, terminal = pty.fork()
    if child == 0 and LONG:
        os.execv(sys.executable, [sys.executable, "-m", "electra_trainer", *command])
    if child == 0:  # a copy of this process, which has loaded what the command loads
        os.environ["GLIBC_TUNABLES"] = ""
        code = 1
        try:
            code = main(command)
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    try:
        os.set_blocking(terminal, False)

        def goes() -> bool:
            with suppress(BlockingIOError):
                os.read(terminal, 1 << 16)
            return trains(out)

        wait_until(goes)
        assert status_of(out)["state"] == "running"
        began = time.monotonic()
        if how == "killed":
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(terminal)
    return began, wait_for([child])[0]


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="two saves of 40 s under torchrun: `make reliability`")
@pytest.mark.parametrize("told", ["supervisor", "launcher"])
def test_a_save_that_takes_long(
    data: Path, tmp_path: Path, told: str, untuned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the 30 s that torchrun has for its processes by itself: what happens then is the control."""
    found = slow_save(data, tmp_path / "run", told)
    monkeypatch.setenv(*WAITS, "30")
    control = slow_save(data, tmp_path / "control", told)
    named = {f"control_{name}": figure for name, figure in control.items()}
    report("slow_save", told=told, save_seconds=40, **found, **named)
    assert found["exit_code"] == 75 and found["lost_steps"] == 0 and found["seconds"] > 40
    assert control["exit_code"] != 75 and control["lost_steps"] > 0


def slow_save(data: Path, out: Path, told: str) -> dict[str, float]:
    """Two ranks whose last save takes 40 s: the code, the steps that are in no checkpoint, and the seconds from the signal to the end."""
    command = launch(f"{SLOW}40", words(SELDOM, data, out))
    (process,) = start_ranks(1, lambda _: supervise(command, out, restarts=0))
    wait_until(lambda: trains(out))
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    began = time.monotonic()
    os.kill(process if told == "supervisor" else int(children[0]), signal.SIGTERM)
    (code,) = wait_for([process])
    return {"exit_code": code, "lost_steps": lost(out), "seconds": round(time.monotonic() - began, 1)}
