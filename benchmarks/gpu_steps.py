"""What each optimisation gains, and where a step's time goes: `python -m benchmarks.gpu_steps ways --preset small`, or `profile`.

A way is settings between commas: environment variables (ELECTRA_GPU_TRY=flash+stream) and options of PyTorch's compiler (combo_kernels=true); one
without a setting is the default. Whole training steps on random rows. One JSON line a measurement: tokens/s (median over windows of steps), peak memory, and the share of the
matrix rate that was measured in this very process (matrix products of the model as done here: cost/flops.py).
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import re
import statistics
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch._inductor import config as inductor
from torch.profiler import ProfilerActivity, profile

from benchmarks.forecast import matrix_rate
from benchmarks.synthetic import make, sized
from electra_trainer.cost.flops import step_flops
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.timing import Trial, timed

WINDOWS = 5
WAYS = ("ELECTRA_GPU_GRAPH=off", "ELECTRA_GPU_COMPILE=off", "ELECTRA_GPU_GRAPH=off,ELECTRA_GPU_COMPILE=off")
WORTH = 1.03
"""A way is better if it is so many times as fast as the default."""
KINDS = {
    "attention": "attention|flash|fmha",
    "optimizer": "adam",
    "products": "gemm|cutlass|nvjet|cublas|splitk",
    "compiled": "triton",
    "sorts": "sort|radix|scan",
    "copies": "copy|memcpy|memset|fill",
    "other": "",
}
"""Kernels by words of their names; the first that fits."""


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


@contextmanager
def in_force(way: str) -> Iterator[None]:
    """Within it the settings of a way hold. Raises AttributeError for an option that this PyTorch does not have."""
    settings = dict(one.split("=", 1) for one in way.split(",") if one)
    environment = {name: value for name, value in settings.items() if name.isupper()}
    options = {name: json.loads(value) for name, value in settings.items() if not name.isupper()}
    with mock.patch.dict(os.environ, environment), inductor.patch(options):
        yield


def measure(config: Config, device: torch.device, way: str, *, limit: float, rate: float) -> dict[str, object]:
    """One measurement, as a line."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    line: dict[str, object] = {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with in_force(way), (made := make(config, device)).fast:
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


def ways(device: torch.device, given: argparse.Namespace) -> None:
    """Each way at each batch; then the fastest that is environment variables alone, if it is worth it: others can use it."""
    rate = matrix_rate(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    show(device=str(device), matrix_rate=rate)
    for batch in given.batch:
        config, found = few_layers(given, batch), dict[str, float]()
        for way in given.ways:
            line = measure(config, device, way, limit=given.seconds, rate=rate)
            show(preset=given.preset, batch=batch, way=way, **line)
            if isinstance(step := line.get("seconds"), float) and not re.search("[a-z]+=", way):
                found[way] = step
        fastest = min(found, key=found.__getitem__, default="")
        default = found.get("", math.inf)
        show(best=fastest if found and found[fastest] * WORTH <= default else "", default_seconds=default)


def few_layers(given: argparse.Namespace, batch: int) -> Config:
    """The preset with this batch and as many layers as are asked for."""
    config = sized(given.preset, batch=batch)
    return changed(config, model={"num_hidden_layers": given.layers}) if given.layers else config


def profiled(device: torch.device, given: argparse.Namespace) -> None:
    """The slowest kernels of a step, all by kind, and the gaps between them, in milliseconds a step.

    `wall` is a step without the profiler; what it takes beyond the kernels' sum is the gap.
    """
    config = few_layers(given, given.batch[0])
    made = make(config, device)
    for _ in range(3):
        made.step()
    wall = 1e3 * seconds_a_step(made, limit=given.seconds)
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]) as watched:
        timed(lambda: [made.step() for _ in range(5)], device)
    time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    spent = {event.key: (getattr(event, time) / 5e3, event.count / 5) for event in watched.key_averages()}
    total, kinds = sum(milliseconds for milliseconds, _ in spent.values()), Counter[str]()
    for name, (milliseconds, _) in spent.items():
        kinds[next(kind for kind, words in KINDS.items() if re.search(words, name, re.IGNORECASE))] += milliseconds
    show(preset=given.preset, batch=config.batch.size, milliseconds=total, wall=wall, gap=wall - total, **kinds)
    for name, (milliseconds, calls) in sorted(spent.items(), key=lambda item: -item[1][0])[:60]:
        show(milliseconds=milliseconds, calls=calls, name=name[:160])


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("ways", "profile"))
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, nargs="+", default=[128])
    parser.add_argument("--layers", type=int, help="default: the preset's")
    parser.add_argument("--ways", nargs="+", default=["", *WAYS])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    given = parser.parse_args()
    (ways if given.what == "ways" else profiled)(torch.device(given.device), given)


if __name__ == "__main__":
    main()
