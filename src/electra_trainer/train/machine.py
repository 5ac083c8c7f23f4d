"""What this machine can do at most: matrix products, memory traffic, free memory; and a clock that waits for the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from electra_trainer.train.device import choose_precision

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_MATRIX = {"cpu": 2048, "cuda": 8192}
"""Side of the square matrices, large enough that the product reaches its full rate."""
_COPY = {"cpu": 256 << 20, "cuda": 4 << 30}
"""Bytes of the tensor that is copied, larger than any cache."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A device and its measured limits."""

    device: torch.device
    precision: str
    """What `auto` chooses here: fp32 or bf16."""
    matrix_flops: dict[str, float]
    """Operations per second of a large matrix product, by precision."""
    copy_bytes: float
    """Bytes per second, read and written, of a large copy."""
    free_bytes: int | None
    """Memory that can still be taken; None where the system does not say."""


def measure_machine(device: torch.device) -> Machine:
    """About three seconds of products and copies; the best of several counts, since other work only slows them."""
    free = free_bytes(device)  # first: on a GPU, what the products below needed stays taken
    return Machine(
        device=device,
        precision=choose_precision("auto", device),
        matrix_flops={name: matrix_rate(device, dtype) for name, dtype in DTYPES.items()},
        copy_bytes=copy_rate(device),
        free_bytes=free,
    )


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


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, until the device is done with it."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def free_bytes(device: torch.device) -> int | None:
    """Memory of the device that can still be taken, a container's own limit included."""
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


def _best(work: Callable[[], object], device: torch.device, limit: float) -> float:
    times = [timed(work, device) for _ in range(4)][1:]  # the first warms up
    while sum(times) < limit:
        times.append(timed(work, device))
    return min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
