"""How the fastest way that works is found, and left where it does not work. A CPU cannot record a CUDA graph; all else is run."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tests import as_on_a_gpu
from tests.prepared import small_config, write_store
from tests.reliability.ranks import run_ranks
from tests.small import config, feed
from tests.train.test_static import weights

from electra_trainer.errors import ConfigError, Interrupted
from electra_trainer.kernels.vocabulary_softmax import LOOK
from electra_trainer.model.encoder import Layer
from electra_trainer.objectives import build
from electra_trainer.ranks import world
from electra_trainer.runs.signals import StopRequest
from electra_trainer.settings.config import BatchShape
from electra_trainer.settings.methods import TwoStage
from electra_trainer.train import fast_step, levers, loop
from electra_trainer.train.fast_step import FastStep, GraphStep
from electra_trainer.train.optim import Phases, build_optimizer
from electra_trainer.train.static_step import StaticStep
from electra_trainer.train.step import Feed, train_step


@pytest.fixture(autouse=True)
def switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (fast_step.GRAPH, levers.TRY):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(fast_step.COMPILE, "off")


def made(name: str = "adam", **changes: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, Feed]:
    settings = dataclasses.replace(config(), optimizer=dataclasses.replace(config().optimizer, name=name), **changes)  # type: ignore[arg-type]
    objective = build(settings)
    return objective, build_optimizer(objective, settings.optimizer), feed(settings)


@pytest.mark.parametrize(("precision", "tried"), [("fp32", ""), ("bf16", ""), ("fp32", "heads"), ("bf16", "heads")])
def test_layers_are_compiled_for_the_step_alone(precision: str, tried: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph a layer, without breaks; `aot_eager` traces as `inductor` does."""
    as_on_a_gpu.use(monkeypatch)
    monkeypatch.delenv(fast_step.COMPILE)
    monkeypatch.setenv(levers.TRY, tried)
    monkeypatch.setattr(fast_step, "_BACKEND", "aot_eager")
    layer = dataclasses.replace(config().model, num_hidden_layers=1)
    objective, optimizer, given = made(model=layer)
    with pytest.warns(UserWarning) as said:
        step = FastStep(optimizer, dataclasses.replace(given, precision=precision)).build(objective)  # type: ignore[arg-type]
    assert ["CUDA graph" in str(warning.message) for warning in said] == [True]  # compiling itself gave no warning
    assert isinstance(step, GraphStep)
    layers = [module for module in objective.modules() if isinstance(module, Layer)]
    heads = levers.heads_of(objective) if tried else []
    assert len(heads) == (2 if tried else 0) and step.parts == ["compiled layers", *filter(None, [tried])]
    assert list(step.compiled) == [*layers, *heads, LOOK]
    assert all(layer._compiled_call_impl is None for layer in step.compiled)
    other, its_optimizer, _ = made(model=layer)
    plain = dataclasses.replace(given, precision=precision)
    for number in range(2):
        one, two = step(number), train_step(other, its_optimizer, plain, step=number)  # type: ignore[arg-type]
        assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5 if precision == "fp32" else 2e-2)


def test_the_compiler_gets_the_options_that_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fast_step.COMPILE)
    monkeypatch.setenv(levers.TRY, "+".join(levers.OPTIONS))
    given: list[dict[str, bool]] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **how: given.append(how["options"]))
    with pytest.warns(UserWarning, match="the CUDA graph"):
        build_fast(made())
    known = torch._inductor.config.get_config_copy()  # type: ignore[attr-defined]
    assert len(given[0]) == 4 and [known[name] for name in given[0]] == [False] * 4


def test_an_unknown_lever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(levers.TRY, "heads+head")
    with pytest.raises(ConfigError, match=r"ELECTRA_GPU_TRY: head is unknown. Expected .*heads, .*joined by \+"):
        build_fast(made())


def test_the_layers_of_a_frozen_generator_are_compiled_too() -> None:
    settings = dataclasses.replace(config(), phases=TwoStage(start="fresh"), sharing="none")
    objective = build(settings)
    every = [module for module in objective.modules() if isinstance(module, Layer)]
    stages = Phases(settings, objective)
    for stage in (objective, stages.at(0), stages.at(settings.first_stage_steps)):
        assert len(every) == 4 and set(fast_step.layers_of(stage)) == set(every)


def test_one_side_stream_a_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    assert fast_step.side_stream(first) is fast_step.side_stream(first) is not fast_step.side_stream(second)
    assert fast_step.side_stream(torch.device("cpu")) is None


class FakeGraph:
    """In place of a CUDA graph: remembers which methods ran while it was recorded, and runs them again."""

    recording: FakeGraph | None = None

    def __init__(self) -> None:
        self.parts: list[Callable[[], None]] = []

    def replay(self) -> None:
        for part in self.parts:
            part()


@contextmanager
def record(fake: FakeGraph, **_: object) -> Iterator[None]:
    FakeGraph.recording = fake
    yield
    FakeGraph.recording = None


@pytest.mark.parametrize(("lanes", "deterministic"), [(1, False), (1, True), (3, False), (4, True)])
def test_what_is_recorded_is_the_whole_step(lanes: int, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of capture, rehearsal and replay, with graphs that call the methods that were called while they were recorded."""
    for name, value in {
        "CUDAGraph": FakeGraph, "graph": record, "graph_pool_handle": lambda: None, "device": nullcontext,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    for name in ("lane", "update"):
        real = getattr(StaticStep, name)

        def noted(self: StaticStep, real: Callable[[StaticStep], None] = real) -> None:
            if FakeGraph.recording is not None:
                FakeGraph.recording.parts.append(lambda: real(self))
            else:
                real(self)

        monkeypatch.setattr(GraphStep, name, noted, raising=False)
    shape = BatchShape(size=12, sequence_length=24, lanes=lanes)
    (objective, optimizer, given), (other, its_optimizer, _) = (
        made(batch=shape, deterministic=deterministic) for _ in "ab"
    )
    with FastStep(optimizer, given) as fast:
        fast.build(objective)  # type: ignore[arg-type]
        assert fast.made_of is not None and fast.made_of["step"] == ["CUDA graph"]
        for number in range(3):
            one = fast.step(objective, number, diagnose=True)  # type: ignore[arg-type]
            two = train_step(other, its_optimizer, given, step=number, diagnose=True)  # type: ignore[arg-type]
            assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)
            assert one.metrics == pytest.approx(two.metrics, rel=1e-4)
    expected = weights(other)  # type: ignore[arg-type]
    for name, tensor in weights(objective).items():  # type: ignore[arg-type]
        assert (tensor - expected[name]).norm() <= 2e-5 * expected[name].norm() + 1e-6, name


def build_fast(run: tuple[torch.nn.Module, torch.optim.Optimizer, Feed]) -> FastStep:
    """The steps of a run as on a GPU: built before the first."""
    objective, optimizer, given = run
    fast = FastStep(optimizer, given)
    fast.build(objective)  # type: ignore[arg-type]
    return fast


@pytest.mark.parametrize(
    ("norm", "warning"),
    [
        (1.001, None),
        (1.2, r"ArithmeticError: the norm of the gradient is \S+ with it, \S+ without"),
        (math.nan, "is nan with it"),
    ],
)
def test_a_part_that_does_not_agree_is_undone(
    norm: float, warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(self: GraphStep) -> dict[str, float]:
        found = self.rehearse()
        self._graph = FakeGraph()  # type: ignore[assignment]
        return found | {"the norm of the gradient": norm * found["the norm of the gradient"]}

    monkeypatch.setattr(GraphStep, "capture", capture)
    expected = (
        nullcontext() if warning is None else pytest.warns(UserWarning, match=f"CUDA graph is left out: .*{warning}")
    )
    with expected:
        fast = build_fast(made())
    assert fast.made_of is not None and ("CUDA graph" in fast.made_of["step"]) == (warning is None)


def test_a_failed_part_holds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error keeps the frames that it passed, and all their tensors."""
    kept: list[weakref.ref[torch.Tensor]] = []

    def fails(self: GraphStep) -> dict[str, float]:
        large = torch.zeros(3)
        kept.append(weakref.ref(large))
        raise RuntimeError("capture failed")

    monkeypatch.setattr(GraphStep, "capture", fails)
    gc.disable()
    try:
        with pytest.warns(UserWarning, match="capture failed"):
            build_fast(made())
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "words",
    [
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8 GiB",
        "CUDA error: out of memory",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "Triton Error [CUDA]: out of memory",
    ],
)
def test_a_step_without_memory_says_what_to_set(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No slower step is tried, which would need more."""

    def fails(self: GraphStep) -> dict[str, float]:
        raise RuntimeError(words)

    monkeypatch.setattr(GraphStep, "capture", fails)
    with pytest.raises(ConfigError, match=r"Set --batch.lanes 2, or more") as raised:
        build_fast(made())
    assert ("2.50 GiB more are needed" in str(raised.value)) == ("2.50 GiB" in words)


def killed(*_: object) -> dict[str, float]:
    """A signal, in code that catches every error and says something else."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Exception as error:
        raise RuntimeError("the backend failed") from error
    return {}


@pytest.mark.parametrize("at", ["rehearse", "compile", "capture"])
def test_a_signal_ends_the_building_of_a_step(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fast_step.COMPILE)
    monkeypatch.setattr(GraphStep, "compile", lambda self: self.rehearse())
    monkeypatch.setattr(GraphStep, at, killed)
    with StopRequest(at_once=True, quiet=True) as stop, pytest.raises(Interrupted):
        build_fast(made())
    assert stop.name == "SIGTERM"


def test_a_signal_waits_until_a_rehearsal_has_taken_its_step_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimizer counts a step and uncounts it; what is saved after the signal must not hold the one without the other."""
    objective, optimizer, given = made("adamw")

    def disturbed() -> None:
        for state in optimizer.state.values():
            state["step"] += 1
        os.kill(os.getpid(), signal.SIGTERM)
        for state in optimizer.state.values():
            state["step"] -= 1

    step = StaticStep(objective, optimizer, given)  # type: ignore[arg-type]
    step(0, rehearsal=True)
    monkeypatch.setattr(optimizer, "step", disturbed)
    with StopRequest(at_once=True, quiet=True), pytest.raises(Interrupted):
        step(0, rehearsal=True)
    assert all(state["step"] == 0 for state in optimizer.state.values())


@pytest.mark.filterwarnings("ignore:the CUDA graph is left out")
def test_a_step_says_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = build_fast(made()).made_of
    assert found is not None and found["step"] == ["one operation at a time"]
    assert found["left_out"].keys() == {"torch.compile", "the CUDA graph"}
    assert found["left_out"]["torch.compile"] == "ELECTRA_GPU_COMPILE=off"
    words = "a step is one operation at a time; without torch.compile: ELECTRA_GPU_COMPILE=off; "
    assert words in fast_step.in_words(found)
    monkeypatch.setenv(fast_step.GRAPH, "off")
    plain = build_fast(made())
    assert plain.made_of is not None and plain.made_of["left_out"] == {
        "the CUDA graph": "ELECTRA_GPU_GRAPH=off and ELECTRA_GPU_COMPILE=off"
    }


def test_a_run_notes_what_its_steps_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, though each of its three steps knows."""
    found = {"device": "a card", "step": ["a part"], "left_out": {"another": "a reason"}}
    real = FastStep.step

    def step(self: FastStep, *given: Any, **named: Any) -> Any:
        self.made_of = found
        return real(self, *given, **named)

    monkeypatch.setattr(FastStep, "step", step)
    out = loop.pretrain(small_config(steps=3), write_store(tmp_path / "data"), out=tmp_path / "run", quiet=True)
    environment = json.loads((out / "environment.json").read_text())
    assert environment["computed_by"] == found and environment["run_id"]
    assert (out / "log.txt").read_text().count("a step is a part; without another: a reason") == 1


@pytest.mark.parametrize("ending", [None, RuntimeError])
def test_with_deterministic_pytorch_adds_in_a_fixed_order(
    ending: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first step to the end of the run, however it ends."""
    monkeypatch.setenv(fast_step.GRAPH, "off")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    build_fast(made())
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ending) if ending else nullcontext(), build_fast(made(deterministic=True)):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        if ending:
            raise ending
    assert not torch.are_deterministic_algorithms_enabled()


def test_what_one_rank_cannot_use_no_rank_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(self: GraphStep) -> dict[str, float]:
        if world.world().rank == 1:
            raise RuntimeError("no graph on this machine")
        self._graph = FakeGraph()  # type: ignore[assignment]
        return self.rehearse()

    def of_two(rank: int) -> None:
        monkeypatch.setattr(GraphStep, "capture", capture)
        with world.joined(lambda: torch.device("cpu")), pytest.warns(UserWarning) as said:
            run = made(batch=BatchShape(size=12, sequence_length=24, lanes=2))
            fast = build_fast(run)
            assert fast.made_of is not None and fast.made_of["step"] == ["one operation at a time"]
            assert fast.step(run[0], 0).finite  # type: ignore[arg-type]
            (line,) = [str(warning.message) for warning in said]
            assert ("RuntimeError: no graph on this machine" if rank else "another process could not use it") in line

    assert run_ranks(2, of_two) == [0, 0]


def test_one_recorded_step_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of the part that trains: the one before is gone when another is built."""
    monkeypatch.setattr(GraphStep, "capture", lambda self: self.rehearse())
    one, optimizer, given = made()
    other = build(given.config)
    built: list[weakref.ref[GraphStep]] = []
    real = GraphStep.__init__

    def noted(self: GraphStep, *run: Any) -> None:
        assert not any(earlier() for earlier in built)
        built.append(weakref.ref(self))
        real(self, *run)

    monkeypatch.setattr(GraphStep, "__init__", noted)
    fast = FastStep(optimizer, given)
    for part in (one, other, one):
        fast.build(part)  # type: ignore[arg-type]
    assert len(built) == 3
    fast.close()
    assert built[2]() is None
