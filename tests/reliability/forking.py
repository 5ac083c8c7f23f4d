"""Commands and calls, each in a separate child: torch is imported once, time, memory and files are measured.

`Forks()` starts one process that imports what the verbs need and forks a child for each job; a child has a limit of address space,
so that a reader which would fill the machine gets a MemoryError, and is killed when its time is over.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATHS = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "tests" / "pixels")))}
"""Environment in which a process can import the package and its tests from here, with reports' pictures of one point."""
UNTUNED = {**PATHS, "GLIBC_TUNABLES": ""}
"""PATHS for commands that do not start themselves again with another allocator, without what is arranged in them."""
ROOM = 1 << 30
"""Bytes of address space that a child may take beyond what it begins with."""
PATIENCE = float(os.environ.get("ELECTRA_TEST_PATIENCE", "120"))
"""Seconds by the clock after which a child is killed: it hangs. More where the machine does much else."""
_WARM = (
    "torch", "safetensors.torch", "tokenizers", "sklearn.model_selection", "tyro", "typeguard", "jinja2", "electra_trainer.cli.main", "electra_trainer.train.loop", "electra_trainer.pretrained.pretrained",
    "electra_trainer.inspection.report", "electra_trainer.inspection.trackers", "electra_trainer.data.prepare",
    "electra_trainer.finetuning.model_folder", "electra_trainer.finetuning.experiment",
    *(f"electra_trainer.cli.{verb}" for verb in "predict pretrain text_verbs use".split()),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a child."""

    code: int
    """Exit code; minus the signal's number where one ended it."""
    said: str
    """Standard output and standard error."""
    seconds: float
    """Seconds of computing, in it and in its children: what the machine does besides does not count."""
    megabytes: float
    """Largest resident memory."""
    value: Any = None
    """Return value of a call."""


class Forks:
    """The process that forks; use it in a `with`."""

    def __enter__(self) -> Forks:
        environment = {
            **os.environ, **PATHS, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
            "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "COLUMNS": "200",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.forking"],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def command(self, *words: object, folder: Path) -> Outcome:
        """`electra WORDS` with `folder` as the working directory."""
        return self._ask({"words": [str(word) for word in words], "folder": str(folder)})

    def call(self, function: str, *arguments: str, folder: Path) -> Outcome:
        """`module:function` with texts as arguments; it returns what JSON can say."""
        return self._ask({"call": function, "arguments": arguments, "folder": str(folder)})

    def _ask(self, job: dict[str, Any]) -> Outcome:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything under a folder: kind, size, time of the last change. Links are not followed."""
    found = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            status = os.lstat(Path(root, name))
            size = 0 if name in folders else status.st_size
            found[os.path.relpath(Path(root, name), folder)] = (
                status.st_mode,
                size,
                0 if name in folders else status.st_mtime_ns,
            )
    return found


def _child(job: dict[str, Any], said: int, answer: int) -> None:
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.chdir(job["folder"])
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, now + ROOM))
    if "words" in job:
        from electra_trainer.cli.main import main

        os._exit(_flushed(main(job["words"])))
    module, _, name = job["call"].partition(":")
    value = getattr(importlib.import_module(module), name)(*job["arguments"])
    os.write(answer, json.dumps(value).encode())
    os._exit(_flushed(0))


def _flushed(code: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _fork(job: dict[str, Any]) -> dict[str, Any]:
    said, answer = os.memfd_create("said"), os.memfd_create("answer")
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            _child(job, said, answer)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\nTraceback".encode())
            os._exit(99)
    killed = False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        if not killed and time.monotonic() - start > PATIENCE:
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(0.002)
    seconds = usage.ru_utime + usage.ru_stime
    text, value = (os.pread(file, os.fstat(file).st_size, 0) for file in (said, answer))
    os.close(said)
    os.close(answer)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "said": text.decode("utf-8", "replace"),
        "seconds": seconds,
        "megabytes": usage.ru_maxrss / 1024,
        "value": json.loads(value) if value else None,
    }


def _serve(jobs: Sequence[str] | Any) -> None:
    for name in _WARM:
        importlib.import_module(name)
    import torch

    sys.modules["transformers"] = None  # type: ignore[assignment]  # an export would load it, in seconds, to be compared with it
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in jobs:
        answers.write(json.dumps(_fork(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.stdin)
