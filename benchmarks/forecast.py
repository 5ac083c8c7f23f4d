"""How fast this machine trains each preset, and what limits it: `python -m benchmarks.forecast`, or with names of presets.

A step is timed on made-up rows as a run computes it, with as many of its rows as fit the time and the memory. With fewer
than a whole step has, the time is scaled by the rows: an upper bound, because the optimizer's update does not grow with them.

The step is compared with two limits: its matrix products at the rate of a large square product (arithmetic), and the bytes
that it must move at the rate of a large copy (memory). The larger of both is the bottleneck if it explains half of the
step; otherwise that is overhead: pointwise work, small products, launches. The paper's run has the preset's own steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch

from benchmarks.synthetic import make, with_rows
from electra_trainer.cost import flops, parameters
from electra_trainer.errors import ElectraError
from electra_trainer.files.wording import duration
from electra_trainer.presets import models
from electra_trainer.runs.launcher import restart_tuned
from electra_trainer.settings.config import Config
from electra_trainer.train import device as devices
from electra_trainer.train.fast_step import in_words
from electra_trainer.train.timing import DTYPES, activation_bytes, free_bytes, timed

_MATRIX = {"cpu": 2048, "cuda": 8192}
"""Side of the square matrices, large enough that the product reaches its full rate."""
_PATIENCE = 5.0
"""Seconds that one product may take; else a small one is timed."""
_COPY = {"cpu": 256 << 20, "cuda": 4 << 30}
"""Bytes of the tensor that is copied, larger than any cache."""
_FIRST_GUESS = 0.15
"""Share of the matrix rate that a step is expected to reach, to choose how many rows to time."""
_PROCESS_BYTES = 1 << 30
"""Python, its libraries and the allocator's slack, in addition to `memory_bytes`."""
_PASSES = 2.5
"""Steps that fit the time limit, the one that warms up included."""
_INNER_MOVED = {"bert": 11, "modern": 19}
"""Numbers that a layer moves a token for each of its inner width."""


def matrix_rate(device: torch.device, dtype: torch.dtype, *, limit: float = 0.7) -> float:
    """Operations per second of a square matrix product, the best of at least 3, then of `limit` seconds."""

    def best(side: int, limit: float) -> float:
        left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        return _best(lambda: left @ right, device, limit)

    small, side = 256, _MATRIX[device.type]
    if best(small, 0.0) * (side / small) ** 3 > _PATIENCE:  # bf16 that a processor emulates
        side = small
    return 2.0 * side**3 / best(side, limit)


def copy_rate(device: torch.device, *, limit: float = 0.5) -> float:
    """Bytes per second of a copy within the device's memory, reading and writing both counted."""
    source = torch.ones(_COPY[device.type], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2.0 * source.numel() / _best(lambda: target.copy_(source), device, limit)


def _best(work: Callable[[], object], device: torch.device, limit: float) -> float:
    """Seconds; the best, since other work only slows it."""
    times = [timed(work, device) for _ in range(4)][1:]  # the first warms up
    while sum(times) < limit:
        times.append(timed(work, device))
    return min(times)


def step_bytes(config: Config, *, width: int) -> float:
    """Bytes that one step moves to and from memory where pointwise work is fused, with activations of `width` bytes.

    Counted: what each product, fused attention, GELU and dropout + residual + LayerNorm of a layer reads and writes, nothing
    staying in a cache; weights, read forward and backward once a lane; gradients and the optimizer in fp32. Not counted:
    embeddings and logits, which can be computed in pieces that stay in a cache.
    """
    networks = (config.model, parameters.learned_generator(config), parameters.guesser_of(config))
    shapes = [shape for shape in networks if shape is not None]
    # A layer reads and writes for one token, forward (20h + 4i): joined query, key and value 4h, attention 4h, its output 2h,
    # two residual LayerNorms 4h each, feed-forward h + i and i + h, GELU 2i; backward (38h + 7i): each product twice, LayerNorms
    # 4h each, residual sums 3h each, attention 8h, GELU 3i. The modern layer has no biases and a gate: a product 2i wide instead
    # of i, and GELU with the gate 3i forward and 5i backward.
    layers = sum(m.num_hidden_layers * (58 * m.hidden_size + _INNER_MOVED[m.block] * m.inner_size) for m in shapes)
    # weights forward and backward in `width` bytes; gradient written, and 4 reads and 3 writes of the optimizer, in fp32
    each_parameter = 2 * width * config.batch.lanes + 8 * 4
    return float(width * config.tokens_per_step * layers + each_parameter * parameters.parameters(config).joint)


def rows_to_time(config: Config, device: torch.device, precision: str, *, rate: float, limit: float) -> int | str:
    """How many rows of a step to time in about `limit` seconds; a sentence if not even one can be."""
    rows, free, gpu = config.batch.size, free_bytes(device), activation_bytes(precision, device)
    while (
        free is not None and (need := parameters.memory_bytes(with_rows(config, rows), gpu=gpu) + _PROCESS_BYTES) > free
    ):
        if rows == 1:
            return f"needs about {need / 1e9:.0f} GB for one row, {free / 1e9:.0f} GB are free"
        rows //= 2
    a_row = flops.step_flops(config).real / config.batch.size / (_FIRST_GUESS * rate)
    return min(rows, int(limit / _PASSES / a_row)) or f"a step of one row would take about {a_row:.2g} s"


def step_seconds(config: Config, device: torch.device, precision: str, *, limit: float) -> tuple[float, str]:
    """Median seconds of a step after warming up, and, on a GPU, what it was made of."""
    trial = make(config, device, precision=precision)
    with trial.fast:
        for _ in range(3 if device.type == "cuda" else 1):  # a GPU compiles and records
            trial.step()
        made_of = trial.fast.made_of
        seconds = trial.seconds_per_step(least=1, most=10, limit=limit / 2)
    return seconds, in_words(made_of) if made_of else ""


def forecast(
    config: Config, device: torch.device, precision: str, *, rate: float, copied: float, limit: float = 8.0
) -> str:
    """A line of the table: the speed of one preset, and what limits it; or why it cannot be timed."""
    rows = rows_to_time(config, device, precision, rate=rate, limit=limit)
    if isinstance(rows, str):
        return f"{config.preset:<16}skipped: {rows}"
    try:
        found, made_of = step_seconds(with_rows(config, rows), device, precision, limit=limit)
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if "memory" not in str(error):
            raise
        return f"{config.preset:<16}skipped: ran out of memory at {rows} rows"
    whole = config.batch.size
    step, how = found * whole / rows, "whole steps" if rows == whole else f"{rows} of {whole} rows: an upper bound"
    arithmetic = flops.step_flops(config).real / rate / step
    memory = step_bytes(config, width=DTYPES[precision].itemsize) / copied / step
    share, limited = max((arithmetic, "arithmetic"), (memory, "memory"))
    speed, paper = f"{config.tokens_per_step / step:,.0f}", duration(config.schedule.steps * step)
    line = f"{config.preset:<16}{speed:>12}{paper:>14}{arithmetic:>12.0%}{memory:>8.0%}  "
    return f"{line}{limited if share >= 0.5 else 'overhead':<12}{how}" + (f"\n{'':<16}{made_of}" if made_of else "")


def main() -> int:
    """Measure the machine, then each preset, the cheap ones first; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=models.MODELS)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each preset; a GPU compiles first")
    arguments = parser.parse_args()
    try:
        configs = [models.preset(name) for name in arguments.presets]
    except ElectraError as error:
        print(f"benchmarks.forecast: {error}", file=sys.stderr)
        return error.exit_code
    device = devices.choose_device("auto")
    precision = devices.choose_precision("auto", device)
    devices.use_threads()
    rates, copied = {name: matrix_rate(device, dtype) for name, dtype in DTYPES.items()}, copy_rate(device)
    print("matrix products:", ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in rates.items()))
    print(f"memory: {copied / 1e9:,.0f} GB/s read and written")
    print(f"\n{'preset':<16}{'tokens/s':>12}{'paper run':>14}{'arithmetic':>12}{'memory':>8}  {'limited by':<12}timed")
    for config in sorted(configs, key=lambda config: flops.step_flops(config).real / config.batch.size):
        rate = rates[precision]
        print(forecast(config, device, precision, rate=rate, copied=copied, limit=arguments.seconds), flush=True)
    return 0


if __name__ == "__main__":
    restart_tuned()
    sys.exit(main())
