"""Several processes, one step: ranks own lanes; counts and gradients are added up over them.

With `torch.distributed` initialised, `train_step` on every rank computes the step that one process computes: a lane's masks, samples and
dropout are keyed by the lane, not by the rank, and every sum is divided by the count of all ranks. Without it nothing here does
anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from electra_trainer.errors import ConfigError


class World(NamedTuple):
    """One process among all of the run."""

    rank: int
    size: int

    def owned(self, lanes: int) -> range:
        """The lanes that this rank computes: a share of neighbours, as even as can be.

        Raises:
            ConfigError: there are more ranks than lanes.
        """
        if lanes < self.size:
            raise ConfigError(
                f"batch.lanes = {lanes}: {self.size} processes need as many lanes. Set --batch.lanes {self.size}."
            )
        return range(self.rank * lanes // self.size, (self.rank + 1) * lanes // self.size)


def world() -> World:
    """Rank and number of processes; (0, 1) alone."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World(0, 1)


def add_counts_over_ranks(counts: dict[str, float]) -> dict[str, float]:
    """Counts of all ranks together; exact, they are integers below 2**53."""
    if world().size == 1:
        return counts
    total = torch.tensor(list(counts.values()), dtype=torch.float64)
    dist.all_reduce(total)
    return dict(zip(counts, total.tolist(), strict=True))


def add_gradients_over_ranks(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its sum over the ranks, in one message; the same parameters have one on every rank."""
    if world().size == 1:
        return
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))
