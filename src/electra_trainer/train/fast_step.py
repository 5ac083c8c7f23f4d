"""The fastest training step of a device: on a GPU one CUDA graph, elsewhere that of step.py.

A graph is recorded once and replayed, so that some 2,000 kernels cost one launch. Three rungs lead to it, each compared
with the one below and left out if it fails: the step with fixed shapes, its layers under PyTorch's compiler, and the
graph. The log and environment.json have what is in use, and the reason for the rest. `ELECTRA_GPU_COMPILE=off` and
`ELECTRA_GPU_GRAPH=off` leave theirs out from the start; levers.py has further ones.

Dropout inside a graph reads PyTorch's generator when the graph is replayed, so a step remains a function of (config,
seed, step).
"""

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from electra_trainer.errors import ElectraError, out_of_memory, tell
from electra_trainer.kernels.native import layers
from electra_trainer.kernels.vocabulary_softmax import LOOK
from electra_trainer.model.modern import AnyLayer
from electra_trainer.objectives import Objective
from electra_trainer.ranks.world import any_rank, world
from electra_trainer.runs.signals import finish_first, raise_again
from electra_trainer.train import levers
from electra_trainer.train.device import describe, need_memory
from electra_trainer.train.static_step import StaticStep, side_stream
from electra_trainer.train.step import Feed, StepResult, train_step

GRAPH, COMPILE = "ELECTRA_GPU_GRAPH", "ELECTRA_GPU_COMPILE"
_BACKEND = "inductor"
_REHEARSALS = 3
"""Steps that move nothing, before a capture: libraries choose their kernels and allocate their workspaces."""
_SAME = 1e-2
"""Relative difference that is allowed of losses and gradient norm between a replay and the same step before the
capture: only the order of sums differs.
"""
_ALIKE = 0.3
"""The allowance for compiled layers against plain ones, which drop others; benchmarks/parity.py compares them without
dropout.
"""
_REMEDY = (
    f"a step is right without, and slower; torch.compile needs a C compiler and Python's headers: apt install gcc "
    f"python3-dev; {GRAPH}=off and {COMPILE}=off skip them"
)


Outcome = dict[str, float]
"""Losses and gradient norm of a rehearsal."""


class FastStep:
    """The training steps of a run, each computed in the fastest way that works here.

    On a GPU a step is built when a part of the objective trains for the first time. One graph is kept, since it holds
    the memory of a whole step. Leaving the context gives everything back.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, feed: Feed) -> None:
        self._optimizer, self._feed = optimizer, feed
        self._part: Objective | None = None
        self._built: GraphStep | None = None
        self._left_out: dict[str, str] = {}
        self._order_is_fixed = False
        self.made_of: dict[str, Any] | None = None
        """The newest step that was built: `device`; `step`, its parts, fastest first; `left_out`, the other parts, each
        with the reason.
        """

    def __enter__(self) -> "FastStep":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._fix_order(False)
        if kind is None:  # after an error the device may be waiting for another rank
            self.close()

    def close(self) -> None:
        """Free the recorded step, what cuBLAS keeps for each stream, and the memory that the native layers keep between
        steps.
        """
        self._part = self._built = None
        self._fix_order(False)
        layers.forget()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch._C._cuda_clearCublasWorkspaces()  # no graph is left that reads them
            torch.cuda.empty_cache()

    def step(self, part: Objective, number: int, *, diagnose: bool = False) -> StepResult:
        """Forward, backward and update of `part` for step `number`, counted from 0: as step.py's `train_step`."""
        if part is not self._part and self._feed.device.type == "cuda":
            self.build(part)
        if self._built is None:
            return train_step(part, self._optimizer, self._feed, step=number, diagnose=diagnose)
        finish_first()
        return self._built(number, diagnose=diagnose)

    def build(self, part: Objective) -> "GraphStep | None":
        """A recorded step; an unrecorded one if recording fails; None if only the plain step works.

        Raises:
            Interrupted: a signal came while it was built, whoever caught it: the compiler catches every error.
            ConfigError: there is not enough memory; a slower step would need more.
        """
        self._part = self._built = None
        self._fix_order(self._feed.config.deterministic)
        self._left_out = {}
        self._part, self._built = part, self._fastest(part)
        parts = self._built.parts if self._built else []
        self.made_of = {
            "device": describe(self._feed.device),
            "step": parts or ["one operation at a time"],
            "left_out": self._left_out,
        }
        return self._built

    def _fix_order(self, wanted: bool) -> None:
        """On a GPU some of PyTorch's kernels add by atomics, in any order: for --deterministic it takes others, and
        refuses what has none.
        """
        if wanted and not torch.are_deterministic_algorithms_enabled():
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch asks for it
        elif wanted or not self._order_is_fixed:
            return
        torch.use_deterministic_algorithms(wanted)
        torch.utils.deterministic.fill_uninitialized_memory = not wanted  # type: ignore[attr-defined]
        self._order_is_fixed = wanted

    def _fastest(self, part: Objective) -> "GraphStep | None":
        if why := self._why_plain(part):
            self._left_out["the CUDA graph"] = why
            return None
        for group in self._optimizer.param_groups:
            group["capturable"] = True
        self._optimizer._warned_capturable_if_run_uncaptured = True  # rehearsals are meant
        made: list[GraphStep] = []

        def first() -> Outcome:
            made.append(GraphStep(part, self._optimizer, self._feed))
            return made[0].rehearse()

        def undo_first() -> None:
            made.clear()
            part.zero_grad()

        expected = self._try(first, {}, _SAME, "the step with fixed shapes", undo_first)
        if not made:
            return None
        step = made[0]
        for name in step.asked:
            if name in levers.WAYS:
                what, leave = f"{levers.TRY}={name}", partial(step.leave, name)
                expected = self._try(partial(step.take, name), expected, _ALIKE, what, leave)
        if _off(COMPILE):
            self._left_out["torch.compile"] = f"{COMPILE}=off"
        else:
            if self._feed.device.type == "cuda" and world().leads:
                tell("building the training step: its layers are compiled, which takes a minute or two")
            expected = self._try(step.compile, expected, _ALIKE, "torch.compile", step.uncompile)
        if _off(GRAPH):
            self._left_out["the CUDA graph"] = f"{GRAPH}=off"
        else:
            self._try(step.capture, expected, _SAME, "the CUDA graph", step.release)
        return step

    def _why_plain(self, part: Objective) -> str:
        """Why a step is that of step.py; empty where a faster one can be built."""
        if _off(GRAPH) and _off(COMPILE):
            return f"{GRAPH}=off and {COMPILE}=off"
        if not isinstance(self._optimizer, torch.optim.AdamW):
            return f"{type(self._optimizer).__name__} is not made for it"
        return "" if part.static else f"the shapes of {type(part).__name__} follow from the text"

    def _try(
        self, make: Callable[[], Outcome], expected: Outcome, tolerance: float, what: str, undo: Callable[[], None]
    ) -> Outcome:
        """Keep what `make` makes if its rehearsal agrees with the one before, on every rank; else warn and undo it.

        Returns:
            The outcome that is now valid.

        Raises:
            ConfigError: memory ran out.
        """
        failed, found = "", expected
        try:
            found = make()
            raise_again()
            for name, value in expected.items():
                if not abs(found[name] - value) <= tolerance * abs(value) + 1e-12:
                    raise ArithmeticError(f"{name} is {found[name]:.6g} with it, {value:.6g} without")
        except Exception as error:
            if isinstance(error, ElectraError):
                undo()
                raise
            if out_of_memory(error):
                raise need_memory(error, self._feed.device, self._feed.config.batch.lanes) from None
            first_line = (str(error).strip().splitlines() or [""])[0]
            failed = f"{type(error).__name__}: {first_line}"  # the words alone: the error holds the step's memory
        if not any_rank(bool(failed)):
            return found
        gc.collect()
        undo()
        raise_again()
        why = f"{failed or 'another process could not use it'} ({_REMEDY})"
        self._left_out[what] = why
        warnings.warn(f"{what} is left out: {why}", stacklevel=2)
        return expected


def in_words(made_of: dict[str, Any]) -> str:
    """`FastStep.made_of` in one line."""
    without = "".join(f"; without {name}: {why}" for name, why in made_of["left_out"].items())
    return f"a step is {', '.join(made_of['step'])}{without}"


class GraphStep(StaticStep):
    """A static step that is replayed: one graph of the whole step, or with several lanes one of a lane and one of the
    update.

    Between these two gradients are added over the ranks: NCCL is in no graph.
    """

    def __init__(self, objective: Objective, optimizer: torch.optim.Optimizer, feed: Feed) -> None:
        super().__init__(objective, optimizer, feed)
        self.asked = [name for name in levers.asked() if name != levers.TUNING]
        self._ways: dict[str, levers.Way] = {}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._update: torch.cuda.CUDAGraph | None = None
        self.compiled: dict[nn.Module, object] = {}

    @property
    def parts(self) -> list[str]:
        """The parts in use, fastest first."""
        parts: dict[str, object] = {"CUDA graph": self._graph, "compiled layers": self.compiled}
        parts |= {name: self._ways.get(name) if name in levers.WAYS else self.compiled for name in self.asked}
        return [name for name, there in parts.items() if there]

    def rehearse(self) -> Outcome:
        """The outcome of step 0 as steps are now computed; nothing moves."""
        with _beside(self.feed.device):
            for _ in range(_REHEARSALS):
                result = self(0, rehearsal=True)
        sums = {name: float(term.sum) for name, term in self.losses.terms.items()}
        return {**sums, "the norm of the gradient": result.gradient_norm}

    def take(self, name: str) -> Outcome:
        """Compute lanes with a lever from now on."""
        self._ways[name] = levers.WAYS[name](levers.modules_of(self.objective), self.feed)
        return self.rehearse()

    def leave(self, name: str) -> None:
        """Back to lanes without that lever."""
        self._ways.pop(name, None)
        self.start_over()

    def compile(self) -> Outcome:
        """Compile the encoder's layers and the vocabulary softmax, for this step alone: evaluation has other shapes and
        runs them uncompiled.
        """
        torch._dynamo.reset()  # an earlier step's shapes would count against the limit of recompilations
        _release_unused(self.feed.device)
        options = {name: value for one in self.asked for name, value in levers.OPTIONS.get(one, {}).items()}
        heads = levers.heads_of(self.objective) if "heads" in self.asked else []
        for layer in (*layers_of(self.objective), *heads, LOOK):
            layer.compile(fullgraph=True, dynamic=False, backend=_BACKEND, options=options or None)
            self.compiled[layer] = layer._compiled_call_impl
            layer._compiled_call_impl = None
        return self.rehearse()

    def uncompile(self) -> None:
        """Back to plain layers."""
        self.compiled = {}
        self.start_over()

    def lane(self) -> None:
        """A lane by the compiled layers, and with what levers.py adds."""
        with ExitStack() as within:
            for way in self._ways.values():
                within.enter_context(way())
            for layer, call in self.compiled.items():
                layer._compiled_call_impl = call  # type: ignore[assignment]
                within.callback(setattr, layer, "_compiled_call_impl", None)
            super().lane()

    def capture(self) -> Outcome:
        """Record the graphs; the rehearsals' memory is freed."""
        _release_unused(self.feed.device)
        lanes, pool = self.feed.config.batch.lanes, torch.cuda.graph_pool_handle()
        mode = "global" if world().size == 1 else "thread_local"  # a thread of NCCL's asks the device meanwhile
        stream = side_stream(self.feed.device)
        recording = partial(torch.cuda.graph, pool=pool, stream=stream, capture_error_mode=mode)
        with torch.cuda.device(self.feed.device), _stream_kept(self.feed.device):
            graph, update = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph() if lanes > 1 else None
            with recording(graph):
                self.lane()
                if update is None:
                    self.update()
            if update is not None:
                with recording(update):
                    self.update()
        self._graph, self._update = graph, update
        return self.rehearse()

    def release(self) -> None:
        """Drop the graphs and their memory."""
        self._graph = self._update = None
        self.start_over()

    def run_lane(self) -> None:
        """Replay the graph of a lane, or of the whole step; before the capture, compute."""
        if self._graph is not None:
            self._graph.replay()
        else:
            super().run_lane()

    def run_update(self) -> None:
        """Replay the graph of the update, unless it is in that of the lane; before the capture, compute."""
        if self._update is not None:
            self._update.replay()
        elif self._graph is None:
            super().run_update()


def layers_of(objective: Objective) -> list[AnyLayer]:
    """The layers that a step computes."""
    return [module for module in levers.modules_of(objective) if isinstance(module, AnyLayer)]


@contextmanager
def _beside(device: torch.device) -> Iterator[None]:
    """Run on the side stream, ordered after earlier and before later work on the current stream."""
    if (side := side_stream(device)) is None:
        yield
        return
    current = torch.cuda.current_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


@contextmanager
def _stream_kept(device: torch.device) -> Iterator[None]:
    """Put the current stream back: a capture that fails as it ends leaves its own in place."""
    current = torch.cuda.current_stream(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        if current is not None:
            torch.cuda.set_stream(current)


def _release_unused(device: torch.device) -> None:
    """Give back what the allocator keeps: the next way of computing a step needs blocks of other sizes."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def _off(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("off", "0")
