"""RUN/status.json says what is: who trains there, how the latest start ended, and nothing of a start that found another at work."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.moments import just_before
from tests.reliability.ranks import run_ranks, start_ranks, wait_for, wait_until

from electra_trainer.errors import ElectraError
from electra_trainer.runs.progress import Status
from electra_trainer.runs.restarts import supervise
from electra_trainer.train import loop

CONFIG = small_config(steps=8, layers=1)


def status_of(out: Path) -> dict:
    return json.loads((out / "status.json").read_text())


def trained(data: Path, out: Path, *, steps: int = 8) -> int:
    try:
        with Status(out) as status:
            loop.pretrain(small_config(steps=steps, layers=1), data, out=out, device="cpu", quiet=True, status=status)
    except ElectraError as error:
        return error.exit_code
    return 0


def held(data: Path, out: Path) -> int:
    """A run that pauses before its fourth step; its process."""

    def work(_: int) -> int:
        just_before("step", 4, lambda: (out / "held").touch() or time.sleep(60))
        return trained(data, out)

    (process,) = start_ranks(1, work)
    wait_until((out / "held").exists)
    return process


def test_while_it_trains_and_after_it_was_killed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = held(data, out)
    running = status_of(out)
    assert (running["state"], running["pid"], running["host"]) == ("running", process, os.uname().nodename)
    assert "exit_code" not in running
    os.kill(process, signal.SIGKILL)
    assert wait_for([process]) == [-signal.SIGKILL]
    assert status_of(out) == running  # of a process that is gone: killed
    assert run_ranks(1, lambda _: trained(data, out)) == [0]
    assert (status_of(out)["state"], status_of(out)["exit_code"]) == ("done", 0)


@pytest.mark.parametrize("supervisor", [False, True])
def test_a_second_start_leaves_the_file_to_the_first(data: Path, tmp_path: Path, supervisor: bool) -> None:
    out = tmp_path / "run"
    process = held(data, out)
    before = (out / "status.json").read_text()
    if supervisor:
        (tmp_path / "second.py").write_text("raise SystemExit(78)")
        command = [sys.executable, str(tmp_path / "second.py")]
        assert supervise(command, out, restarts=3) == 78
    else:
        assert run_ranks(1, lambda _: trained(data, out)) == [78]
    assert (out / "status.json").read_text() == before
    os.kill(process, signal.SIGKILL)
    wait_for([process])
    assert run_ranks(1, lambda _: trained(data, out, steps=9)) == [78]  # nobody else trains there now
    assert status_of(out)["state"] == "failed"


def test_told_to_stop_in_the_pause(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run_ranks(1, lambda _: trained(data, out)) == [0]
    (tmp_path / "crashes.py").write_text(f"open({str(tmp_path / 'crashed')!r}, 'w')\nraise SystemExit(70)")

    def act() -> None:
        wait_until(lambda: (tmp_path / "crashed").exists() and status_of(out)["state"] == "failed")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    command = [sys.executable, str(tmp_path / "crashes.py")]
    assert supervise(command, out, restarts=3, pause=60) == 75
    thread.join()
    status = status_of(out)
    assert (status["state"], status["exit_code"], status["starts"]) == ("stopped", 75, 1)
    assert status["message"].startswith("SIGTERM: stopped before the next start")


def test_an_earlier_end_is_not_taken_for_this_one(data: Path, tmp_path: Path) -> None:
    """A start that is killed before it says anything, after one that failed with the code that this one gets."""
    out = tmp_path / "run"
    assert run_ranks(1, lambda _: trained(data, out)) == [0]
    (out / "status.json").write_text(
        json.dumps({"state": "failed", "exit_code": 70, "message": "before", "launch": "x"})
    )
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)")
    assert supervise([sys.executable, str(tmp_path / "killed.py")], out, restarts=0) == 70
    assert status_of(out)["message"] == "killed by SIGKILL"


def test_only_where_the_end_is_kept_too(data: Path, tmp_path: Path) -> None:
    """Calls of `pretrain` write no such file, which would be `running` for ever."""
    loop.pretrain(CONFIG, data, out=tmp_path / "run", device="cpu", quiet=True)
    assert not (tmp_path / "run" / "status.json").exists()
