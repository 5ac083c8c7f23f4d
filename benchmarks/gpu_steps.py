"""What each optimisation gains, memory against batch, the cost of determinism, and the slowest kernels: `python -m benchmarks.gpu_steps --preset small`.

Whole training steps on random rows. One JSON line a measurement: tokens/s (median over windows of steps), peak memory, and the share of the
matrix rate that was measured in this very process (matrix products of the model as done here: cost/flops.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import statistics
import warnings
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.forecast import matrix_rate
from benchmarks.parity import WAYS, switches
from benchmarks.synthetic import make, sized
from electra_trainer.cost.flops import step_flops
from electra_trainer.settings.config import Config
from electra_trainer.train.timing import Trial, timed

WINDOWS = 5


def seconds_a_step(made: Trial, *, limit: float) -> float:
    """Median over windows of equal length that fill `limit` seconds, after a warm-up."""
    device = made.feed.device

    def steps(count: int) -> float:
        return timed(lambda: [made.step() for _ in range(count)], device) / count

    steps(2)
    if device.type == "cuda":  # what building needed is another figure
        torch.cuda.reset_peak_memory_stats(device)
    once = steps(3)
    count = max(1, int(limit / WINDOWS / once))
    return statistics.median(steps(count) for _ in range(WINDOWS))


def measure(config: Config, device: torch.device, *, precision: str, limit: float, rate: float) -> dict[str, object]:
    """One measurement, as a line."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    line: dict[str, object] = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            made = make(config, device, precision=precision)
            with made.fast:
                step = seconds_a_step(made, limit=limit)
                line["in use"] = made.fast.made_of and made.fast.made_of["step"]
            line |= {"seconds": step, "tokens_per_second": config.tokens_per_step / step}
            line["share_of_matrix_rate"] = step_flops(config).real / step / rate
            if device.type == "cuda":
                line["peak_memory_bytes"] = torch.cuda.max_memory_reserved(device)
        except Exception as error:  # out of memory is a result too
            line["error"] = f"{type(error).__name__}: {error}"[:200]
    notes = sorted({str(warning.message)[:200] for warning in said if warning.category is UserWarning})
    return {**line, "said": notes} if notes else line


def show(**line: object) -> None:
    """Numbers to four digits."""
    rounded = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in line.items()}
    print(json.dumps(rounded), flush=True)


def ways(name: str, device: torch.device, given: argparse.Namespace, rate: float) -> None:
    """Each way to compute a step, and fp32, at one batch."""
    config = sized(name, batch=given.batch[0])
    for way, on in reversed(WAYS.items()):  # what is in use first: the time may not do for all
        with mock.patch.dict(os.environ, switches(on)):
            found = measure(config, device, precision="auto", limit=given.seconds, rate=rate)
        show(preset=name, batch=given.batch[0], precision="auto", way=way, **found)
    if device.type == "cuda":
        found = measure(config, device, precision="fp32", limit=given.seconds, rate=rate)
        show(preset=name, batch=given.batch[0], precision="fp32", way="all", **found)


def deterministic(name: str, device: torch.device, given: argparse.Namespace, rate: float) -> None:
    """A run's `--deterministic` and without it, in turn."""
    config = sized(name, batch=given.batch[0])
    for wanted in (False, True, False, True):
        found = measure(
            dataclasses.replace(config, deterministic=wanted), device, precision="auto", limit=given.seconds, rate=rate
        )
        show(preset=name, batch=given.batch[0], deterministic=wanted, **found)


def profiled(device: torch.device, given: argparse.Namespace) -> None:
    """The slowest kernels of a step and the gaps between them, in milliseconds a step.

    `wall` is a step without the profiler, with all of the host's threads and with one; what it takes beyond the kernels' sum is the gap, in
    which the device waits for the host.
    """
    config = sized(given.preset, batch=given.batch[0])
    made = make(config, device)
    for _ in range(3):
        made.step()
    wall = {}
    for threads in (torch.get_num_threads(), 1):
        torch.set_num_threads(threads)
        wall[threads] = round(1e3 * seconds_a_step(made, limit=given.seconds), 3)
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]) as watched:
        timed(lambda: [made.step() for _ in range(5)], device)
    time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    events = [event for event in watched.key_averages() if getattr(event, time) > 0]
    total = sum(getattr(event, time) for event in events)
    slowest = sorted(events, key=lambda event: -getattr(event, time))[:15]
    found = {
        "preset": given.preset,
        "batch": config.batch.size,
        "device": str(device),
        "in use": made.fast.made_of and made.fast.made_of["step"],
        "milliseconds": round(total / 5 / 1e3, 3),
        "wall, by threads": wall,
        "gap": round(min(wall.values()) - total / 5 / 1e3, 3) if on_gpu else None,
        "kernels": round(sum(event.count for event in events) / 5),
        "slowest": [
            {
                "name": event.key[:160],
                "calls": round(event.count / 5, 1),
                "milliseconds": round(getattr(event, time) / 5 / 1e3, 4),
                "share": round(getattr(event, time) / total, 4),
            }
            for event in slowest
        ],
    }
    print(json.dumps(found, indent=1))


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("ways", "batches", "deterministic", "profile"))
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    given = parser.parse_args()
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # what deterministic products ask for; read at their first use
    device = torch.device(given.device)
    if given.what == "profile":
        profiled(device, given)
        return
    rate = matrix_rate(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    show(device=str(device), matrix_rate=rate)
    if given.what == "ways":
        ways(given.preset, device, given, rate)
    elif given.what == "deterministic":
        deterministic(given.preset, device, given, rate)
    else:
        for batch in given.batch:
            config = sized(given.preset, batch=batch)
            show(
                preset=given.preset,
                batch=batch,
                **measure(config, device, precision="auto", limit=given.seconds, rate=rate),
            )


if __name__ == "__main__":
    main()
