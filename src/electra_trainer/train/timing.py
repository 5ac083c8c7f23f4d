"""Timing on this machine: training steps of a throw-away run, products and copies, and a clock that waits for the
device.

A forecast of a preset on this machine has its speed, the duration of the paper's run, and what limits it. A step is
timed as a run computes it, with as many of its rows as fit the time and the memory; with fewer rows than a whole step,
the time is scaled by the rows, which is an upper bound because the optimizer's update does not grow with them.

The measured step is compared with two limits: its matrix products at the rate of a large square product, and the bytes
that it must move (cost/parameters.py: step_bytes) at the rate of a large copy.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from electra_trainer.cost import flops, parameters
from electra_trainer.data import masking
from electra_trainer.data.masking import MaskTokens
from electra_trainer.data.store import Store
from electra_trainer.objectives import Objective, build
from electra_trainer.ranks import sharding, world
from electra_trainer.settings.config import Config, changed
from electra_trainer.train import optim, plan
from electra_trainer.train.device import choose_precision
from electra_trainer.train.graph import forget, in_words, news, train_step
from electra_trainer.train.step import EVALUATION_ROWS, Feed, evaluate, on_standard_fakes

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS_FROM = 5
"""The first id that is a word; the ids before it are special tokens."""
_FLATTENING = 2.7
"""Zipf and Mandelbrot's law: the word of rank r has a frequency of 1 / (r + 2.7), about as in English."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_MATRIX = {"cpu": 2048, "cuda": 8192}
"""Side of the square matrices, large enough that the product reaches its full rate."""
_COPY = {"cpu": 256 << 20, "cuda": 4 << 30}
"""Bytes of the tensor that is copied, larger than any cache."""


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

    def __init__(self, config: Config, feed: Feed, *, shard: bool = False) -> None:
        self.feed = feed
        self.objective = build(config)
        sharding.place(self.objective, feed.device, precision=feed.precision, shard=shard)
        self.optimizer = optim.build_optimizer(self.objective, config.optimizer, precision=feed.precision)
        self._phases = optim.Phases(config, self.objective)
        self.begin_at(0)

    def begin_at(self, step: int) -> None:
        """Do the steps from `step` on, all of them with the part of the objective that `step` trains."""
        self._step, self._part = step, self._phases.at(step)

    def step(self) -> None:
        """One whole training step."""
        train_step(self._part, self.optimizer, self.feed, step=self._step)
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
    config: Config, store: Store, *, device: torch.device, precision: str, limit: float = 6.0, shard: bool = False
) -> plan.Timing:
    """Time a few steps of a throw-away copy of the run: at least 3, then until `limit` seconds have passed.

    The stages of two-stage training cost differently: each is timed, and a step is their mean by their shares of the
    steps.
    """
    feed = Feed.of(config, store, device=device, precision=precision)
    trial, turn = Trial(config, feed, shard=shard), config.first_stage_steps
    second = 1 - turn / config.schedule.steps
    step = 0.0
    shares = {0: 1 - second, turn: second}  # by the first step of each stage; joint training has the second alone
    for first, share in shares.items():
        trial.begin_at(first)
        trial.step()  # warms up
        step += share * trial.seconds_per_step(least=3, most=1 << 30, limit=limit * share)
    forget()
    return plan.Timing(step=step, evaluation=_evaluation_seconds(trial.objective, feed))


def _evaluation_seconds(objective: Objective, feed: Feed) -> float:
    """Seconds of an evaluation, from a few rows of each part; standard fakes are made once a run, and that is not
    counted.
    """
    rows = min(feed.config.evaluation.rows, len(feed.valid))
    few = min(rows, 2 * EVALUATION_ROWS)
    if not few:
        return 0.0
    shown = replace(feed, rows=feed.rows[:few], valid=feed.valid[:few])
    few = len(shown.fakes_BT)  # made before the clock starts
    objective.eval()
    both = timed(lambda: evaluate(objective, shown), feed.device)
    standard = timed(lambda: on_standard_fakes(objective, shown), feed.device)
    return (max(both - standard, 0.0) * rows + standard * min(masking.FAKE_ROWS, len(feed.valid))) / few


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device and its measured limits."""

    device: torch.device
    precision: str
    """Precision that `auto` chooses here: fp32 or bf16."""
    matrix_flops: dict[str, float]
    """Operations per second of a large matrix product, by precision."""
    copy_bytes: float
    """Bytes per second, read and written, of a large copy."""
    free_bytes: int | None
    """Free memory; None where the system does not say."""


def activation_bytes(precision: str, device: torch.device) -> int:
    """Bytes of an activation on a GPU; 0 on a CPU: what estimates of memory take."""
    return DTYPES[precision].itemsize if device.type == "cuda" else 0


def measure_machine(device: torch.device) -> Machine:
    """About three seconds of products and copies; the best of several counts, since other work only slows them."""
    free = free_bytes(device)  # first: on a GPU, what the products below needed stays taken
    precision = choose_precision("auto", device)
    rates = {name: matrix_rate(device, dtype) for name, dtype in DTYPES.items()}
    copied = copy_rate(device)
    return Machine(device=device, precision=precision, matrix_flops=rates, copy_bytes=copied, free_bytes=free)


def matrix_rate(device: torch.device, dtype: torch.dtype, *, limit: float = 0.7) -> float:
    """Operations per second of a square matrix product, the best of at least 3, then of `limit` seconds."""
    side = _MATRIX[device.type]
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2.0 * side**3 / _best(lambda: left @ right, device, limit)


def copy_rate(device: torch.device, *, limit: float = 0.5) -> float:
    """Bytes per second of a copy within the device's memory, reading and writing both counted."""
    source = torch.ones(_COPY[device.type], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2.0 * source.numel() / _best(lambda: target.copy_(source), device, limit)


def _best(work: Callable[[], object], device: torch.device, limit: float) -> float:
    times = [timed(work, device) for _ in range(4)][1:]  # the first warms up
    while sum(times) < limit:
        times.append(timed(work, device))
    return min(times)


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device, a container's own limit included; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        table = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = 1024 * int(table["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    group = Path("/sys/fs/cgroup")
    try:
        return min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # not in a container, or one without a limit ("max")
        return free


def made_up_feed(config: Config, *, device: torch.device, precision: str) -> Feed:
    """A feed of four batches of made-up rows, the same ones for the same config."""
    rows = made_up_rows(4 * config.batch.size, config.batch.sequence_length, vocab_size=config.model.vocab_size)
    ids_V = np.arange(config.model.vocab_size)
    mask = MaskTokens(
        masking=config.drawn,
        vocab_size=len(ids_V),
        mask_id=MASK,
        never=(PAD, CLS, SEP, MASK),
        counts_V=np.bincount(rows.reshape(-1), minlength=len(ids_V)),
        begins_V=ids_V % 4 > 0,
    )
    return Feed(
        config=config, rows=rows, valid=rows, mask=mask, pad=PAD, cls=CLS, sep=SEP, device=device, precision=precision
    )


def made_up_rows(rows: int, length: int, *, vocab_size: int) -> NDArray[np.int64]:
    """Full rows `[CLS] A [SEP] B [SEP]` of words as frequent as in a text: int64 [rows, length]."""
    words_BT = zipf_words(rows * length, vocab_size=vocab_size).reshape(rows, length)
    words_BT[:, 0], words_BT[:, length // 2], words_BT[:, -1] = CLS, SEP, SEP
    return words_BT


def zipf_words(count: int, *, vocab_size: int, seed: int = 0) -> NDArray[np.int64]:
    """Ids of words, the frequent ones first in the vocabulary: int64 [count]."""
    frequency = 1 / (np.arange(max(1, vocab_size - WORDS_FROM)) + _FLATTENING)
    cumulative = np.cumsum(frequency) / frequency.sum()
    draws = np.random.default_rng(seed).random(count)
    return WORDS_FROM + np.searchsorted(cumulative[:-1], draws, side="right").astype(np.int64)


_FIRST_GUESS = 0.15
"""Share of the matrix rate that a step is expected to reach, to choose how many rows to time."""
_PROCESS_BYTES = 1 << 30
"""Python, its libraries and the allocator's slack, in addition to `memory_bytes`."""
_PASSES = 2.5
"""Steps that fit the time limit, the one that warms up included."""
_MOST_STEPS = 10
"""The most steps that are timed."""
_MOST = 0.5
"""A limit that explains at least this share of the step is its bottleneck."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The expected speed of one preset; seconds are those of one whole optimizer step."""

    preset: str
    seconds_per_step: float
    tokens_per_step: int
    run_steps: int
    """Steps of the preset's published run."""
    rows: int
    """Rows of a whole step."""
    rows_timed: int
    """Rows of the step that was timed."""
    arithmetic_seconds: float
    """Its matrix products at the measured matrix rate."""
    memory_seconds: float
    """The bytes that it must move at the measured rate of a copy."""
    step: str = ""
    """On a GPU: what a step is made of, and what it does without."""

    @property
    def tokens_per_second(self) -> float:
        """Positions read in a second."""
        return self.tokens_per_step / self.seconds_per_step

    @property
    def run_seconds(self) -> float:
        """Seconds of the published run."""
        return self.run_steps * self.seconds_per_step

    @property
    def extrapolated(self) -> bool:
        """Whether a step of fewer rows was timed, so that the time is an upper bound."""
        return self.rows_timed != self.rows

    @property
    def limit(self) -> str:
        """`arithmetic` or `memory` where that alone takes half of the step or more, the larger of both; else
        `overhead`.
        """
        seconds, name = max((self.arithmetic_seconds, "arithmetic"), (self.memory_seconds, "memory"))
        return name if seconds >= _MOST * self.seconds_per_step else "overhead"


def forecast(config: Config, machine: Machine, *, limit: float = 8.0) -> Forecast | str:
    """Time training steps of `config` for about `limit` seconds; if that is not possible, a sentence that says why."""
    rate = machine.matrix_flops[machine.precision]
    whole, gpu = flops.step_flops(config).real, activation_bytes(machine.precision, machine.device)
    rows, free = config.batch.size, machine.free_bytes
    while (
        free is not None and (need := parameters.memory_bytes(with_rows(config, rows), gpu=gpu) + _PROCESS_BYTES) > free
    ):
        if rows == 1:
            return f"needs about {need / 1e9:.0f} GB for one row, {free / 1e9:.0f} GB are free"
        rows //= 2
    a_row = whole / config.batch.size / (_FIRST_GUESS * rate)
    rows = min(rows, int(limit / _PASSES / a_row))
    if not rows:
        return f"a step of one row would take about {a_row:.2g} s"
    try:
        seconds, made_of = _step_seconds(with_rows(config, rows), machine, limit=limit)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if "memory" not in str(error):
            raise
        return f"ran out of memory at {rows} rows"
    return Forecast(
        preset=config.preset,
        seconds_per_step=seconds * config.batch.size / rows,
        tokens_per_step=config.tokens_per_step,
        run_steps=config.schedule.steps,
        rows=config.batch.size,
        rows_timed=rows,
        arithmetic_seconds=whole / rate,
        memory_seconds=parameters.step_bytes(config, width=DTYPES[machine.precision].itemsize) / machine.copy_bytes,
        step=made_of,
    )


def with_rows(config: Config, rows: int) -> Config:
    """The run with `rows` rows a step, in lanes no larger than its own."""
    lanes = -(-rows // config.lane_size)
    while rows % lanes:
        lanes += 1
    return config if rows == config.batch.size else changed(config, batch={"size": rows, "lanes": lanes})


def _step_seconds(config: Config, machine: Machine, *, limit: float) -> tuple[float, str]:
    """Median seconds of a step after warming up, and, on a GPU, what it was made of."""
    trial = Trial(config, made_up_feed(config, device=machine.device, precision=machine.precision))
    for _ in range(3 if machine.device.type == "cuda" else 1):  # a GPU compiles and records
        trial.step()
    made_of = news()
    seconds = trial.seconds_per_step(least=1, most=_MOST_STEPS, limit=limit / 2)
    forget()
    return seconds, in_words(made_of) if made_of else ""
