"""Forecast a preset on this machine: its speed, the duration of the paper's run, and what limits it.

A step is timed as a run computes it. If a whole one would take too long or too much memory, two steps of fewer rows are timed: what
grows with the rows is the cost of a row, the rest that of the update, and the whole step follows from both. If even two rows would take
too long, layers are left out as well, and both costs are scaled: that of a row by the operations, that of the update by the parameters.

The measured step is compared with two limits: its matrix products at the rate of a large square product, and the bytes that it must move
(cost/memory.py: step_bytes) at the rate of a large copy.
"""

import dataclasses
import time
from dataclasses import dataclass

import torch

from electra_trainer.cost import flops, memory
from electra_trainer.cost.parameters import parameters
from electra_trainer.settings.config import Config
from electra_trainer.train.timing import DTYPES, Machine, Trial, made_up_feed, timed

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
        """`arithmetic` or `memory` where that alone takes half of the step or more, the larger of both; else `overhead`."""
        name, seconds = max(
            (("arithmetic", self.arithmetic_seconds), ("memory", self.memory_seconds)), key=lambda pair: pair[1]
        )
        return name if seconds >= _MOST * self.seconds_per_step else "overhead"


def forecast(config: Config, machine: Machine, *, limit: float = 8.0) -> Forecast | str:
    """Time training steps of `config` for about `limit` seconds; a sentence that says why if that is not possible.

    At least two steps are computed, however long they take: rows and layers are chosen by FLOPs to keep the limit.
    """
    rate = machine.matrix_flops[machine.precision]
    rows = int(limit / 5 * _FIRST_GUESS * rate / (flops.step_flops(config).real / config.batch.size))
    whole = rows >= config.batch.size and _fits(config, machine)
    if not whole:
        rows = _rows_that_fit(config, machine, most=rows)
    if not rows:
        need = memory.memory_bytes(with_rows(config, 2)) + _PROCESS_BYTES
        return f"needs about {need / 1e9:.0f} GB for a few rows, {(machine.free_bytes or 0) / 1e9:.0f} GB are free"
    sizes = (config.batch.size,) if whole else (rows // 2, rows)
    timed_config = config if whole else _with_few_layers(config, rows, seconds=limit / 2, rate=_FIRST_GUESS * rate)
    try:
        times = _step_seconds(timed_config, sizes, machine, limit=limit)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if "memory" not in str(error):
            raise
        return f"ran out of memory at {max(sizes)} rows"
    return Forecast(
        preset=config.preset,
        seconds_per_step=times[0]
        if whole
        else _scaled(config, timed_config, dict(zip(sizes, times, strict=True)), rate),
        tokens_per_step=config.tokens_per_step,
        run_steps=config.schedule.steps,
        rows=config.batch.size,
        rows_timed=sizes,
        layers=config.model.num_hidden_layers,
        layers_timed=timed_config.model.num_hidden_layers,
        arithmetic_seconds=flops.step_flops(config).real / rate,
        memory_seconds=memory.step_bytes(config, width=DTYPES[machine.precision].itemsize) / machine.copy_bytes,
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
    update *= parameters(config).joint / parameters(timed_config).joint
    row *= flops.step_flops(config).real / flops.step_flops(timed_config).real
    return update + max(row * config.batch.size, flops.step_flops(config).real / rate)


def _with_few_layers(config: Config, rows: int, *, seconds: float, rate: float) -> Config:
    """`config` with as many layers as `rows` rows pass in `seconds` at `rate` operations a second; at least two."""
    expected = rows * flops.step_flops(config).real / config.batch.size / rate
    layers = min(config.model.num_hidden_layers, max(2, int(config.model.num_hidden_layers * seconds / expected)))
    return dataclasses.replace(config, model=dataclasses.replace(config.model, num_hidden_layers=layers))


def with_rows(config: Config, rows: int) -> Config:
    """The same run with `rows` rows a step, in lanes no larger than its own."""
    lanes = -(-rows // config.lane_size)
    while rows % lanes:
        lanes += 1
    batch = dataclasses.replace(config.batch, size=rows, lanes=lanes)
    return dataclasses.replace(config, batch=batch)


def _fits(config: Config, machine: Machine) -> bool:
    return machine.free_bytes is None or memory.memory_bytes(config) + _PROCESS_BYTES <= machine.free_bytes


def _rows_that_fit(config: Config, machine: Machine, *, most: int) -> int:
    """Rows below a whole batch, so that they and half of them divide evenly among the CPU threads; 0 if they do not fit.

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


def _step_seconds(config: Config, sizes: tuple[int, ...], machine: Machine, *, limit: float) -> list[float]:
    """Median seconds of a step of each size, after one, or on a GPU three, that warm up; the same networks for all."""
    found = []
    trial = Trial(config, made_up_feed(with_rows(config, sizes[0]), device=machine.device, precision=machine.precision))
    for size in sizes:
        end = time.perf_counter() + limit / len(sizes)
        trial.feed = made_up_feed(with_rows(config, size), device=machine.device, precision=machine.precision)
        for _ in range(3 if machine.device.type == "cuda" else 1):
            timed(trial.step, machine.device)
        found.append(trial.seconds_per_step(least=1, most=_MOST_STEPS, limit=end - time.perf_counter()))
    return found
