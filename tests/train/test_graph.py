"""How the fastest way that works is found, and left where it does not work. A CPU cannot record a CUDA graph; all else is run."""

from __future__ import annotations

import dataclasses
import gc
import json
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
from electra_trainer.model.encoder import Layer
from electra_trainer.objectives import build
from electra_trainer.objectives.vocabulary_softmax import LOOK
from electra_trainer.ranks import world
from electra_trainer.runs.signals import StopRequest
from electra_trainer.settings.config import BatchShape
from electra_trainer.settings.methods import TwoStage
from electra_trainer.train import graph, loop
from electra_trainer.train.optim import Phases, build_optimizer
from electra_trainer.train.static_step import StaticStep
from electra_trainer.train.step import Feed
from electra_trainer.train.step import train_step as plain_step


@pytest.fixture(autouse=True)
def switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(graph.GRAPH, raising=False)
    monkeypatch.setenv(graph.COMPILE, "off")
    monkeypatch.setattr(graph, "_latest", [])


def made(name: str = "adam", **changes: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer, Feed]:
    settings = dataclasses.replace(config(), optimizer=dataclasses.replace(config().optimizer, name=name), **changes)  # type: ignore[arg-type]
    objective = build(settings)
    return objective, build_optimizer(objective, settings.optimizer), feed(settings)


def test_where_no_graph_can_be_recorded_steps_run_and_are_the_same() -> None:
    objective, optimizer, given = made()
    with pytest.warns(UserWarning, match=r"the CUDA graph is left out: .*ELECTRA_GPU_GRAPH=off skips it"):
        step = graph.build_fast_step(objective, optimizer, given)  # type: ignore[arg-type]
    assert step is not None
    other, its_optimizer, _ = made()
    for number in range(3):
        one, two = step(number), plain_step(other, its_optimizer, given, step=number)  # type: ignore[arg-type]
        assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)
    expected = weights(other)  # type: ignore[arg-type]
    for name, value in weights(objective).items():  # type: ignore[arg-type]
        assert (value - expected[name]).norm() <= 2e-5 * expected[name].norm() + 1e-6, name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_layers_are_compiled_for_the_step_alone(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph a layer, without breaks; `aot_eager` traces as `inductor` does."""
    as_on_a_gpu.use(monkeypatch)
    monkeypatch.delenv(graph.COMPILE)
    monkeypatch.setattr(graph, "_BACKEND", "aot_eager")
    layer = dataclasses.replace(config().model, num_hidden_layers=1)
    objective, optimizer, given = made(model=layer)
    with pytest.warns(UserWarning) as said:
        step = graph.build_fast_step(objective, optimizer, dataclasses.replace(given, precision=precision))  # type: ignore[arg-type]
    assert ["CUDA graph" in str(warning.message) for warning in said] == [True]  # compiling itself gave no warning
    assert isinstance(step, graph.GraphStep)
    layers = [module for module in objective.modules() if isinstance(module, Layer)]
    assert list(step.compiled) == [*layers, LOOK] and all(layer._compiled_call_impl is None for layer in layers)
    other, its_optimizer, _ = made(model=layer)
    plain = dataclasses.replace(given, precision=precision)
    for number in range(2):
        one, two = step(number), plain_step(other, its_optimizer, plain, step=number)  # type: ignore[arg-type]
        assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5 if precision == "fp32" else 2e-2)


def test_the_layers_of_a_frozen_generator_are_compiled_too() -> None:
    settings = dataclasses.replace(config(), phases=TwoStage(start="fresh"), sharing="none")
    objective = build(settings)
    every = [module for module in objective.modules() if isinstance(module, Layer)]
    stages = Phases(settings, objective)
    for stage in (objective, stages.at(0), stages.at(settings.first_stage_steps)):
        assert len(every) == 4 and set(graph._layers(stage)) == set(every)


def test_one_side_stream_a_device_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_streams", {})
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    assert graph._side_stream(first) is graph._side_stream(first) is not graph._side_stream(second)
    assert graph._side_stream(torch.device("cpu")) is None


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

        monkeypatch.setattr(graph.GraphStep, name, noted, raising=False)
    shape = BatchShape(size=12, sequence_length=24, lanes=lanes)
    (objective, optimizer, given), (other, its_optimizer, _) = (
        made(batch=shape, deterministic=deterministic) for _ in "ab"
    )
    step = graph.build_fast_step(objective, optimizer, given)  # type: ignore[arg-type]
    assert isinstance(step, graph.GraphStep) and step.recorded
    for number in range(3):
        one = step(number, diagnose=True)
        two = plain_step(other, its_optimizer, given, step=number, diagnose=True)  # type: ignore[arg-type]
        assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-5)
        assert one.metrics == pytest.approx(two.metrics, rel=1e-4)
    expected = weights(other)  # type: ignore[arg-type]
    for name, tensor in weights(objective).items():  # type: ignore[arg-type]
        assert (tensor - expected[name]).norm() <= 2e-5 * expected[name].norm() + 1e-6, name


def attempt(made: Callable[[], dict[str, float]], undone: list[int]) -> dict[str, float]:
    before = {"loss": 2.0, "norm": 1.0}
    given = feed(config())
    return graph._try(given, made, before, 0.1, "the CUDA graph", lambda: undone.append(1))


def test_a_part_that_does_not_agree_is_undone() -> None:
    undone: list[int] = []
    with pytest.warns(UserWarning, match="the CUDA graph is left out: ArithmeticError: norm is 1.2 with it, 1 without"):
        assert attempt(lambda: {"loss": 2.0, "norm": 1.2}, undone) == {"loss": 2.0, "norm": 1.0}
    with pytest.warns(UserWarning, match="nan with it"):
        attempt(lambda: {"loss": float("nan"), "norm": 1.0}, undone)
    assert attempt(lambda: {"loss": 2.01, "norm": 1.0}, undone)["loss"] == 2.01 and undone == [1, 1]


def test_a_failed_part_holds_no_memory() -> None:
    """An error keeps the frames that it passed, and all their tensors."""
    kept: list[weakref.ref[torch.Tensor]] = []

    def fails() -> dict[str, float]:
        large = torch.zeros(3)
        kept.append(weakref.ref(large))
        raise RuntimeError("capture failed")

    gc.disable()
    try:
        with pytest.warns(UserWarning, match="capture failed"):
            attempt(fails, [])
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
def test_a_step_without_memory_says_what_to_set(words: str) -> None:
    """No slower step is tried, which would need more."""
    undone: list[int] = []

    def fails() -> dict[str, float]:
        raise RuntimeError(words)

    with pytest.raises(ConfigError, match=r"Set --batch.lanes 2, or more") as raised:
        attempt(fails, undone)
    assert not undone and ("2.50 GiB more are needed" in str(raised.value)) == ("2.50 GiB" in words)


def killed(*_: object) -> dict[str, float]:
    """A signal, in code that catches every error and says something else."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Exception as error:
        raise RuntimeError("the backend failed") from error
    return {}


@pytest.mark.parametrize("at", ["rehearse", "compile", "capture"])
def test_a_signal_ends_the_building_of_a_step(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(graph.COMPILE)
    monkeypatch.setattr(graph.GraphStep, "compile", lambda self: self.rehearse())
    monkeypatch.setattr(graph.GraphStep, at, killed)
    with StopRequest(at_once=True, quiet=True) as stop, pytest.raises(Interrupted):
        graph.build_fast_step(*made())  # type: ignore[arg-type]
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
def test_the_parts_of_a_step_are_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made()
    graph._fast_step(*run)  # type: ignore[arg-type]
    found = graph.news()
    assert found is not None and found["step"] == ["one operation at a time"]
    assert found["left_out"].keys() == {"torch.compile", "the CUDA graph"}
    assert found["left_out"]["torch.compile"] == "ELECTRA_GPU_COMPILE=off"
    words = "a step is one operation at a time; without torch.compile: ELECTRA_GPU_COMPILE=off; "
    assert words in graph.in_words(found)
    graph._fast_step(*run)  # type: ignore[arg-type]
    assert graph.news() is None
    monkeypatch.setenv(graph.GRAPH, "off")
    graph._fast_step(*made())  # type: ignore[arg-type]
    found = graph.news()
    assert found is not None and found["left_out"] == {
        "the CUDA graph": "ELECTRA_GPU_GRAPH=off and ELECTRA_GPU_COMPILE=off"
    }


def test_a_run_notes_what_its_steps_are_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"device": "a card", "step": ["a part"], "left_out": {"another": "a reason"}}
    waiting = [None, found]
    monkeypatch.setattr(loop, "news", lambda: waiting.pop() if waiting else None)
    out = loop.pretrain(small_config(steps=3), write_store(tmp_path / "data"), out=tmp_path / "run", quiet=True)
    environment = json.loads((out / "environment.json").read_text())
    assert environment["computed_by"] == found and environment["run_id"]
    assert (out / "log.txt").read_text().count("a step is a part; without another: a reason") == 1


def test_with_deterministic_pytorch_adds_in_a_fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(graph.GRAPH, "off")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    graph._fast_step(*made())  # type: ignore[arg-type]
    assert not torch.are_deterministic_algorithms_enabled()
    graph._fast_step(*made(deterministic=True))  # type: ignore[arg-type]
    assert torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    graph.forget()
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_switch_takes_the_plain_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(graph.GRAPH, "off")
    assert graph.build_fast_step(*made()) is None  # type: ignore[arg-type]


def test_what_one_rank_cannot_use_no_rank_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(self: graph.GraphStep) -> dict[str, float]:
        if world.world().rank == 1:
            raise RuntimeError("no graph on this machine")
        self._graph = FakeGraph()  # type: ignore[assignment]
        return self.rehearse()

    def of_two(rank: int) -> None:
        monkeypatch.setattr(graph.GraphStep, "capture", capture)
        with world.joined(lambda: torch.device("cpu")), pytest.warns(UserWarning) as said:
            step = graph.build_fast_step(*made(batch=BatchShape(size=12, sequence_length=24, lanes=2)))  # type: ignore[arg-type]
            assert step is not None and not step.recorded and step(0).finite  # type: ignore[attr-defined]
            (line,) = [str(warning.message) for warning in said]
            assert ("RuntimeError: no graph on this machine" if rank else "another process could not use it") in line

    assert run_ranks(2, of_two) == [0, 0]


def test_one_recorded_step_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    monkeypatch.setattr(graph, "build_fast_step", lambda objective, optimizer, feed: built.append(optimizer))
    one, two = made(), made()
    for run in (one, one, two, two, one):
        graph._fast_step(*run)  # type: ignore[arg-type]
    assert [optimizer is one[1] for optimizer in built] == [True, False, True]
