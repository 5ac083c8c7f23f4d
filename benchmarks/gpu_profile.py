"""The slowest kernels of a training step, and the gaps between them: `python -m benchmarks.gpu_profile --preset small`; JSON.

Times are in milliseconds a step. `wall` is a step without the profiler, with all of the host's threads and with one; what it takes beyond
the kernels' sum is the gap, in which the device waits for the host.
"""

from __future__ import annotations

import argparse
import json

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_steps import seconds_a_step
from benchmarks.synthetic import make, sized
from electra_trainer.train import graph
from electra_trainer.train.timing import timed

STEPS = 5


def main() -> None:
    """Profile a few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=None)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of whole steps")
    parser.add_argument("--top", type=int, default=15)
    given = parser.parse_args()
    device = torch.device(given.device)
    config = sized(given.preset, batch=given.batch)
    made = make(config, device)
    for _ in range(3):
        made.step()
    wall = {}
    for threads in (torch.get_num_threads(), 1):
        torch.set_num_threads(threads)
        wall[threads] = round(1e3 * seconds_a_step(made, limit=given.seconds), 3)
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA] if on_gpu else [ProfilerActivity.CPU]) as watched:
        timed(lambda: [made.step() for _ in range(STEPS)], device)
    name = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    events = [event for event in watched.key_averages() if getattr(event, name) > 0]
    total = sum(getattr(event, name) for event in events)
    slowest = sorted(events, key=lambda event: -getattr(event, name))[: given.top]
    found = {
        "preset": given.preset,
        "batch": config.batch.size,
        "device": str(device),
        "in use": graph.in_use(),
        "milliseconds": round(total / STEPS / 1e3, 3),
        "wall, by threads": wall,
        "gap": round(min(wall.values()) - total / STEPS / 1e3, 3) if on_gpu else None,
        "kernels": round(sum(event.count for event in events) / STEPS),
        "slowest": [
            {
                "name": event.key[:160],
                "calls": round(event.count / STEPS, 1),
                "milliseconds": round(getattr(event, name) / STEPS / 1e3, 4),
                "share": round(getattr(event, name) / total, 4),
            }
            for event in slowest
        ],
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
