"""Equal compute: each arm gets the steps that spend the amount, and its schedule fits them."""

from dataclasses import replace

import pytest
from tests.prepared import small_config

from electra_trainer.cost.flops import run_flops, step_flops
from electra_trainer.errors import ConfigError
from electra_trainer.paper.compare import Match, amount_of, arm_config, settle
from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config

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
    matches: list[Match] = ["paper-flops", "real-flops"]
    for match in matches:
        arms = [settle(arm_config(arm, preset("tiny")), match=match, amount=1e15) for arm in ("electra", "mlm")]
        ratio[match] = arms[1].schedule.steps / arms[0].schedule.steps
    assert ratio["paper-flops"] > ratio["real-flops"] > 1


def test_equal_steps() -> None:
    for arm in ARMS:
        assert settle(arm_config(arm, preset("tiny")), match="steps", amount=77.0).schedule.steps == 77


def test_warm_up_and_intervals_are_fitted_and_what_was_set_by_hand_stays() -> None:
    settled = settle(preset("tiny"), match="steps", amount=100)
    assert settled.schedule.warmup_steps == 10 and settled.evaluation.every == 10
    mine = replace(preset("tiny"), evaluation=replace(preset("tiny").evaluation, every=33))
    assert settle(mine, match="steps", amount=100).evaluation.every == 33


def test_at_least_one_step() -> None:
    with pytest.raises(ConfigError, match="--flops 1: less than one step of tiny"):
        settle(preset("tiny"), match="paper-flops", amount=1.0)


def test_amounts() -> None:
    assert amount_of(flops=1e15, steps=None, match=None) == ("paper-flops", 1e15)
    assert amount_of(flops=1e15, steps=None, match="real-flops") == ("real-flops", 1e15)
    assert amount_of(flops=None, steps=9, match=None) == ("steps", 9.0)
    with pytest.raises(ConfigError, match="give what each arm gets"):
        amount_of(flops=None, steps=None, match=None)
    with pytest.raises(ConfigError, match="--steps and --flops"):
        amount_of(flops=1.0, steps=2, match=None)
    with pytest.raises(ConfigError, match="--match paper-flops or real-flops"):
        amount_of(flops=None, steps=2, match="real-flops")


def test_configs_of_arms_differ_in_the_objective_only() -> None:
    def rest(config: Config) -> Config:
        return replace(config, objective=preset("tiny").objective)

    assert {rest(arm_config(arm, preset("tiny"))) for arm in (*ARMS, "untrained")} == {preset("tiny")}
    with pytest.raises(ConfigError, match=r"--arms elektra: .*Did you mean 'electra'\?"):
        arm_config("elektra", preset("tiny"))
