"""What makes arms comparable: each is given the number of steps that spends the same FLOPs, steps or time."""

from __future__ import annotations

from typing import Literal

from electra_trainer.analysis.experiment import Match
from electra_trainer.config import Config
from electra_trainer.cost.flops import Flops, run_flops, steps_for_flops
from electra_trainer.errors import ConfigError
from electra_trainer.train.plan import Length, Timing, seconds, steps_for


def amount_of(
    *, flops: float | None, steps: int | None, budget: str | None, match: Match | None
) -> tuple[Match, float]:
    """What the arms are matched on, and how much of it each is given.

    Raises:
        ConfigError: none or several amounts, or one that `match` is no measure of.
    """
    Length(flops=flops, steps=steps, budget=budget)  # checks each value, and that there is at most one
    fitting: tuple[Match, ...]
    if flops is not None:
        amount, fitting = float(flops), ("paper-flops", "real-flops")
    elif steps is not None:
        amount, fitting = float(steps), ("steps",)
    elif budget is not None:
        amount, fitting = seconds(budget), ("time",)
    else:
        raise ConfigError("how much each arm is given is not said: --flops 1e15, --steps 3000 or --budget 10m.")
    chosen = match or fitting[0]
    if chosen not in fitting:
        needs = {"paper-flops": "--flops", "real-flops": "--flops", "steps": "--steps", "time": "--budget"}[chosen]
        raise ConfigError(f"--match {chosen}: give {needs}.")
    return chosen, amount


def settle(config: Config, *, match: Match, amount: float, timing: Timing | None = None) -> Config:
    """`config` with the steps that spend `amount`; warm-up, decay and intervals are fitted to them (`with_steps`).

    Args:
        amount: operations, steps, or seconds.
        timing: of this arm on this machine, where `match` is "time".
    """
    if match == "time":
        return steps_for(Length(budget=f"{amount}s"), config, timing)
    steps = int(amount) if match == "steps" else steps_within(config, amount, counting=match)
    return steps_for(Length(steps=steps), config, None)


def steps_within(config: Config, flops: float, *, counting: Literal["paper-flops", "real-flops"]) -> int:
    """The most steps that cost no more than `flops`, at least 1."""
    return max(1, steps_for_flops(config, flops=flops, counting="paper" if counting == "paper-flops" else "real"))


def spent(config: Config, steps: int) -> Flops:
    """Operations of the first `steps` steps of a run."""
    return run_flops(config, steps=steps)
