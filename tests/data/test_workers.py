"""Messages between a worker and its parent arrive whole."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

SIZE = 1_000_000  # many times what a pipe holds


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_is_interrupted_arrives_whole(unbuffered: str) -> None:
    """A stopped and continued process writes a part only; PYTHONUNBUFFERED takes away what would write the rest."""
    ours, theirs = Pipe()
    code = (
        "from electra_trainer.files.processes import serve; from electra_trainer.files.processes import connect; "
        f"serve(connect({theirs.fileno()}), lambda _: lambda request: request * {SIZE})"
    )
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONUNBUFFERED": unbuffered,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL
    ) as child:
        theirs.close()
        ours.send_bytes(b"setup")
        ours.send_bytes(b"x")
        assert ours.poll(60)  # it is writing now, and soon waits for us
        time.sleep(0.3)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        child.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        answer = ours.recv_bytes()
        ours.close()  # which ends it
    assert answer == b"+" + b"x" * SIZE
