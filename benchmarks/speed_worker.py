"""One system of benchmarks/speed.py in a process of its own: reads a request a line, answers a line of JSON, sleeps between.

The first request sets it up, the others ask for a turn of training steps. Standard output carries the answers and nothing
else: whatever a library prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.forecast import matrix_rate
from benchmarks.synthetic import made_up_feed
from electra_trainer.data.store import Store
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import read
from electra_trainer.train.device import choose_precision
from electra_trainer.train.step import Feed
from electra_trainer.train.timing import DTYPES, Trial, timed


class System(Protocol):
    """What can be timed."""

    def step(self) -> None:
        """One whole training step."""


def build(request: dict[str, Any], device: torch.device, precision: str) -> System:
    """The system that the request describes, on its rows."""
    config, compiled = read(Config, request["config"], where="request"), bool(request["compiled"])
    if request["task"] == "finetune":
        from benchmarks.finetune import Ours, Theirs, made_up

        model, batch = config.model, config.batch.size
        text = made_up(batch, vocab_size=model.vocab_size)
        if request["peer"]:
            return Theirs(
                model,
                text,
                batch=batch,
                device=device,
                precision=precision,
                compiled=compiled,
                longest=request["longest"],
            )
        return Ours(model, text, batch=batch, device=device, precision=precision)
    if request["data"] is None:
        feed = made_up_feed(config, device=device, precision=precision)
    else:
        feed = Feed.of(config, Store.open(Path(request["data"])), device=device, precision=precision)
    if request["peer"]:
        from benchmarks.peers import Pretraining

        return Pretraining(config, feed, precision=precision, compiled=compiled, tuned=request["by_hand"])
    return Trial(config, feed)


class Worker:
    """A system that has been set up, and its clock."""

    def __init__(self, request: dict[str, Any]) -> None:
        torch.set_num_threads(request["threads"])
        self.device = torch.device(request["device"])
        self.precision = choose_precision(request["precision"], self.device)
        self.burst: int = request["burst"]
        self.rests: bool = request["rests"]
        self.system = build(request, self.device, self.precision)
        for _ in range(request["warmup"]):
            timed(self._burst, self.device)
        self._rest()

    def turn(self, seconds: float, bursts: int) -> dict[str, Any]:
        """Bursts of steps until `seconds` have passed, at least `bursts`: seconds a step in each, and the peak memory so far."""
        timed(self._burst, self.device)  # wakes up, takes its memory again; not counted, for any system
        times: list[float] = []
        while len(times) < bursts or sum(times) < seconds:
            times.append(timed(self._burst, self.device))
        answer = {"seconds": [value / self.burst for value in times], "peak_memory_bytes": self._peak()}
        self._rest()
        return answer

    def _burst(self) -> None:
        for _ in range(self.burst):
            self.system.step()

    def _peak(self) -> int:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def _rest(self) -> None:
        """Give back what the allocator holds, so that all systems fit beside one another."""
        if not self.rests:
            return
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            ctypes.CDLL(None).malloc_trim(0)


def matrix_rates(device: str, threads: int) -> dict[str, float]:
    """Operations per second by precision."""
    torch.set_num_threads(threads)
    return {name: matrix_rate(torch.device(device), dtype, limit=0.3) for name, dtype in DTYPES.items()}


class Desk:
    """Answers requests; the system that the first of them sets up stays."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is asked for; where it fails, `error` in words."""
        try:
            if request["kind"] == "setup":
                self._worker = Worker(request)
                return {"precision": self._worker.precision}
            if request["kind"] == "matrix":
                return dict(matrix_rates(request["device"], request["threads"]))
            assert self._worker is not None
            return self._worker.turn(request["seconds"], request["bursts"])
        except Exception as error:
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"}


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    desk = Desk()
    for line in sys.stdin:
        answers.write(json.dumps(desk.answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
