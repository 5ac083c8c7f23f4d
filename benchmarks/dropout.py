"""Dropout on this CPU, PyTorch's against ours: `python -m benchmarks.dropout`. Forward and backward, in turn in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.model.attention import drop
from electra_trainer.supervise.launcher import restart_tuned

ELEMENTS = 1 << 22
REPEATS = 9
SHARE = 0.1


def seconds(dropout: Callable[[Tensor, float], Tensor], x: Tensor) -> float:
    """One forward and backward pass."""
    start = time.perf_counter()
    out = dropout(x, SHARE)
    torch.autograd.grad(out, x, x.detach())
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; G elements/s, forward and backward")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(ELEMENTS, dtype=dtype).requires_grad_()
        times: dict[str, list[float]] = {"PyTorch": [], "ours": []}
        for _ in range(REPEATS):
            times["PyTorch"].append(seconds(F.dropout, x))
            times["ours"].append(seconds(drop, x))
        theirs, ours = (ELEMENTS / statistics.median(values) / 1e9 for values in times.values())
        name = str(dtype).removeprefix("torch.")
        print(f"{name:<9} PyTorch {theirs:5.2f}   ours {ours:5.2f}   {ours / theirs:4.1f}x")


if __name__ == "__main__":
    restart_tuned()
    main()
