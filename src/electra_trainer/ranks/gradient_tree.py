"""Add gradients in one order, whatever the number of processes: `deterministic` in a configuration.

Floating-point sums depend on their order. Here the lanes of a step are the leaves of a binary tree, each lane's gradient is computed
separately, and neighbours are added pairwise. A rank owns a subtree (lanes and ranks are powers of two); the levels above are added by
exchanging sums with the rank at distance 1, 2, 4, ... A sum of two is the same in either order, so every rank ends with the same bits.
It costs a buffer of gradients for each level of a rank's subtree and one addition a lane.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from electra_trainer.errors import ConfigError
from electra_trainer.ranks.failure import together
from electra_trainer.ranks.world import flat_gradients, put_back, world


def check_tree(lanes: int, *, processes: int | None = None) -> None:
    """Refuse a number of processes (by default that of this run) whose ranks would not own subtrees.

    Raises:
        ConfigError: it is not a power of two, or larger than the number of lanes.
    """
    size = processes or world().size
    if size & (size - 1) or lanes < size:
        raise ConfigError(
            f"--deterministic with {size} processes and {lanes} lanes: both have to be powers of two, and lanes at least as many. "
            f"Start 1, 2, 4, ... processes and set --batch.lanes, for example to {1 << size.bit_length()}."
        )


class GradientTree:
    """The sum over the lanes of one step.

    Args:
        parameters: those that are trained.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._sums: list[tuple[int, Tensor]] = []
        """Subtrees without their right neighbour so far: level and sum."""

    def add_lane(self) -> None:
        """Move the gradients of a lane from the parameters into the tree."""
        total, level = flat_gradients(self._parameters), 0
        for parameter in self._parameters:
            parameter.grad = None
        while self._sums and self._sums[-1][0] == level:
            total += self._sums.pop()[1]
            level += 1
        self._sums.append((level, total))

    def finish(self) -> None:
        """Add the subtrees of all ranks; the sum becomes the gradient of the parameters."""
        ((_, total),) = self._sums  # a single one: a rank's lanes are a power of two
        here, distance = world(), 1
        while distance < here.size:
            partner = here.rank ^ distance
            theirs = torch.empty_like(total)
            exchange = [dist.P2POp(dist.isend, total, partner), dist.P2POp(dist.irecv, theirs, partner)]
            with together():
                for request in dist.batch_isend_irecv(exchange):
                    request.wait()
            total = total + theirs
            distance *= 2
        put_back(self._parameters, total)
