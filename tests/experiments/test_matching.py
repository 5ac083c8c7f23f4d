"""Equal compute: each arm gets the steps that spend the amount, and its schedule fits them."""

from dataclasses import replace

import pytest
from tests.prepared import small_config

from electra_trainer.cost.flops import run_flops, step_flops
from electra_trainer.errors import ConfigError
from electra_trainer.paper.compare import Match, amount_of, arm_config, settle, steps_within
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config
from electra_trainer.train.plan import Timing

ARMS = ("electra", "mlm", "replace-mlm", "all-tokens-mlm", "electra-15")
BASES = {"tiny": preset("tiny"), "test": small_config()}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("match", ["paper-flops", "real-flops"])
def test_equal_flops(base: str, arm: str, match: Match) -> None:
    """The last step that fits: one more would cost more than the amount."""
    config = arm_config(arm, BASES[base])
    amount = 1000.5 * step_flops(BASES[base]).paper
    settled = settle(config, match=match, amount=amount)
    counted = "paper" if match == "paper-flops" else "real"
    steps = settled.schedule.steps
    assert (
        getattr(run_flops(settled, steps=steps), counted)
        <= amount
        < getattr(run_flops(settled, steps=steps + 1), counted)
    )


def test_mlm_gets_more_steps_by_paper_flops_than_by_real_ones() -> None:
    """The paper charges dense look-ups and backward = forward, so the generator looks dearer than it is."""
    ratio = {}
    for counting in ("paper-flops", "real-flops"):
        steps = [steps_within(arm_config(arm, preset("tiny")), 1e15, counting=counting) for arm in ("electra", "mlm")]
        ratio[counting] = steps[1] / steps[0]
    assert ratio["paper-flops"] > ratio["real-flops"] > 1


def test_equal_steps_and_equal_time() -> None:
    for arm in ARMS:
        assert settle(arm_config(arm, preset("tiny")), match="steps", amount=77.0).schedule.steps == 77
    fast, slow = (
        settle(preset("tiny"), match="time", amount=600.0, timing=Timing(step=step, evaluation=0.0))
        for step in (0.01, 0.04)
    )
    assert fast.schedule.steps == pytest.approx(4 * slow.schedule.steps, rel=0.01)
    assert 500 < Timing(step=0.04, evaluation=0.0).total(slow) < 600
    seldom = settle(preset("tiny"), match="time", amount=600.0, timing=Timing(step=0.01, evaluation=0.5))
    assert 500 < Timing(step=0.01, evaluation=0.5).total(seldom) < 600


def test_warm_up_and_intervals_are_fitted_and_what_was_set_by_hand_stays() -> None:
    settled = settle(preset("tiny"), match="steps", amount=100)
    assert settled.schedule.warmup_steps == 10 and settled.evaluation.every == 10
    mine = replace(preset("tiny"), evaluation=replace(preset("tiny").evaluation, every=33))
    assert settle(mine, match="steps", amount=100).evaluation.every == 33


def test_at_least_one_step() -> None:
    assert steps_within(preset("tiny"), 1.0, counting="paper-flops") == 1


def test_amounts() -> None:
    none: dict[str, None] = {"flops": None, "steps": None, "budget": None}
    assert amount_of(**none | {"flops": 1e15}, match=None) == ("paper-flops", 1e15)  # type: ignore[arg-type]
    assert amount_of(**none | {"flops": 1e15}, match="real-flops") == ("real-flops", 1e15)  # type: ignore[arg-type]
    assert amount_of(**none | {"steps": 9}, match=None) == ("steps", 9.0)  # type: ignore[arg-type]
    assert amount_of(**none | {"budget": "10m"}, match=None) == ("time", 600.0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not said"):
        amount_of(**none, match=None)
    with pytest.raises(ConfigError, match="--steps and --flops"):
        amount_of(flops=1.0, steps=2, budget=None, match=None)
    with pytest.raises(ConfigError, match="--match time: give --budget"):
        amount_of(flops=None, steps=2, budget=None, match="time")


def test_configs_of_arms_differ_in_the_objective_only() -> None:
    def rest(config: Config) -> Config:
        return replace(config, objective=preset("tiny").objective)

    assert {rest(arm_config(arm, preset("tiny"))) for arm in (*ARMS, "untrained")} == {preset("tiny")}
    with pytest.raises(ConfigError, match=r"--arms elektra: .*Did you mean 'electra'\?.*untrained"):
        arm_config("elektra", preset("tiny"))
