"""NaN and infinity never get into weights or moments, on one rank or several; uneven counts are one batch."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
import torch
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, report
from tests.reliability.ranks import run_ranks
from tests.reliability.runs import curve, digest

from electra_trainer.batch import Masked
from electra_trainer.data.store import Store
from electra_trainer.errors import Diverged
from electra_trainer.objectives import build
from electra_trainer.randomness import Rng
from electra_trainer.ranks.world import joined
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.verified import read
from electra_trainer.settings.config import Config
from electra_trainer.train import fast_step, step
from electra_trainer.train.loop import pretrain
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.resumable import BAD_STEPS_IN_A_ROW

CPU = torch.device("cpu")


def config(*, steps: int = 16, **changes: Any) -> Config:
    made = small_config(steps=steps, lanes=2, layers=LAYERS)
    return dataclasses.replace(made, checkpoint=dataclasses.replace(made.checkpoint, keep=50), **changes)


def uneven(feed: step.Feed) -> None:
    """Lane 0 has all its slots, lane 1 half of them, lanes 2 and 3, the other rank's, have none."""
    lanes = feed.lanes

    def changed(at: int) -> list[tuple[Masked, Rng]]:
        return [(thinned(masked, rng.lane), rng) for masked, rng in lanes(at)]

    object.__setattr__(feed, "lanes", changed)


def thinned(masked: Masked, lane: int) -> Masked:
    slots_K = masked.slots_K[: 0 if lane >= 2 else None : 1 + (lane == 1)]
    return dataclasses.replace(masked, slots_K=slots_K, input_BT=masked.batch.ids_BT if lane >= 2 else masked.input_BT)


def gradients(settings: Config, data: Path, path: Path, *, naive: bool = False) -> None:
    """The gradient of one step of uneven lanes, as it is just before the weights move; naive: the mean over ranks of each rank's means."""
    store = Store.open(data)
    with joined(lambda: CPU) as (here, _):
        objective = build(settings)
        feed = step.Feed.of(settings, store, device=CPU, precision="fp32")
        uneven(feed)
        if naive:
            step.ranks.add_counts_over_ranks = lambda own: {
                name: here.size * max(count, 1.0) for name, count in own.items()
            }
        real = step.update

        def kept(network: torch.nn.Module, *arguments: Any, **more: Any) -> Any:
            if here.leads:
                found = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
                safetensors.torch.save_file(found, path)
            return real(network, *arguments, **more)

        step.update = kept
        step.train_step(objective, build_optimizer(objective, settings.optimizer), feed, step=0, diagnose=True)


@pytest.mark.parametrize("deterministic", [True, False])
def test_uneven_counts_are_one_batch(data: Path, tmp_path: Path, deterministic: bool) -> None:
    made = config(deterministic=deterministic)
    settings = dataclasses.replace(made, batch=dataclasses.replace(made.batch, lanes=4))
    for size in (1, 2):
        path = tmp_path / f"{size}.safetensors"
        assert run_ranks(size, lambda _, path=path: gradients(settings, data, path)) == [0] * size
    naive = tmp_path / "naive.safetensors"
    assert run_ranks(2, lambda _: gradients(settings, data, naive, naive=True)) == [0, 0]
    one, two, mean = (safetensors.torch.load_file(tmp_path / f"{name}.safetensors") for name in ("1", "2", "naive"))
    assert one.keys() == two.keys() and any(name.startswith("generator.") for name in one)
    apart, control = largest_difference(one, two), largest_difference(one, mean)
    assert apart == 0 if deterministic else 0 <= apart < 1e-6
    report(
        "uneven_counts",
        deterministic=deterministic,
        largest_relative_difference=apart,
        control_of_the_ranks_means=control,
    )
    assert control > 0.1


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest norm of a parameter's difference, relative to its norm."""
    norms = {name: value.norm() for name, value in one.items()}
    return max(float((one[name] - other[name]).norm() / norms[name]) for name in one if norms[name] > 1e-9)


Poison = Callable[[torch.nn.Module, torch.optim.Optimizer, int], Callable[[], object] | None]
"""Put a number into a step; what undoes it after the step, if anything has to."""


def gradient(network: torch.nn.Module, *_: object, value: float) -> Callable[[], object]:
    return next(network.parameters()).register_hook(lambda grad: torch.full_like(grad, value)).remove


def loss(network: Any, _: object, step: int, *, value: float, added: bool = False) -> None:
    """A factor of every loss; or a summand, of which no gradient knows."""
    forward, mine = network.forward, (network.config.seed, step)

    def poisoned(masked: Masked, rng: Rng, **more: Any) -> Any:
        losses = forward(masked, rng, **more)
        if (rng.seed, rng.step) != mine:  # held-out rows, later steps
            return losses
        sums = {name: term.sum + value if added else term.sum * value for name, term in losses.terms.items()}
        terms = {name: dataclasses.replace(term, sum=sums[name]) for name, term in losses.terms.items()}
        return dataclasses.replace(losses, terms=terms)

    network.forward = poisoned


def weight(network: torch.nn.Module, *_: object, value: float) -> None:
    with torch.no_grad():
        next(network.parameters()).view(-1)[7] = value


def moment(_: object, optimizer: torch.optim.Optimizer, step: int, *, value: float) -> None:
    next(iter(optimizer.state.values()))["exp_avg"].view(-1)[7] = value


POISONS: dict[str, Poison] = {
    f"{put.__name__} {value}": partial(put, value=value)
    for put in (loss, gradient, weight, moment)
    for value in (float("nan"), float("inf"))
}
POISONS["loss + inf"] = partial(loss, value=float("inf"), added=True)


def train(
    settings: Config, data: Path, out: Path, *, what: str = "", at: range = range(0), rank: int | None = None
) -> None:
    """A run that is poisoned in the steps `at`, on `rank` alone, or on all."""
    real = fast_step.train_step

    def poisoned(network: Any, optimizer: Any, *arguments: Any, step: int, **more: Any) -> Any:
        mine = step in at and rank in (None, int(os.environ["RANK"]))
        undo = POISONS[what](network, optimizer, step) if mine else None
        try:
            return real(network, optimizer, *arguments, step=step, **more)
        finally:
            if undo is not None:
                undo()

    with mock.patch.object(fast_step, "train_step", poisoned):
        pretrain(settings, data, out=out, device="cpu", quiet=True)


@pytest.fixture(scope="module")
def injected(data: Path) -> Iterator[list[str]]:
    """Injected faults that ended as promised: one line for all, at the end."""
    held: list[str] = []
    yield held
    lost = unguarded(data)
    report("numbers", as_promised=len(held), injected=sorted(held), control_weights_lost_where_nobody_asks=lost)
    assert not lost.startswith("0 ")


def unguarded(data: Path) -> str:
    """How many weights one such gradient turns into no numbers where nobody asks whether its norm is one."""
    settings = config()
    objective = build(settings)
    feed = step.Feed.of(settings, Store.open(data), device=CPU, precision="fp32")
    next(objective.parameters()).register_hook(lambda grad: torch.full_like(grad, float("nan")))
    with mock.patch.object(step, "np", SimpleNamespace(isfinite=lambda _: True)):
        step.train_step(objective, build_optimizer(objective, settings.optimizer), feed, step=0, diagnose=False)
    weights = torch.cat([value.flatten() for value in objective.parameters()])
    return f"{int((~torch.isfinite(weights)).sum())} of {weights.numel()}"


PASSING = [("loss nan", 1), ("loss nan", 2), ("loss inf", 2), ("loss + inf", 1), ("loss + inf", 2), ("gradient nan", 2), ("gradient inf", 1)]  # fmt: skip


@pytest.mark.parametrize(("what", "size"), PASSING)
def test_a_bad_step_moves_nothing(data: Path, tmp_path: Path, injected: list[str], what: str, size: int) -> None:
    """Step 5 is poisoned on the last rank: skipped on all, and the checkpoint after it has the weights and moments from before."""
    made = config(steps=8)
    settings = dataclasses.replace(made, checkpoint=dataclasses.replace(made.checkpoint, every=1))
    out = tmp_path / "run"
    codes = run_ranks(size, lambda _: train(settings, data, out, what=what, at=range(5, 6), rank=size - 1))
    assert codes == [0] * size
    before, after, later = (read(tmp_path / "run" / "checkpoints" / f"step-{n:08d}") for n in (5, 6, 7))
    for mine, theirs in ((before.weights, after.weights), (before.optimizer, after.optimizer)):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert any(not torch.equal(after.weights[name], later.weights[name]) for name in after.weights)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "step 6: the gradient is not a finite number; the step was skipped." in log
    assert f"Its rows are shown by `electra replay {tmp_path / 'run'} --step 6`." in log
    injected.append(f"{what}, {size} rank{'s' * (size > 1)}")


@pytest.mark.parametrize("size", [1, 2])
def test_too_many_end_the_run_with_a_good_checkpoint(
    data: Path, tmp_path: Path, injected: list[str], size: int
) -> None:
    out = tmp_path / "run"
    codes = run_ranks(size, lambda _: train(config(), data, out, what="loss nan", at=range(5, 99), rank=size - 1))
    assert codes == [76] * size
    number, path = numbered(out / "checkpoints")[-1]
    saved = read(path)
    assert number == 5 + BAD_STEPS_IN_A_ROW and saved.state["bad_steps"] == BAD_STEPS_IN_A_ROW
    assert all(bool(torch.isfinite(tensor).all()) for tensor in saved.weights.values())
    injected.append(f"loss nan in {BAD_STEPS_IN_A_ROW} steps in a row, {size} rank{'s' * (size > 1)}")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("numbers") / "whole"
    assert run_ranks(1, lambda _: train(config(), data, out)) == [0]
    return out


@pytest.mark.parametrize(("what", "size"), [("weight nan", 1), ("weight inf", 2), ("moment nan", 1), ("moment inf", 1)])
def test_bad_weights_and_moments_are_never_saved(
    data: Path, whole: Path, tmp_path: Path, injected: list[str], what: str, size: int
) -> None:
    """A flipped bit in memory: the run ends with 76, the last good checkpoint stays, and the same command ends as if nothing had been."""
    out = tmp_path / "run"
    codes = run_ranks(size, lambda _: train(config(), data, out, what=what, at=range(6, 7)))
    assert codes == [76] * size
    number, path = numbered(out / "checkpoints")[-1]
    assert number == 4
    assert all(bool(torch.isfinite(tensor).all()) for tensor in read(path).weights.values())
    assert run_ranks(1, lambda _: train(config(), data, out)) == [0]
    if size == 1:
        assert digest(out) == digest(whole) and curve(out) == curve(whole)
    injected.append(f"{what}, {size} rank{'s' * (size > 1)}")


def test_the_message_of_the_end(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    words = r"for 10 steps, up to step 15; the weights from before are saved\. Its rows are shown by"
    with pytest.raises(Diverged, match=words):
        train(config(), data, tmp_path / "run", what="loss nan", at=range(5, 99))
