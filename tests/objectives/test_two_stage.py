"""Two-stage training (§3.2, "Training Algorithms"): what each stage computes, what it moves, and the copy between them."""

import dataclasses
from typing import Any

import pytest
import torch
from tests.reach import RNG, distance, gradients, lively, losses, masked_rows, named
from tests.small import feed, weights
from torch import Tensor

from electra_trainer.errors import ConfigError
from electra_trainer.objectives import build
from electra_trainer.objectives.two_stage import DiscriminatorStage, GeneratorStage
from electra_trainer.settings.config import Config, Schedule
from electra_trainer.settings.methods import MLM, RTD, Learned, TwoStage, Unigram
from electra_trainer.train.optim import Phases, build_optimizer, learning_rate, optimizer_tensors, rate_at
from electra_trainer.train.static_step import StaticStep
from electra_trainer.train.step import train_step


def settings(start: str = "generator", *, steps: int = 6, share: float = 0.5, **changes: Any) -> Config:
    given = lively(
        **{
            "phases": TwoStage(share=share, start=start),  # type: ignore[arg-type]
            "sharing": "none",
            "generator": Learned(width=1.0),
            "schedule": Schedule(steps=steps, warmup_steps=2),
            **changes,
        }
    )
    return dataclasses.replace(given, optimizer=dataclasses.replace(given.optimizer, weight_decay=0.5))


def whole(given: Config) -> Any:
    return build(given).eval()


def changed(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


# --- what each stage computes ---


@pytest.mark.parametrize("loss_over", ["all", "masked", "other"])
@pytest.mark.parametrize("diagnose", [False, True])
def test_each_stage_has_one_term_of_the_whole(loss_over: str, diagnose: bool) -> None:
    """Sum to the bit, count, weight and gradient are equal; with what the record shows of it."""
    given = settings(objective=RTD(weight=7.0, generator_weight=0.5, loss_over=loss_over))  # type: ignore[arg-type]
    objective, masked = whole(given), masked_rows(given)
    together = losses(objective, masked)
    stages = {"generator_loss": GeneratorStage(objective), "discriminator_loss": DiscriminatorStage(objective)}
    for name, stage in stages.items():
        found = stage(masked, RNG, diagnose=diagnose)
        assert list(found.terms) == [name]
        mine, theirs = found.terms[name], together.terms[name]
        assert torch.equal(mine.sum, theirs.sum) and (mine.count, mine.weight) == (theirs.count, theirs.weight)
        assert int(stage.counts(masked)[mine.count]) == int(objective.counts(masked)[mine.count])
        assert distance(gradients(objective, mine.sum), gradients(objective, theirs.sum)) == 0.0
        for key, tensor in found.diagnostics.items():
            assert torch.equal(tensor, together.diagnostics[key]), key
    assert set(found.diagnostics) == (set(together.diagnostics) if diagnose else set())


def test_the_discriminator_is_trained_against_the_frozen_generators_samples() -> None:
    """Another generator, other samples: the stage reads the weights as they are."""
    given = settings()
    objective, masked = whole(given), masked_rows(given)
    stage = DiscriminatorStage(objective)
    before = stage(masked, RNG, diagnose=True).diagnostics["corrupted_BT"]
    with torch.no_grad():
        objective.generator.generator_lm_head.bias[50] = 100.0
    after = stage(masked, RNG, diagnose=True).diagnostics["corrupted_BT"].flatten()[masked.slots_K]
    assert (after == 50).all() and not torch.equal(before.flatten()[masked.slots_K], after)


# --- a run ---


def history(given: Config, *, static: bool = False) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Weights and moments before step 0 and after each step, by the loop's own parts."""
    source, objective = feed(given), build(given)
    optimizer, phases = build_optimizer(objective, given.optimizer), Phases(given, objective)
    objective.train()
    seen: list[dict[str, Tensor]] = []
    moments: list[dict[str, Tensor]] = []

    def note() -> None:
        seen.append(weights(objective))
        moments.append({name: tensor.clone() for name, tensor in optimizer_tensors(objective, optimizer).items()})

    note()
    for step in range(given.schedule.steps):
        phase = phases.at(step)
        if static:
            assert StaticStep(phase, optimizer, source)(step).finite
        else:
            assert train_step(phase, optimizer, source, step=step).finite
        note()
    return seen, moments


def network(name: str) -> str:
    return name.split(".")[0]


@pytest.mark.parametrize("start", ["generator", "fresh"])
@pytest.mark.parametrize(
    ("name", "static"), [("adam", False), ("adamw", False), ("lamb", False), ("adam", True), ("adamw", True)]
)
def test_stage_1_moves_the_generator_and_stage_2_the_discriminator(start: str, name: str, static: bool) -> None:
    """With a weight decay that would move anything: what is frozen is the same to the bit, and its moments too; also in the step
    with fixed shapes, which LAMB has not."""
    given = settings(start)
    given = dataclasses.replace(given, optimizer=dataclasses.replace(given.optimizer, name=name))  # type: ignore[arg-type]
    assert given.optimizer.weight_decay == 0.5 and given.first_stage_steps == 3
    seen, moments = history(given, static=static)
    parts = {prefix: {key for key in seen[0] if network(key) == prefix} for prefix in ("generator", "discriminator")}
    assert changed(seen[0], seen[3]) == parts["generator"]
    assert changed(seen[3], seen[6]) == parts["discriminator"]
    for step in range(6):
        moving = "generator" if step < 3 else "discriminator"
        last = step in (2, 5)  # a stage's last rate is 0, as a run's is
        assert {network(key) for key in changed(seen[step], seen[step + 1])} == (set() if last else {moving})
        held = {key for key in moments[step] if network(key) != moving and key in moments[step + 1]}
        assert not [key for key in held if not torch.equal(moments[step][key], moments[step + 1][key])]


# --- the copy ---


def stirred(given: Config) -> Any:
    """Networks with every weight moved from where it began, so that equal ones are equal because they were copied."""
    objective, generator = whole(given), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return objective


def test_the_copy_is_made_before_the_first_step_of_stage_2_alone() -> None:
    given = settings()
    objective = stirred(given)
    phases, before = Phases(given, objective), weights(objective)
    for step in (0, 1, 2, 4, 5):
        phases.at(step)
        assert changed(before, weights(objective)) == set(), step
    phases.at(3)
    after = weights(objective)
    assert changed(before, after) == named(objective, "discriminator.electra.")
    for name in named(objective, "discriminator.electra."):
        assert torch.equal(after[name], before[name.replace("discriminator.", "generator.")]), name


def test_a_fresh_start_copies_nothing() -> None:
    given = settings("fresh")
    objective = stirred(given)
    phases, before = Phases(given, objective), weights(objective)
    for step in range(6):
        phases.at(step)
    assert changed(before, weights(objective)) == set()


def test_joint_training_has_one_phase() -> None:
    given = lively()
    objective = build(given)
    phases = Phases(given, objective)
    assert given.first_stage_steps == 0 and all(phases.at(step) is objective for step in (0, 10, 19))


# --- the learning rate ---


@pytest.mark.parametrize("shape", ["released", "linear"])
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_each_stage_has_its_own_warm_up_and_decay(shape: str, share: float) -> None:
    """Stage by stage it is the rate of a run of that length."""
    given = settings(share=share, steps=40)
    given = dataclasses.replace(given, schedule=Schedule(steps=40, warmup_steps=5, shape=shape))  # type: ignore[arg-type]
    turn = given.first_stage_steps
    assert turn == round(40 * share)
    rates = [rate_at(step, given) for step in range(40)]
    for first, length in ((0, turn), (turn, 40 - turn)):
        stage = Schedule(steps=length, warmup_steps=5, shape=shape)  # type: ignore[arg-type]
        mine = rates[first : first + length]
        peak = given.optimizer.learning_rate
        assert mine == [learning_rate(step, peak=peak, schedule=stage) for step in range(length)]
        assert mine[-1] == 0.0 and mine.index(max(mine)) in (3, 4)


def test_a_warm_up_longer_than_a_stage_fits_into_it() -> None:
    given = settings(steps=10, share=0.2)
    given = dataclasses.replace(given, schedule=Schedule(steps=10, warmup_steps=9))
    assert given.first_stage_steps == 2
    assert all(rate >= 0 for rate in (rate_at(step, given) for step in range(10)))


@pytest.mark.parametrize(("steps", "share", "turn"), [(1, 0.5, 0), (2, 0.01, 1), (2, 0.99, 1), (100, 0.25, 25)])
def test_both_stages_have_a_step_where_there_are_two(steps: int, share: float, turn: int) -> None:
    given = settings(share=share)
    assert dataclasses.replace(given, schedule=Schedule(steps=steps, warmup_steps=0)).first_stage_steps == turn


# --- what it refuses ---


@pytest.mark.parametrize(
    "changes", [{"sharing": "embeddings"}, {"sharing": "all"}, {"objective": MLM()}, {"generator": Unigram()}]
)
def test_what_it_refuses(changes: dict[str, Any]) -> None:
    """The paper: "keeping the generator's weights frozen", so nothing is shared; and there are two networks that learn."""
    with pytest.raises(ConfigError, match="two-stage"):
        settings(**changes)


def test_the_copy_needs_networks_of_one_size() -> None:
    """The paper: "the weight initialization in this procedure requires having the same size"."""
    with pytest.raises(ConfigError, match="same size"):
        settings(generator=Learned(width=0.5))
