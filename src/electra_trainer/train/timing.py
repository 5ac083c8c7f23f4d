"""Timing on this machine: training steps of a throw-away run, products and copies, and a clock that waits for the
device.

A forecast of a preset on this machine has its speed, the duration of the paper's run, and what limits it. A step is
timed as a run computes it. If a whole one would take too long or too much memory, two steps of fewer rows are timed:
what grows with the rows is the cost of a row, the rest that of the update, and the whole step follows from both. If
even two rows would take too long, layers are left
out as well, and both costs are scaled: that of a row by the operations, that of the update by the parameters.

The measured step is compared with two limits: its matrix products at the rate of a large square product, and the bytes
that it must move
(cost/parameters.py: step_bytes) at the rate of a large copy.
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
from electra_trainer.data import standard_fakes
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
    return (max(both - standard, 0.0) * rows + standard * min(standard_fakes.ROWS, len(feed.valid))) / few


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
        config=config,
        rows=rows,
        valid=rows[:0],
        mask=mask,
        pad=PAD,
        cls=CLS,
        sep=SEP,
        device=device,
        precision=precision,
    )


def made_up_rows(rows: int, length: int, *, vocab_size: int, seed: int = 0) -> NDArray[np.int64]:
    """Full rows `[CLS] A [SEP] B [SEP]` of words as frequent as in a text: int64 [rows, length]."""
    words_BT = zipf_words(rows * length, vocab_size=vocab_size, seed=seed).reshape(rows, length)
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
    rows_timed: tuple[int, ...]
    """Rows of the steps that were timed; `(rows,)` where whole steps were."""
    layers: int
    """Layers of the main network."""
    layers_timed: int
    """Layers of the networks that were timed."""
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
        """Whether the step was computed from smaller ones."""
        return self.rows_timed != (self.rows,) or self.layers_timed != self.layers

    @property
    def limit(self) -> str:
        """`arithmetic` or `memory` where that alone takes half of the step or more, the larger of both; else
        `overhead`.
        """
        seconds, name = max((self.arithmetic_seconds, "arithmetic"), (self.memory_seconds, "memory"))
        return name if seconds >= _MOST * self.seconds_per_step else "overhead"


def forecast(config: Config, machine: Machine, *, limit: float = 8.0) -> Forecast | str:
    """Time training steps of `config` for about `limit` seconds; a sentence that says why if that is not possible.

    At least two steps are computed, however long they take: rows and layers are chosen by FLOPs to keep the limit.
    """
    rate = machine.matrix_flops[machine.precision]
    rows = int(limit / 5 * _FIRST_GUESS * rate / _row_flops(config))
    whole = rows >= config.batch.size and _fits(config, machine)
    if not whole:
        rows = _rows_that_fit(config, machine, most=rows)
    if not rows:
        need = _needed_bytes(with_rows(config, 2), machine)
        return f"needs about {need / 1e9:.0f} GB for a few rows, {(machine.free_bytes or 0) / 1e9:.0f} GB are free"
    sizes = (config.batch.size,) if whole else (rows // 2, rows)
    timed_config = config if whole else _with_few_layers(config, rows, seconds=limit / 2, rate=_FIRST_GUESS * rate)
    try:
        times, made_of = _step_seconds(timed_config, sizes, machine, limit=limit)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if "memory" not in str(error):
            raise
        return f"ran out of memory at {max(sizes)} rows"
    by_rows = dict(zip(sizes, times, strict=True))
    return Forecast(
        preset=config.preset,
        seconds_per_step=times[0] if whole else _scaled(config, timed_config, by_rows, rate),
        tokens_per_step=config.tokens_per_step,
        run_steps=config.schedule.steps,
        rows=config.batch.size,
        rows_timed=sizes,
        layers=config.model.num_hidden_layers,
        layers_timed=timed_config.model.num_hidden_layers,
        arithmetic_seconds=flops.step_flops(config).real / rate,
        memory_seconds=parameters.step_bytes(config, width=DTYPES[machine.precision].itemsize) / machine.copy_bytes,
        step=made_of,
    )


def prices(times: dict[int, float]) -> tuple[float, float]:
    """Seconds of an update and of a row, from those of steps of fewer and of more rows."""
    (few, short), (many, long) = sorted(times.items())
    # If noise hides or exaggerates the difference, all of the time is taken to be proportional to the rows
    row = min((long - short) / (many - few), long / many) if long > short else long / many
    return long - row * many, row


def _scaled(config: Config, timed_config: Config, times: dict[int, float], rate: float) -> float:
    """Seconds of a whole step of `config` from steps of `timed_config`; at least the time of its products at `rate`."""
    update, row = prices(times)
    update *= parameters.parameters(config).joint / parameters.parameters(timed_config).joint
    row *= _row_flops(config) / _row_flops(timed_config)
    return update + max(row * config.batch.size, flops.step_flops(config).real / rate)


def _row_flops(config: Config) -> float:
    """Operations of a row in a step; Muon's products are the step's."""
    return (flops.step_flops(config).real - flops.muon_products(config)) / config.batch.size


def _with_few_layers(config: Config, rows: int, *, seconds: float, rate: float) -> Config:
    """`config` with as many layers as `rows` rows pass in `seconds` at `rate` operations a second; at least two."""
    expected = rows * _row_flops(config) / rate
    layers = min(config.model.num_hidden_layers, max(2, int(config.model.num_hidden_layers * seconds / expected)))
    return changed(config, model={"num_hidden_layers": layers})


def with_rows(config: Config, rows: int) -> Config:
    """The run with `rows` rows a step, in lanes no larger than its own."""
    lanes = -(-rows // config.lane_size)
    while rows % lanes:
        lanes += 1
    return changed(config, batch={"size": rows, "lanes": lanes})


def _fits(config: Config, machine: Machine) -> bool:
    return machine.free_bytes is None or _needed_bytes(config, machine) <= machine.free_bytes


def _needed_bytes(config: Config, machine: Machine) -> int:
    gpu = activation_bytes(machine.precision, machine.device)
    return parameters.memory_bytes(config, gpu=gpu) + _PROCESS_BYTES


def _rows_that_fit(config: Config, machine: Machine, *, most: int) -> int:
    """Rows below a whole batch, so that they and half of them divide evenly among the CPU threads; 0 if they do not
    fit.

    Whole lanes if there are several. With one row for two threads and then two, the second row would seem free.
    """
    unit = 2 * (torch.get_num_threads() if machine.device.type == "cpu" else 1)
    unit = min(unit, config.batch.size // 2 * 2)
    rows = unit * max(1, min(most, config.batch.size - 1) // unit)
    if rows > 2 * config.lane_size:
        rows -= rows % (2 * config.lane_size)
    while rows and not _fits(with_rows(config, rows), machine):
        rows = rows // (2 * unit) * unit
    return rows


def _step_seconds(config: Config, sizes: tuple[int, ...], machine: Machine, *, limit: float) -> tuple[list[float], str]:
    """Median seconds of a step of each size, after one, or on a GPU three, that warm up; the same networks for all.

    Also what the last one was made of, on a GPU.
    """
    found, made_of = [], None
    trial = Trial(config, made_up_feed(with_rows(config, sizes[0]), device=machine.device, precision=machine.precision))
    for size in sizes:
        end = time.perf_counter() + limit / len(sizes)
        trial.feed = made_up_feed(with_rows(config, size), device=machine.device, precision=machine.precision)
        for _ in range(3 if machine.device.type == "cuda" else 1):
            timed(trial.step, machine.device)
        made_of = news() or made_of
        if machine.device.type == "cuda":
            end = time.perf_counter() + limit / len(sizes)  # the first steps compiled and recorded
        found.append(trial.seconds_per_step(least=1, most=_MOST_STEPS, limit=end - time.perf_counter()))
    forget()
    return found, in_words(made_of) if made_of else ""
