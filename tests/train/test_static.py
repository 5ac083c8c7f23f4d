"""The step with fixed shapes against the plain one, without a GPU: same losses, same weights, same verdicts."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests import as_on_a_gpu
from tests.reliability.ranks import run_ranks
from tests.small import config, feed, weights
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from electra_trainer.objectives import Objective, build
from electra_trainer.ranks import world
from electra_trainer.settings.config import BatchShape, Config
from electra_trainer.settings.methods import MLM, RTD, SentenceContrast
from electra_trainer.train import static_step
from electra_trainer.train.measures import keep_measured
from electra_trainer.train.optim import build_optimizer, optimizer_tensors
from electra_trainer.train.static_step import Inputs, StaticStep
from electra_trainer.train.step import Feed, train_step


def settings(**changes: Any) -> Config:
    optimizer = dataclasses.replace(config().optimizer, **changes.pop("optimizer", {}))
    return dataclasses.replace(config(), optimizer=optimizer, **changes)


def pair(given: Config, precision: str = "fp32") -> tuple[Objective, torch.optim.Optimizer, StaticStep]:
    """An objective and optimizer for the plain step, and the same again in a static one."""
    source = dataclasses.replace(feed(given), precision=precision)
    plain, static = build(given), build(given)
    optimizer = build_optimizer(plain, given.optimizer)
    return plain, optimizer, StaticStep(static, build_optimizer(static, given.optimizer), source)


CASES = {
    "rtd": {},
    "mlm": {"objective": MLM()},
    "sentences": {"objective": SentenceContrast()},
    "other": {"objective": RTD(loss_over="other")},
    "lanes": {"batch": BatchShape(size=12, sequence_length=24, lanes=3)},
    "tree": {"batch": BatchShape(size=12, sequence_length=24, lanes=4), "deterministic": True},
    "adamw": {"optimizer": {"name": "adamw"}},
    "muon": {"optimizer": {"name": "muon"}},
    "no-clip": {"optimizer": {"clip_norm": 0.0, "learning_rate": 1e-3}},
    "much-clip": {"optimizer": {"clip_norm": 0.01}},
    "repeats": {"masking": dataclasses.replace(config().masking, draw="with-replacement")},
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_plain_step(case: str) -> None:
    """Dropout on: the masks, samples and dropped elements are the same ones."""
    given = settings(**CASES[case])  # type: ignore[arg-type]
    plain, optimizer, static = pair(given)
    for step in range(4):
        one = train_step(plain, optimizer, static.feed, step=step, diagnose=step % 2 == 1)
        two = static(step, diagnose=step % 2 == 1)
        assert one.finite and two.finite and one.learning_rate == two.learning_rate
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
        assert one.metrics.keys() == two.metrics.keys() and bool(one.metrics) == (step % 2 == 1)
        for name, value in one.metrics.items():
            assert two.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    expected = weights(plain)
    for name, value in weights(static.objective).items():
        assert (value - expected[name]).norm() <= 2e-5 * expected[name].norm() + 1e-6, name
    moments = optimizer_tensors(plain, optimizer)
    for name, value in optimizer_tensors(static.objective, static.optimizer).items():
        assert torch.allclose(value, moments[name], rtol=1e-3, atol=1e-6), name


def test_bf16_equals_the_plain_step_in_bf16() -> None:
    plain, optimizer, static = pair(settings(), "bf16")
    for step in range(3):
        one = train_step(plain, optimizer, static.feed, step=step)
        two = static(step)
        assert two.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-2)
    expected = weights(plain)
    for name, value in weights(static.objective).items():
        assert (value - expected[name]).norm() <= 1e-2 * expected[name].norm() + 1e-3, name


@pytest.mark.parametrize(("lanes", "name"), [(1, "adam"), (3, "adam"), (1, "muon")])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_bad_step_leaves_everything_untouched(poison: float, lanes: int, name: str) -> None:
    given = settings(batch=BatchShape(size=12, sequence_length=24, lanes=lanes), optimizer={"name": name})
    _, _, static = pair(given)
    assert static(0).finite
    before = weights(static.objective)
    moments = {n: v.clone() for n, v in optimizer_tensors(static.objective, static.optimizer).items()}
    bias = next(p for n, p in static.objective.named_parameters() if n.endswith("dense.bias"))
    hook = bias.register_hook(lambda gradient: gradient * poison)
    result = static(1, diagnose=True)
    hook.remove()
    assert not result.finite and result.metrics == {}
    assert all(torch.equal(value, before[name]) for name, value in weights(static.objective).items())
    after = optimizer_tensors(static.objective, static.optimizer)
    assert all(torch.equal(value, moments[name]) for name, value in after.items())
    assert static(2).finite
    assert all(value.isfinite().all() for value in weights(static.objective).values())
    assert all(p.grad is None for p in static.objective.parameters())


@pytest.mark.parametrize("name", ["adam", "adamw", "muon"])
def test_a_rehearsal_moves_nothing(name: str) -> None:
    _, _, static = pair(settings(optimizer={"name": name}))
    before = weights(static.objective)
    assert static(5, rehearsal=True).gradient_norm > 0
    assert all(torch.equal(value, before[key]) for key, value in weights(static.objective).items())
    for key, value in optimizer_tensors(static.objective, static.optimizer).items():
        assert key.endswith("/step") or not value.any(), key
    _, _, fresh = pair(settings(optimizer={"name": name}))
    assert static(0).gradient_norm == fresh(0).gradient_norm
    expected = weights(fresh.objective)
    assert all(torch.equal(value, expected[key]) for key, value in weights(static.objective).items())


def test_steps_in_any_order_are_the_same_steps() -> None:
    """Inputs made ready for the next step is used for that step alone."""
    _, _, static = pair(settings())
    one = [static(step, rehearsal=step == 9).gradient_norm for step in (0, 9)]
    _, _, other = pair(settings())
    assert other(0).gradient_norm == one[0]
    assert other(9, rehearsal=True).gradient_norm == one[1]


def test_the_next_step_is_ready_before_the_device_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the answer only the seed is left to do; with several lanes also the copies of the later ones."""
    _, _, static = pair(settings(batch=BatchShape(size=12, sequence_length=24, lanes=3)))
    done: list[str] = []
    watched = [(Feed, "lanes"), (Inputs, "fill"), (Inputs, "all_copied"), (StaticStep, "run_lane")]

    def noted(owner: type, name: str) -> None:
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, **more: (done.append(name), real(*given, **more))[1])

    for owner, name in watched:
        noted(owner, name)
    static(0)
    later = ["fill", "run_lane", "fill", "run_lane"]
    assert done == ["lanes", "fill", "run_lane", *later, "lanes", "fill", "all_copied"]
    done.clear()
    static(1)
    assert done == ["run_lane", *later, "lanes", "fill", "all_copied"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_two_processes_take_the_step_of_one(deterministic: bool, tmp_path: Path) -> None:
    """Their gradients are added between the lanes and the update; with `deterministic` in the order of one process."""
    given = settings(batch=BatchShape(size=12, sequence_length=24, lanes=4), deterministic=deterministic)

    def train(name: str, rehearsals: int = 1) -> list[float]:
        _, _, static = pair(given)
        for _ in range(rehearsals):
            static(0, rehearsal=True)  # of this rank alone
        found = [static(step, diagnose=True) for step in range(3)]
        save_file(weights(static.objective), tmp_path / name)
        return [one.gradient_norm for one in found] + [one.metrics["loss"] for one in found]

    def of_two(rank: int) -> None:
        with world.joined(lambda: torch.device("cpu")):
            found = train(f"rank{rank}", rehearsals=1 + rank)
            assert found == pytest.approx(alone, rel=1e-5) and (found == alone or not deterministic)

    alone = train("alone")
    assert run_ranks(2, of_two) == [0, 0]
    expected, *parts = (load_file(tmp_path / name) for name in ("alone", "rank0", "rank1"))
    for name, value in expected.items():
        assert torch.equal(parts[0][name], parts[1][name])
        close = torch.equal if deterministic else torch.allclose
        assert close(parts[0][name], value, **({} if deterministic else {"rtol": 1e-4, "atol": 1e-6})), name  # type: ignore[operator]


def exchanged(count: int, size: int, folder: Path, *, deterministic: bool) -> dict[str, Tensor]:
    """The weights of three steps on `size` ranks that exchange gradients in `count` buckets, the same on all."""
    given = settings(batch=BatchShape(size=12, sequence_length=24, lanes=4), deterministic=deterministic)

    def train(rank: int) -> None:
        os.environ[static_step.BUCKETS] = str(count)
        with world.joined(lambda: torch.device("cpu")):
            _, _, static = pair(given)
            assert len(static._buckets) == count
            for step in range(3):
                static(step)
            save_file(weights(static.objective), folder / f"{count}-{rank}")

    assert run_ranks(size, train) == [0] * size
    first, *others = (load_file(folder / f"{count}-{rank}") for rank in range(size))
    for other in others:
        assert all(torch.equal(other[name], value) for name, value in first.items())
    return first


@pytest.mark.parametrize(("size", "deterministic"), [(2, False), (2, True), (4, True)])
def test_buckets_add_what_one_sum_adds(size: int, deterministic: bool, tmp_path: Path) -> None:
    """To the bit. Not on 4 ranks without `deterministic`: gloo's ring adds in an order that depends on the place in a message."""
    whole, parts = (exchanged(count, size, tmp_path, deterministic=deterministic) for count in (1, 3))
    assert [name for name, value in whole.items() if not torch.equal(parts[name], value)] == []


@pytest.mark.parametrize("number", range(3))
def test_a_rank_that_dies_in_a_bucket_ends_the_other(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(static_step.BUCKETS, "3")
    add, done = world.add_over_ranks, [0]

    def killed(flat: Tensor) -> None:
        if world.world().rank and done[0] == 3 + number:  # in the second step
            os.kill(os.getpid(), signal.SIGKILL)
        done[0] += 1
        add(flat)

    def train(rank: int) -> None:
        monkeypatch.setattr(world, "add_over_ranks", killed)
        with world.joined(lambda: torch.device("cpu")):
            _, _, static = pair(settings(batch=BatchShape(size=12, sequence_length=24, lanes=2)))
            for step in range(3):
                static(step)

    assert run_ranks(2, train) == [70, -signal.SIGKILL]


def test_a_bucket_is_added_when_its_last_gradient_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the backward pass: two of the discriminator, the generator, what both share; then that is the order."""
    monkeypatch.setenv(static_step.BUCKETS, "4")
    _, _, static = pair(settings(batch=BatchShape(size=12, sequence_length=24, lanes=2)))
    done: list[object] = []
    add, gradients = static_step.Bucket.add, static_step.backward
    monkeypatch.setattr(static_step.Bucket, "add", lambda one: (done.append(static._buckets.index(one)), add(one)))
    monkeypatch.setattr(static_step, "backward", lambda loss: (gradients(loss), done.append("end")))
    static(0)
    assert done == [2, 1, 3, 0, "end", 0, 1, 2, 3, "end"]


class Operators(TorchDispatchMode):
    """Notes what a capture would not survive: an answer asked of the device, a size that depends on values, a constant copied to it."""

    BAD = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "is_nonzero", "repeat_interleave")

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        name = str(function)
        places = arguments[1] if name.startswith(("aten.index.", "aten.index_put")) else ()
        if any(f".{bad}" in name for bad in self.BAD) or any(p is not None and p.dtype == torch.bool for p in places):
            self.found.add(name)
        return function(*arguments, **(keywords or {}))


@pytest.mark.parametrize(
    ("case", "precision"), [*((case, "fp32") for case in CASES), ("rtd", "bf16"), ("sentences", "bf16")]
)
def test_nothing_is_asked_of_the_device(case: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu.use(monkeypatch)
    _, _, static = pair(settings(**CASES[case]), precision)  # type: ignore[arg-type]
    static(0)
    (masked, rng), *_ = static.source.lanes(1)
    static.inputs.fill(masked, rng, dict.fromkeys(static.inputs.divisors, 5.0), rate=1e-3, skip=False)
    with Operators() as watched:
        static.lane()
        static.update()
    assert not watched.found
    with Operators() as watched:
        keep_measured(static.losses)
    assert watched.found  # the mode sees what it is meant to see
