"""Numbers, which only a real card can show. `pytest -m gpu tests/gpu`; elsewhere these are skipped."""

import dataclasses
import gc
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from benchmarks.synthetic import make, sized
from tests.prepared import small_config, write_store
from torch import Tensor

from electra_trainer.settings.config import Config, changed
from electra_trainer.train import step
from electra_trainer.train.loop import pretrain
from electra_trainer.train.timing import Trial

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: these compare numbers that it computes"),
]
DEVICE = torch.device("cuda")
STEPS = 20


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.empty_cache()


def config(preset: str = "small", *, layers: int = 2, batch: int = 16, deterministic: bool = False) -> Config:
    """A preset of a few layers; dropout is on."""
    made = changed(sized(preset, batch=batch), model={"num_hidden_layers": layers}, schedule={"warmup_steps": 5})
    return dataclasses.replace(made, deterministic=deterministic)


def steps(made: Trial, count: int, *, evaluated: bool = False, **switches: str) -> dict[str, Tensor]:
    """The weights after `count` steps, with an evaluation after each if `evaluated`."""
    with mock.patch.dict(os.environ, switches), made.fast as fast:
        for number in range(count):
            result = fast.step(made.objective, number)
            assert result.finite
            if evaluated:
                step.evaluate(made.objective, made.feed, limit=32)
    return {name: one.detach().clone() for name, one in made.objective.named_parameters()}


def farthest(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest relative distance of a tensor, beyond what is nothing."""
    distances = {name: float((found[name] - value).norm() / (value.norm() + 0.05)) for name, value in expected.items()}
    name, distance = max(distances.items(), key=lambda item: item[1])
    print(f"farthest: {name} {distance:.3g}")
    return distance


def equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> list[str]:
    """The names of tensors that differ in a bit."""
    return [name for name, value in expected.items() if not torch.equal(found[name], value)]


@pytest.mark.parametrize("preset", ["small", "base", "large"])
def test_nothing_is_left_out_of(preset: str) -> None:
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        made = make(config(preset, layers=1, batch=8), DEVICE)
        steps(made, 2)
    assert [str(one.message) for one in raised if "left out" in str(one.message)] == []
    assert made.fast.made_of and made.fast.made_of["step"] == ["CUDA graph", "compiled layers"]


@pytest.mark.parametrize(("preset", "count"), [("bert_small", STEPS), ("small", 1)])
def test_the_graph_computes_the_step(preset: str, count: int) -> None:
    """In fp32, dropout on: the same masks, samples and dropped elements; sums in a fixed order, since Adam's first
    steps have the size of the rate whatever that of a gradient that is rounding alone. With a generator one step:
    after a few, rounding turns one drawn word into its neighbour.
    """
    off, fixed = {"ELECTRA_GPU_COMPILE": "off"}, config(preset, deterministic=True)
    eager = steps(make(fixed, DEVICE, precision="fp32"), count, ELECTRA_GPU_GRAPH="off", **off)
    made = make(fixed, DEVICE, precision="fp32")
    recorded = steps(made, count, **off)
    assert made.fast.made_of and made.fast.made_of["step"] == ["CUDA graph"]
    assert farthest(recorded, eager) <= 2e-5


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_two_deterministic_runs_are_equal_to_the_bit(precision: str) -> None:
    first, second = (steps(make(config(deterministic=True), DEVICE, precision=precision), STEPS) for _ in range(2))
    assert equal(second, first) == []


def test_an_evaluation_between_replays_changes_nothing() -> None:
    alone = steps(make(config(deterministic=True), DEVICE), 6)
    between = steps(make(config(deterministic=True), DEVICE), 6, evaluated=True)
    assert equal(between, alone) == []


def test_a_run_resumes_to_the_bit(tmp_path: Path) -> None:
    """From a checkpoint at its middle, in bf16, with all that is fast."""
    data = write_store(tmp_path / "data")
    settings = changed(small_config(steps=8, lanes=1), model={"hidden_size": 64})
    settings = dataclasses.replace(settings, deterministic=True, precision="auto")
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    pretrain(settings, data, out=whole, device="cuda", quiet=True)
    shutil.copytree(whole, resumed)
    shutil.rmtree(resumed / "checkpoints" / "step-00000008")
    pretrain(settings, data, out=resumed, device="cuda", quiet=True)
    for name in ("weights.safetensors", "optimizer.safetensors"):
        last = Path("checkpoints", "step-00000008", name)
        assert (resumed / last).read_bytes() == (whole / last).read_bytes(), name


def test_memory_comes_back() -> None:
    """After a first build, which keeps what libraries allocate once."""
    left = []
    for _ in range(3):
        steps(make(config(batch=64), DEVICE), 3)
        gc.collect()
        left.append(torch.cuda.memory_allocated())
    assert left[2] - left[1] <= 1 << 20, left


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_card_computes_what_the_first_does() -> None:
    """With more lanes than there are buffers for inputs."""
    settings = changed(config(batch=24), batch={"lanes": 6})
    first, second = (steps(make(settings, torch.device("cuda", number), precision="fp32"), 5) for number in range(2))
    assert farthest({name: one.to("cuda:0") for name, one in second.items()}, first) <= 2e-5
