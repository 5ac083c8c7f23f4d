"""A killed and a crashing process are started again, and the run ends as if nothing had been; a crash loop ends."""

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch.distributed.run
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve, digest
from tests.reliability.whole_runs import words
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from electra_trainer.cli.main import main
from electra_trainer.cli.pretrain import command_of
from electra_trainer.errors import StorageError
from electra_trainer.runs import launcher, signals
from electra_trainer.runs import restarts as restarts_module
from electra_trainer.runs.restarts import supervise
from electra_trainer.train.loop import pretrain

CONFIG = dataclasses.replace(
    small_config(steps=60, lanes=2, layers=LAYERS), deterministic=True
)  # two processes end with the bits of one


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("supervised") / "whole"
    assert run_ranks(1, lambda _: pretrain(CONFIG, data, out=out, device="cpu", quiet=True) and None) == [0]
    return out


@pytest.fixture(autouse=True)
def not_tuned(untuned: None) -> None:
    """Except in the case that is one process killed."""


def command(data: Path, out: Path, *, processes: int = 1) -> list[str]:
    return command_of(words(CONFIG, data, out, "--quiet")[1:], processes=processes)


def processes_of(out: Path) -> list[int]:
    """Ids of the processes that train into `out`, launchers left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(out).encode() in words and b"electra_trainer.runs.launcher" not in words:
            found.append(int(path.parent.name))
    return sorted(found)


def when_it_trains(out: Path, act: Callable[[list[int]], None]) -> threading.Thread:
    """Do something to the processes of a run once it has logged a few steps."""

    def work() -> None:
        metrics = out / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 8:
            time.sleep(0.01)
        act(processes_of(out))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


FAULTS = {"killed": signal.SIGKILL, "aborted": signal.SIGABRT}
CASES = [("killed", 1), ("killed", 2)] + [("aborted", 1), ("aborted", 2)] * LONG


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "processes"), CASES)
def test_it_resumes_by_itself(
    data: Path, whole: Path, tmp_path: Path, fault: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    began: list[float] = []
    starts: list[float] = []
    once = restarts_module._start
    monkeypatch.setattr(restarts_module, "_start", lambda *words: (starts.append(time.monotonic()), once(*words))[1])

    def hurt(found: list[int]) -> None:
        began.append(time.monotonic())
        os.kill(found[-1], FAULTS[fault])

    if (fault, processes) == ("killed", 1):
        monkeypatch.delenv("GLIBC_TUNABLES")
    thread = when_it_trains(out, hurt)
    code = supervise(command(data, out, processes=processes), out, restarts=3, pause=0.1)
    thread.join()
    assert code == 0
    status = json.loads((out / "status.json").read_text())
    assert status["state"] == "done" and status["exit_code"] == 0 and status["starts"] >= 2
    assert not processes_of(out)
    identical = digest(out) == digest(whole) and curve(out) == curve(whole)
    control = unsupervised(data, tmp_path / "control", fault) if LONG or fault == "killed" else {}
    seconds = round(starts[1] - began[0], 1)
    report(
        "supervisor",
        fault=fault,
        processes=processes,
        identical=identical,
        seconds_to_the_next_start=seconds,
        **control,
    )
    assert identical
    assert not control or control["control_steps_of_60"] < 60


def unsupervised(data: Path, out: Path, fault: str) -> dict[str, Any]:
    """One process that nobody watches: the steps that it has done."""
    with subprocess.Popen(command(data, out)) as process:
        when_it_trains(out, lambda found: os.kill(found[-1], FAULTS[fault])).join()
        process.wait(60)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {"control_steps_of_60": max(steps)}


def test_a_signal_before_anything_began(tmp_path: Path) -> None:
    """A launcher that is still loading dies of it: nothing was begun, and the code is that of a stop."""
    mark = tmp_path / "loading"
    slow = script(tmp_path, f"import time\nopen({str(mark)!r}, 'w').close()\ntime.sleep(600)")

    def act() -> None:
        while not mark.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    assert supervise(slow, tmp_path / "run", restarts=5, pause=0.01) == 75
    thread.join()


@pytest.mark.parametrize(
    ("ends", "code"), [((75, 78), 78), ((66, 70), 66), ((75, 75), 75), ((-9, 75), 70), ((75, -9), 70)], ids=str
)
def test_the_launcher_ends_with_the_code_of_the_rank_that_failed_first(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int, int], code: int
) -> None:
    """torchrun itself ends with 1 whatever happened. A stop follows from another rank's error, not the other way."""
    failures = {rank: SimpleNamespace(exitcode=number, timestamp=rank) for rank, number in reversed([*enumerate(ends)])}

    def fails() -> None:
        raise ChildFailedError("rank.py", failures)  # type: ignore[arg-type]

    monkeypatch.setattr(ChildFailedError, "format_msg", lambda self: "")
    monkeypatch.setattr(torch.distributed.run, "main", fails)
    monkeypatch.setenv(signals.STARTED_BY, "")
    monkeypatch.setattr(logging, "disable", lambda level: None)
    assert launcher.torchrun() == code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SignalException("", signal.SIGTERM), 75, "SIGTERM: the processes have ended"),
        (ValueError(" no such port\n"), 70, "torchrun cannot start the processes: no such port"),
        (ValueError(), 70, "torchrun cannot start the processes: ValueError"),
        (None, 0, None),
    ],
    ids=str,
)
def test_the_launcher_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception | None, code: int, said: str
) -> None:
    monkeypatch.setattr(torch.distributed.run, "main", Mock(side_effect=error))
    monkeypatch.setenv(signals.STARTED_BY, "")
    monkeypatch.setattr(logging, "disable", lambda level: None)
    assert launcher.torchrun() == code
    assert capfd.readouterr().err == (f"electra: {said}\n" if said else "")


def script(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "program.py").write_text(text)
    return [sys.executable, str(tmp_path / "program.py")]


@pytest.mark.parametrize("code", [65, 66, 70, 75, 76, 78])
def test_what_would_come_again_is_not_repeated(tmp_path: Path, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    """A bug is started again, but a crash loop ends."""
    began = script(tmp_path, f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\nraise SystemExit({code})")
    assert supervise(began, tmp_path / "run", restarts=50, pause=0.01) == code
    assert (tmp_path / "starts").read_text() == ("xxx" if code == 70 else "x")
    assert ("giving up after 3 starts in a row without a new checkpoint" in capfd.readouterr().err) == (code == 70)


def test_each_start_with_a_new_checkpoint_counts_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A run that gets on is started again as often as asked, each time after the first pause."""
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    text = f"import pathlib\nfolder = pathlib.Path({str(folder)!r})\n(folder / f'step-{{len([*folder.iterdir()]) + 1:08d}}').mkdir()"
    assert supervise(script(tmp_path, f"{text}\nraise SystemExit(70)"), tmp_path / "run", restarts=5, pause=0.01) == 70
    lines = [f"ended with code 70; starting again from step {n} in 0 s ({6 - n} restarts left)" for n in range(1, 6)]
    expected = [*lines, "ended with code 70. The same command resumes at step 6."]
    assert capfd.readouterr().err.splitlines() == [f"electra: {line}" for line in expected]


STATUS = "import json, os, pathlib; pathlib.Path({out!r}, 'status.json').write_text(json.dumps({state!r} | {{'launch': os.environ['ELECTRA_LAUNCH']}}))"
"""A run that leaves its status."""


@pytest.mark.parametrize(
    ("state", "end", "code", "message"),
    [
        ({"exit_code": 75}, "sys.exit(75)", 75, None),
        ({"exit_code": 0}, "sys.exit(75)", 0, None),
        ({"state": "running"}, "sys.exit(75)", 70, None),
        (None, "sys.exit(75)", 75, None),
        (None, "sys.exit(1)", 70, "ended with code 1"),
        (None, "sys.exit(2)", 70, "ended with code 2"),
        (None, "sys.exit(127)", 70, "ended with code 127"),
        (None, "os.kill(os.getpid(), signal.SIGKILL)", 70, "killed by SIGKILL"),
        (None, "sys.exit(0)", 0, "ended with code 0"),
    ],
)
def test_the_run_knows_whether_it_saved(
    tmp_path: Path, state: dict[str, object] | None, end: str, code: int, message: str | None
) -> None:
    """A launcher that was signalled ends with 75, also where its processes were killed while they saved.

    A rank that is killed while it loads, or a launcher, ends with a code that says nothing: none but those of the list.
    """
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").touch(), (out / "environment.json").touch()
    text = f"import os, signal, sys\n{STATUS.format(out=str(out), state=state) if state else ''}\n{end}"
    assert supervise(script(tmp_path, text), out, restarts=0) == code
    if message:
        status = json.loads((out / "status.json").read_text())
        found = (status["state"], status["exit_code"], status["starts"], status["message"])
        assert found == ("failed" if code else "done", code, 1, message)


def test_a_disk_that_does_not_answer_when_the_run_has_failed_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, real, calls = tmp_path / "starts", restarts_module.checkpoint.numbered, iter(range(100))

    def ill(folder: Path) -> Any:
        if next(calls) == 1:
            raise StorageError(f"{folder}: cannot be read.")
        return real(folder)

    monkeypatch.setattr(restarts_module.checkpoint, "numbered", ill)
    text = f"import sys\nopen({str(began)!r}, 'a').write('x')\nsys.exit(74 if len(open({str(began)!r}).read()) == 1 else 0)"
    assert supervise(script(tmp_path, text), tmp_path / "run", restarts=5, pause=0.01) == 0
    assert began.read_text() == "xx" and next(calls) > 2


def test_a_disk_that_does_not_take_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "environment.json"):
        (tmp_path / name).touch()
    monkeypatch.setattr(restarts_module.progress, "put_status", Mock(side_effect=StorageError("the disk is full.")))
    assert supervise(script(tmp_path, "raise SystemExit(65)"), tmp_path, restarts=1) == 65
    assert capfd.readouterr().err == "electra: the disk is full.\n"


@pytest.mark.parametrize(
    ("rows", "more", "code", "said"),
    [
        (True, "4 --no-deterministic", 78, "lanes = 2: 4 processes need as many lanes. Set --batch.lanes 4."),
        (True, "3", 78, "--deterministic with 3 processes and 2 lanes"),
        (False, "2", 66, "no-data"),
    ],
)
def test_errors_of_all_are_reported_before_any_starts(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], rows: bool, more: str, code: int, said: str
) -> None:
    """One sentence, at once, and no page of torchrun's."""
    typed = command(data if rows else tmp_path / "no-data", tmp_path / "run")[3:]
    began = time.monotonic()
    assert main([*typed, "--restarts", "1", "--processes", *more.split()]) == code
    assert time.monotonic() - began < 10
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("electra: ") and said in line


@pytest.mark.slow
def test_torchrun_prints_no_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where its process fails or is killed; the process said why itself."""
    (tmp_path / "rank.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    launcher = ["-m", "electra_trainer.runs.launcher", "--standalone", "--nproc-per-node=2", str(tmp_path / "rank.py")]
    assert supervise([sys.executable, *launcher], tmp_path / "run", restarts=0) == 70
    said = capfd.readouterr().err.splitlines()
    assert any(line == "electra: the process of rank 0 was killed by SIGKILL" for line in said)
    assert len(said) <= 3 and all(line.startswith("electra: ") for line in said), said


def test_its_own_flags_are_left_out() -> None:
    typed = ["DATA", "--restarts", "5", "--out", "RUN", "--processes", "2", "--quiet"]
    assert command_of(typed, processes=1)[-4:] == ["DATA", "--out", "RUN", "--quiet"]
    assert "--restarts" not in command_of(typed, processes=1) and "--processes" not in command_of(typed, processes=2)
