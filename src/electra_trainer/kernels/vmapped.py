"""Facts for layers and kernels inside torch.vmap, where several runs are computed at once (train/stacked.py)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_numbers: Iterator[Tensor] | None = None


def batched(x: Tensor) -> bool:
    """Whether torch.vmap hides an axis of `x`, the runs: kernels cannot read its memory, nor Python its values."""
    return torch._C._functorch.is_batchedtensor(x)


@contextmanager
def dropped_by(numbers_N: Tensor) -> Iterator[None]:
    """Within it dropout takes its seeds from these, one after another, instead of from PyTorch's own generator.

    Args:
        numbers_N: int64, with an axis of runs that torch.vmap hides.
    """
    global _numbers
    _numbers = iter(numbers_N.unbind())
    try:
        yield
    finally:
        _numbers = None


def next_seed() -> int | Tensor:
    """Seed of the next mask of dropout: a number from PyTorch's own generator, or one for each run (`dropped_by`)."""
    return int(torch.randint(2**63 - 1, ())) if _numbers is None else next(_numbers)
