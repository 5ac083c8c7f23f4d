"""Timing on this machine: training steps of a throw-away run, and a clock that waits for the device."""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from electra_trainer.data.store import Store
from electra_trainer.objectives import build
from electra_trainer.ranks import world
from electra_trainer.settings.config import Config
from electra_trainer.train import optim, plan
from electra_trainer.train.fast_step import FastStep
from electra_trainer.train.step import EVALUATION_ROWS, Feed, evaluate

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, until the device is done with it."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Trial:
    """A throw-away run: networks, optimizer, masking and step as a run has them. Weights are new, and nothing is
    saved.
    """

    def __init__(self, config: Config, feed: Feed) -> None:
        self.feed = feed
        self.objective = build(config).to(feed.device)
        self.optimizer = optim.build_optimizer(self.objective, config.optimizer, precision=feed.precision)
        self._phases = optim.Phases(config, self.objective)
        self.fast = FastStep(self.optimizer, feed)
        self.begin_at(0)

    def begin_at(self, step: int) -> None:
        """Do the steps from `step` on, all of them with the part of the objective that `step` trains."""
        self._step, self._part = step, self._phases.at(step)

    def step(self) -> None:
        """One whole training step."""
        self.fast.step(self._part, self._step)
        self._step += 1

    def seconds_per_step(self, *, least: int, most: int, limit: float) -> float:
        """Median seconds of the next steps: at least `least`, then until `limit` seconds have passed or `most` are
        done.
        """
        times: list[float] = []
        while world.any_rank(len(times) < least or (len(times) < most and sum(times) < limit)):
            times.append(timed(self.step, self.feed.device))
        return statistics.median(times)


def measure_time(
    config: Config, store: Store, *, device: torch.device, precision: str, limit: float = 6.0
) -> plan.Timing:
    """Time a few steps of a throw-away copy of the run: at least 3, then until `limit` seconds have passed.

    The stages of two-stage training cost differently: each is timed, and a step is their mean by their shares of the
    steps.
    """
    feed = Feed.of(config, store, device=device, precision=precision)
    trial, turn = Trial(config, feed), config.first_stage_steps
    second = 1 - turn / config.schedule.steps
    step = 0.0
    shares = {0: 1 - second, turn: second}  # by the first step of each stage; joint training has the second alone
    with trial.fast:
        for first, share in shares.items():
            trial.begin_at(first)
            trial.step()  # warms up
            step += share * trial.seconds_per_step(least=3, most=1 << 30, limit=limit * share)
    rows = min(config.evaluation.rows, len(feed.valid))
    few = replace(feed, valid=feed.valid[: min(rows, 2 * EVALUATION_ROWS)])
    if not rows:
        return plan.Timing(step=step, evaluation=0.0)
    assert len(few.fakes_BT)  # made once a run, and not while the clock runs
    seconds = timed(lambda: evaluate(trial.objective, few), device)
    return plan.Timing(step=step, evaluation=seconds * rows / len(few.valid))


def activation_bytes(precision: str, device: torch.device) -> int:
    """Bytes of an activation on a GPU; 0 on a CPU: what estimates of memory take."""
    return DTYPES[precision].itemsize if device.type == "cuda" else 0


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        table = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(table["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
