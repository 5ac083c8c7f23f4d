"""A training step of fixed shapes that never waits for the device, so that a CUDA graph can record it.

It equals step.py's `train_step` up to rounding. The differences: masked slots are padded to the most there can be, and
unused slots have no label (loss and gradient 0); divisors, learning rate and the "finite" flag are numbers on the
device; clipping and skipping happen inside the fused optimizer. With several lanes a step is `lane` for each, and
`update`; between them their gradients, in one long tensor, are added over the ranks: whole, or in as many parts as
ELECTRA_GPU_BUCKETS says, each as soon as the last lane's backward pass has made it. It also runs without a GPU, where
the tests compare it.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import compress

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch, Losses, Masked, Term
from electra_trainer.objectives import Objective
from electra_trainer.randomness import Rng
from electra_trainer.ranks import world as ranks
from electra_trainer.runs.signals import undisturbed
from electra_trainer.train import measures, optim
from electra_trainer.train.device import autocast
from electra_trainer.train.step import Feed, StepResult, add_counts, backward, over_ranks

BUCKETS = "ELECTRA_GPU_BUCKETS"
_RING = 3
"""Page-locked buffers for inputs that are copied to the GPU; each waits until its last copy is done."""
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class GivenDraws(Rng):
    """The randomness of a lane whose uniform numbers are already on the device."""

    draws: dict[str, Tensor]

    def uniform(self, purpose: str, count: int, device: torch.device) -> Tensor:
        assert count == len(self.draws[purpose])
        return self.draws[purpose]


class Inputs:
    """One lane's inputs at fixed addresses: one block, filled by one copy; fp32 numbers are at its end, two in each
    int64.

    Args:
        rows, tokens: B and T of a lane.
        counts: names of the objective's counts.
        drawn: how many uniform numbers are drawn for each purpose: for "sample" K, the most masked slots that a lane
            can have.
        device: where the step runs.
    """

    def __init__(
        self, *, rows: int, tokens: int, counts: list[str], drawn: dict[str, int], device: torch.device
    ) -> None:
        size, slots, draws = rows * tokens, drawn["sample"], sum(drawn.values())
        reals = draws + len(counts) + 2
        self.slots, self._integers = slots, 5 * size + slots
        self.whole = torch.zeros(self._integers + -(-reals // 2), dtype=torch.int64, device=device)
        self.real = self._reals(self.whole)[:reals]
        ids, segment, position, piece, shown = (self.whole[: 5 * size].view(5, rows, tokens)).unbind()
        batch = Batch(ids_BT=ids, segment_BT=segment, position_BT=position, piece_BT=piece)
        self.masked = Masked(batch=batch, input_BT=shown, slots_K=self.whole[5 * size : self._integers])
        self.draws = dict(zip(drawn, torch.split(self.real[:draws], [*drawn.values()]), strict=True))
        self.divisors = {name: self.real[draws + number] for number, name in enumerate(counts)}
        self.rate, self.skip = self.real[-2], self.real[-1]  # skip = 1: a rehearsal, nothing moves
        locked = device.type == "cuda"
        self._staged = [
            torch.zeros(self.whole.shape, dtype=torch.int64, pin_memory=locked) for _ in range(_RING if locked else 1)
        ]
        self._copied: list[torch.cuda.Event | None] = [None] * len(self._staged)
        self._turn = 0

    def _reals(self, block: Tensor) -> Tensor:
        return block[self._integers :].view(torch.float32)

    def fill(self, masked: Masked, rng: Rng, divisors: dict[str, float], *, rate: float, skip: bool) -> None:
        """Copy a lane, masked on the CPU, to where the step reads it; on a GPU the copy waits for what was asked of it
        before.
        """
        self._turn = (self._turn + 1) % len(self._staged)
        block, event = self._staged[self._turn], self._copied[self._turn]
        if event is not None:
            event.synchronize()
        whole, real = block[: self._integers], self._reals(block)[: len(self.real)]
        batch, used = masked.batch, len(masked.slots_K)
        parts = (batch.ids_BT, batch.segment_BT, batch.position_BT, batch.piece_BT, masked.input_BT)
        torch.cat([part.reshape(-1) for part in parts], out=whole[: len(whole) - self.slots])
        whole[len(whole) - self.slots :] = -1
        whole[len(whole) - self.slots :][:used] = masked.slots_K
        at = 0
        for purpose, numbers in self.draws.items():
            count = used if purpose == "sample" else len(numbers)
            real[at : at + count] = rng.uniform(purpose, count, _CPU)
            at += len(numbers)
        real[at:] = torch.tensor([*divisors.values(), rate, float(skip)])
        self.whole.copy_(block, non_blocking=True)
        if self.whole.is_cuda:
            self._copied[self._turn] = _reached(self.whole.device)

    def all_copied(self) -> None:
        """Forget pending copies: the device has synchronized."""
        self._copied = [None] * len(self._staged)


def _reached(device: torch.device) -> torch.cuda.Event:
    """An event that is over when `device` has done what it was asked so far; a bare `record` would ask the process's
    current device.
    """
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


@cache
def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """The separate stream for rehearsals, captures and the exchange of buckets; None on a CPU.

    It is always the same: the allocator keeps freed blocks by stream, and cuBLAS 67 MB for each, so that new ones
    doubled the memory.
    """
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


@dataclass(kw_only=True, eq=False)
class Bucket:
    """Gradients that are added over lanes and ranks together: those of neighbouring parameters."""

    parameters: list[nn.Parameter]
    flat: Tensor
    """Their sums, one after another."""
    made: torch.cuda.Event | None
    """Recorded when a lane has been added, also inside a graph, so that streams outside it can wait; None on a CPU."""
    moves: list[bool] = field(default_factory=list)
    """Whether each parameter has a gradient."""

    def sums(self) -> list[Tensor]:
        """The sums in the parameters' shapes."""
        parts = torch.split(self.flat, [p.numel() for p in self.parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self.parameters, strict=True)]

    def add(self) -> None:
        """Move the gradients of a lane into the sums."""
        self.moves = [p.grad is not None for p in self.parameters]
        if any(self.moves):
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            torch._foreach_add_([*compress(self.sums(), self.moves)], gradients)
        for parameter in self.parameters:
            parameter.grad = None
        if self.made is not None:
            self.made.record(torch.cuda.current_stream(self.flat.device))


def buckets(parameters: list[nn.Parameter], flat: Tensor, count: int) -> list[Bucket]:
    """Cut into at most `count` buckets of about the same size."""
    parts: list[list[nn.Parameter]] = [[] for _ in range(count)]
    before = 0
    for parameter in parameters:
        parts[before * count // len(flat)].append(parameter)
        before += parameter.numel()
    parts = [part for part in parts if part]
    places = torch.split(flat, [sum(p.numel() for p in part) for part in parts])
    event = torch.cuda.Event if flat.is_cuda and len(parts) > 1 else None
    made = [event(external=True) if event else None for _ in parts]  # type: ignore[no-untyped-call]
    found = zip(parts, places, made, strict=True)
    return [Bucket(parameters=part, flat=place, made=one) for part, place, one in found]


@contextmanager
def as_they_come(wanted: list[Bucket]) -> Iterator[None]:
    """Add each of several buckets as soon as a backward pass within it has made its last gradient; what is left, and a
    single one, at the end. Puts them in that order, which is the same on every rank.
    """
    left, added = {bucket: {*bucket.parameters} for bucket in wanted}, list[Bucket]()

    def made(bucket: Bucket, parameter: nn.Parameter) -> None:
        left[bucket].remove(parameter)
        if not left[bucket]:
            del left[bucket]
            bucket.add()
            added.append(bucket)

    with ExitStack() as hooks:
        for bucket in wanted if len(wanted) > 1 else ():
            for parameter in bucket.parameters:
                arrived = partial(made, bucket)
                hook = parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
                hooks.callback(hook.remove)
        yield
    for bucket in left:
        bucket.add()
    wanted[:] = [*added, *left]


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A step whose first lane is in `Inputs`, or on its way there."""

    step: int
    lanes: list[tuple[Masked, Rng]]
    counts: dict[str, float]
    divisors: dict[str, float]
    rate: float


class StaticStep:
    """A CUDA graph records `lane` and `update`; calling the object runs a whole step."""

    def __init__(self, objective: Objective, optimizer: torch.optim.Optimizer, feed: Feed) -> None:
        config = feed.config
        self.objective, self.optimizer, self.feed = objective, optimizer, feed
        self.source = replace(feed, device=_CPU)
        self._ready: _Ready | None = None
        rows, tokens = config.lane_size, config.batch.sequence_length
        first = self.source.lanes(0)[0][0]
        names = list(objective.counts(first))
        drawn = {"sample": rows * feed.mask.masking.most(tokens), **dict.fromkeys(objective.draws, rows * tokens)}
        self.inputs = Inputs(rows=rows, tokens=tokens, counts=names, drawn=drawn, device=feed.device)
        self.parameters = [p for p in objective.parameters() if p.requires_grad]
        elements = sum(p.numel() for p in self.parameters) if config.batch.lanes > 1 else 0
        self.flat = torch.zeros(elements, device=feed.device)  # where gradients are added over lanes, and over ranks
        wanted = os.environ.get(BUCKETS, "")
        count = max(1, int(wanted)) if wanted.isdigit() else 1
        self._buckets = buckets(self.parameters, self.flat, count) if elements else []
        self.losses = Losses(terms={})
        self.outcome = torch.zeros(2, device=feed.device)  # norm of the gradient; 1 where it is not finite

    def lane(self) -> None:
        """Forward and backward pass of the lane in `inputs`; gradients add up over the lanes of a step."""
        rng = GivenDraws(0, 0, 0, self.inputs.draws)
        with autocast(self.feed.precision, self.feed.device):
            losses: Losses = self.objective(self.inputs.masked, rng, diagnose=True)
        with as_they_come(self._buckets):
            backward(losses.total(self.inputs.divisors))
        terms = {n: Term(sum=t.sum.detach(), count=t.count, weight=t.weight) for n, t in losses.terms.items()}
        self.losses = Losses(terms=terms, diagnostics=losses.diagnostics)

    @torch.no_grad()
    def update(self) -> None:
        """Clip and step; a non-finite gradient moves neither weights nor moments."""
        for bucket in self._buckets:
            for parameter, total in compress(zip(bucket.parameters, bucket.sums(), strict=True), bucket.moves):
                parameter.grad = total
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        bad = (~norm.isfinite()).float()
        limit = self.feed.config.optimizer.clip_norm or float("inf")
        optimizer = self.optimizer
        for group in optimizer.param_groups:
            group["lr"] = self.inputs.rate * group["share"]
        # the fused optimizer divides by grad_scale and does nothing where found_inf is 1, all in its one kernel
        optimizer.grad_scale = 1 / (limit / (norm + 1e-6)).clamp(max=1.0)  # type: ignore[attr-defined]
        optimizer.found_inf = torch.maximum(bad, self.inputs.skip)  # type: ignore[attr-defined]
        try:
            with undisturbed():  # a rehearsal counts the step, and takes it back
                optimizer.step()
        finally:
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]
        self.outcome.copy_(torch.stack([norm, bad]))
        self.flat.zero_()
        self._forget_gradients()

    def __call__(self, step: int, *, diagnose: bool = False, rehearsal: bool = False) -> StepResult:
        """Step `step`; a rehearsal computes everything on this rank alone, and moves nothing.

        While the device computes, the next step is made ready, up to the copy of its first lane.
        """
        given = self._ready_for(step, rehearsal=rehearsal)
        trees = {bucket: ranks.Tree() for bucket in self._buckets if self.feed.config.deterministic}
        diagnosed = []
        for number, (masked, rng) in enumerate(given.lanes):
            if number:
                self.inputs.fill(masked, rng, given.divisors, rate=given.rate, skip=rehearsal)
            rng.seed_dropout()
            self.run_lane()
            if trees and number + 1 < len(given.lanes):
                for bucket, tree in trees.items():
                    tree.add(bucket.flat.clone())
                self.flat.zero_()
            if diagnose:
                diagnosed.append(measures.keep_measured(self.losses))
        self._add_over_ranks(trees, alone=rehearsal)
        self.run_update()
        self._ready = None
        if not rehearsal:
            self._ready = self._ready_for(step + 1)
        norm, bad = self.outcome.tolist()
        self.inputs.all_copied()
        optim.set_rate(self.optimizer, given.rate)
        metrics = measures.measure(over_ranks(diagnosed), given.counts, given.divisors) if diagnose and not bad else {}
        return StepResult(
            finite=not bad,
            gradient_norm=norm,
            learning_rate=given.rate,
            metrics=metrics,
            tokens=self.feed.config.tokens_per_step,
        )

    def _ready_for(self, step: int, *, rehearsal: bool = False) -> "_Ready":
        """Inputs of a step for the device, the first lane in `inputs`; made before, or now."""
        if self._ready is not None and (self._ready.step, False) == (step, rehearsal):
            return self._ready
        config, lanes = self.feed.config, self.source.lanes(step)
        own = add_counts([self.objective.counts(masked) for masked, _ in lanes])
        counts = own if rehearsal else ranks.add_counts_over_ranks(own)
        divisors, rate = measures.divisors(counts, config), optim.rate_at(step, config)
        self.inputs.fill(*lanes[0], divisors, rate=rate, skip=rehearsal)
        return _Ready(step=step, lanes=lanes, counts=counts, divisors=divisors, rate=rate)

    def _add_over_ranks(self, trees: dict[Bucket, ranks.Tree], *, alone: bool) -> None:
        """After the last lane: each bucket when it is made, beside the rest of the backward pass."""
        side = side_stream(self.feed.device) if len(self._buckets) > 1 else None
        for bucket in self._buckets:
            with nullcontext() if side is None else torch.cuda.stream(side):
                if side is not None and bucket.made is not None:
                    side.wait_event(bucket.made)
                if trees:
                    trees[bucket].add(bucket.flat.clone())
                    bucket.flat.copy_(trees[bucket].finish(alone=alone))
                elif not alone:
                    ranks.add_over_ranks(bucket.flat)
        if side is not None:
            torch.cuda.current_stream(self.feed.device).wait_stream(side)

    def run_lane(self) -> None:
        """One lane. A CUDA graph takes its place (fast_step.py), and that of the update."""
        self.lane()

    def run_update(self) -> None:
        """After the last lane."""
        self.update()

    def start_over(self) -> None:
        """Clear the gradients and sums of a step that was given up."""
        self._forget_gradients()
        self.flat.zero_()

    def _forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
