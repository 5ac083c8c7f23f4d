"""Several processes, one run: ranks own lanes; counts and gradients are summed over ranks.

A lane's masks, samples and dropout are keyed by the lane, not by the rank, and every sum is divided by the count of all
ranks, so N processes compute the step that one process computes. Rank 0 alone reads and writes files and prints; it
sends the others what they need as JSON and tensors. In a single process nothing here has an effect.

`deterministic` in a configuration adds gradients in one order, whatever the number of processes, since floating-point
sums depend on their order (`GradientTree`). The lanes of a step are the leaves of a binary tree, each lane's gradient
is computed separately, and neighbours are added pairwise. A rank owns a subtree (lanes and ranks are powers of two);
the levels above are added by exchanging sums with the rank at distance 1, 2, 4, ... A sum of two is the same in either
order, so every rank ends with the same bits. It costs a buffer of gradients for each level of a rank's subtree and one
addition a lane.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from electra_trainer.errors import ConfigError, ElectraError, named
from electra_trainer.ranks.failure import Watch, together

T = TypeVar("T")
PATIENCE = timedelta(minutes=10)
"""How long a rank waits for the others; a rank that ended is noticed at once."""


class World(NamedTuple):
    """One process among all of the run."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this process reads, writes and prints."""
        return self.rank == 0

    def described(self, threads: int) -> str:
        """For people: `2 threads`, `4 processes with 1 thread each`."""
        words = f"{threads} thread{'s' * (threads != 1)}"
        return words if self.size == 1 else f"{self.size} processes with {words} each"

    def share(self, things: int) -> range:
        """Part of this rank in `things`: neighbours, as evenly as possible; none where there are too few."""
        return range(self.rank * things // self.size, (self.rank + 1) * things // self.size)

    def owned(self, lanes: int) -> range:
        """The lanes that this rank computes: neighbours, as evenly as possible.

        Raises:
            ConfigError: there are more ranks than lanes.
        """
        if lanes < self.size:
            size = self.size
            raise ConfigError(f"batch.lanes = {lanes}: {size} processes need as many lanes. Set --batch.lanes {size}.")
        return self.share(lanes)


ALONE = World(0, 1)


def world() -> World:
    """Rank and number of processes; (0, 1) alone."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return ALONE


_starts = itertools.count()
"""Counts how often this process joined others: messages of each time are kept apart, also from those before torchrun
restarted the processes."""


_watches: list[Watch] = []
"""This process's failure watch while distributed."""


@contextmanager
def joined(
    device: Callable[[], torch.device], *, last_words: Callable[[ElectraError], None] = lambda _: None
) -> Iterator[tuple[World, torch.device]]:
    """Join the processes that `torchrun` started with this one, until the context ends; alone without torchrun.

    An error of one ends all: failure.py.

    Args:
        device: chooses this process's device; its errors end all ranks too.
        last_words: called with another rank's error before this process is ended because it is stuck.

    Raises:
        ConfigError: the others cannot be found, or the variables that torchrun sets are damaged.
    """
    if "WORLD_SIZE" not in os.environ or world().size > 1:
        yield world(), device()
        return
    with _sentence():
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    start = f"electra/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{next(_starts)}"
    between = dist.PrefixStore(start, store)  # type: ignore[attr-defined]
    watch = Watch(between, rank, size, last_words=last_words)
    try:
        where = device()
        watch.wait_for_all(PATIENCE)
        with _sentence():
            backend = "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo"
            gpu = (
                where if str(where) not in ("cpu", "cuda") else None
            )  # NCCL connects now: its troubles show at the start
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE, device_id=gpu)
        watch.connected()
        _watches.append(watch)
        yield world(), where
    except Exception as error:
        settled = watch.settled(error)
        if settled is error:
            raise
        raise settled from None
    finally:
        _watches.clear()
        if dist.is_initialized():
            dist.destroy_process_group()
        watch.close()


@contextmanager
def _sentence() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"the other processes of this run cannot be joined: {str(error).splitlines()[0]} Start all of them with "
            "torchrun."
        ) from None


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process among those of its machine, where torchrun started one for each.

    Raises:
        ConfigError: there are more processes than GPUs.
    """
    if str(device) != "cuda" or "LOCAL_RANK" not in os.environ:
        return device
    rank, count = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if rank >= count:
        processes = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), rank + 1)
        raise ConfigError(
            f"{processes} processes were started on this machine, and PyTorch finds {count} GPUs. Start "
            f"as many processes as there are GPUs: --processes {count}, or torchrun --nproc-per-node={count}."
        )
    own = torch.device("cuda", rank)
    torch.cuda.set_device(own)
    return own


def patiently(work: Callable[[], T]) -> T:
    """Do `work`, and wait until every rank has done its own, hours if need be; its error ends all ranks."""
    found = work()
    for watch in _watches:
        watch.meet()
    return found


def any_rank(here: bool) -> bool:
    """Whether `here` is true on any rank; the same answer on all."""
    if world().size == 1:
        return here
    flag = torch.tensor(float(here))
    with together():
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def led(work: Callable[[], bytes]) -> bytes:
    """Do `work` on rank 0 only and return its result on every rank; its error is raised on every rank, so that none
    waits.

    Raises:
        ElectraError: the kind that `work` raised.
    """
    if world().size == 1:
        return work()
    failed: ElectraError | None = None
    message = b""
    if world().leads:
        try:
            message = b"\0" + work()
        except ElectraError as error:
            failed = error
            failed.agreed = True
            message = b"\1" + json.dumps([type(error).__name__, str(error)]).encode()
    content = _broadcast(message)
    if failed is not None:
        raise failed
    if content[:1] == b"\1":
        kind, text = json.loads(content[1:])
        same = named(kind)(text)
        same.reported = same.agreed = True
        raise same
    return content[1:]


def on_rank_0(work: Callable[[], T]) -> T | None:
    """The result of `work` on rank 0, None on the others; its error is raised on every rank."""
    found: list[T] = []

    def kept() -> bytes:
        found.append(work())
        return b""

    led(kept)
    return found[0] if found else None


def _broadcast(content: bytes, *, source: int = 0) -> bytes:
    """The content of one rank, on every rank."""
    length = torch.tensor(len(content))
    with together():
        dist.broadcast(length, src=source)
    buffer = torch.empty(int(length), dtype=torch.uint8)
    if world().rank == source and content:
        buffer.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    with together():
        dist.broadcast(buffer, src=source)
    return buffer.numpy().tobytes()


def handed_out(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Rank 0's tensors on every rank, on the CPU, one after another, so that only rank 0 holds all of them."""
    if world().size == 1:
        yield from tensors.items()
        return
    shapes = led(lambda: json.dumps([(n, str(t.dtype).split(".")[1], t.shape) for n, t in tensors.items()]).encode())
    for name, dtype, shape in json.loads(shapes):
        tensor = tensors[name].contiguous() if world().leads else torch.empty(shape, dtype=getattr(torch, dtype))
        with together():
            dist.broadcast(tensor, src=0)
        yield name, tensor


def gathered(content: bytes) -> list[bytes]:
    """The content of each rank, in the order of ranks, on every rank."""
    size = world().size
    return [content] if size == 1 else [_broadcast(content, source=rank) for rank in range(size)]


def add_counts_over_ranks(counts: dict[str, float]) -> dict[str, float]:
    """Counts summed over all ranks; exact, since they are integers below 2**53."""
    if world().size == 1:
        return counts
    total = torch.tensor(list(counts.values()), dtype=torch.float64)
    with together():
        dist.all_reduce(total)
    return dict(zip(counts, total.tolist(), strict=True))


def add_gradients_over_ranks(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its sum over the ranks, in one message. A parameter with a gradient on some ranks has
    one on all afterwards. A non-finite gradient on one rank becomes non-finite on all, so all ranks skip the step.
    """
    if world().size == 1:
        return
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    flat = flat_gradients(learning)
    add_over_ranks(flat)
    put_back(learning, flat)


def add_over_ranks(flat: Tensor) -> None:
    """Replace a tensor by its sum over the ranks."""
    if world().size > 1:
        with together():
            dist.all_reduce(flat)


def flat_gradients(parameters: Sequence[Tensor]) -> Tensor:
    """All gradients as one long tensor, zeros for a missing one, followed by a 1 for each parameter that has one and 0
    for the others.
    """
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    there = torch.tensor([float(p.grad is not None) for p in parameters], device=parts[0].device)
    return torch.cat([*(part.flatten() for part in parts), there])


def put_back(parameters: Sequence[Tensor], flat: Tensor) -> None:
    """Set the gradients of the parameters from a sum of `flat_gradients`; None where no part of the sum had one."""
    *parts, there = torch.split(flat, [*(p.numel() for p in parameters), len(parameters)])
    for parameter, part, count in zip(parameters, parts, there.tolist(), strict=True):
        if count == 0:
            parameter.grad = None
        elif parameter.grad is None:
            parameter.grad = part.view_as(parameter).clone()
        else:
            parameter.grad.copy_(part.view_as(parameter))


def check_tree(lanes: int, *, processes: int | None = None) -> None:
    """Refuse a number of processes (by default that of this run) whose ranks would not own subtrees.

    Raises:
        ConfigError: it is not a power of two, or larger than the number of lanes.
    """
    size = processes or world().size
    if size & (size - 1) or lanes < size:
        raise ConfigError(
            f"--deterministic with {size} processes and {lanes} lanes: both have to be powers of two, and lanes at "
            "least as many. Start 1, 2, 4, ... processes and set --batch.lanes, for example to "
            f"{1 << size.bit_length()}."
        )


class Tree:
    """The sum of one long tensor a lane, in one order whatever the number of ranks."""

    def __init__(self) -> None:
        self._sums: list[tuple[int, Tensor]] = []
        """Subtrees without their right neighbour so far: level and sum."""

    def add(self, total: Tensor) -> None:
        """The next lane of this rank; `total` may be changed."""
        level = 0
        while self._sums and self._sums[-1][0] == level:
            total += self._sums.pop()[1]
            level += 1
        self._sums.append((level, total))

    def finish(self, *, alone: bool = False) -> Tensor:
        """The sum over all lanes; with `alone` over those of this rank."""
        ((_, total),) = self._sums  # a single one: a rank's lanes are a power of two
        here, distance = ALONE if alone else world(), 1
        while distance < here.size:
            partner = here.rank ^ distance
            theirs = torch.empty_like(total)
            exchange = [dist.P2POp(dist.isend, total, partner), dist.P2POp(dist.irecv, theirs, partner)]
            with together():
                for request in dist.batch_isend_irecv(exchange):
                    request.wait()
            total = total + theirs
            distance *= 2
        return total


class GradientTree:
    """The sum over the lanes of one step.

    Args:
        parameters: those that are trained.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._tree = Tree()

    def add_lane(self) -> None:
        """Move the gradients of a lane from the parameters into the tree."""
        total = flat_gradients(self._parameters)
        for parameter in self._parameters:
            parameter.grad = None
        self._tree.add(total)

    def finish(self) -> None:
        """Add the subtrees of all ranks; the sum becomes the gradient of the parameters."""
        put_back(self._parameters, self._tree.finish())
