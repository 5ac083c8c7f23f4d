"""What passes between a worker and its parent arrives whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from electra_trainer.data import workers

SIZE = 1_000_000  # many times what a pipe holds


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_is_interrupted_arrives_whole(unbuffered: str) -> None:
    """A stopped and continued process writes a part only; PYTHONUNBUFFERED takes away what would write the rest."""
    code = f"from electra_trainer.data.workers import serve; serve(lambda _: lambda request: request * {SIZE})"
    environment = {
        **os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONUNBUFFERED": unbuffered,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        workers._write(child.stdin, b"+", b"setup")
        workers._write(child.stdin, b"+", b"x")
        kind = child.stdout.read(1)  # it is writing now, and soon waits for us
        time.sleep(0.3)
        child.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        child.send_signal(signal.SIGCONT)
        time.sleep(0.1)
        child.stdin.close()  # it ends when it has written all it will
        rest = child.stdout.read()
    assert kind == b"+"
    assert len(rest) == 8 + SIZE
