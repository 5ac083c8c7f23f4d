"""The learning rate of each step (Table 5; released optimization.py), and the part of an objective that it trains.

Joint training has one phase, two-stage training two (§3.2, "Training Algorithms"). A phase is an objective over some of the networks; the
optimizer holds all parameters and moves those that have a gradient.
"""

import dataclasses

from electra_trainer.objectives import Objective, rtd, two_stage
from electra_trainer.settings.config import Config, Schedule
from electra_trainer.settings.methods import TwoStage


def learning_rate(step: int, *, peak: float, schedule: Schedule, warmup: float | None = None) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    `released`: peak * (1 - t/T) * min(1, t/warmup): the decay starts at once, so the peak is never quite reached.
    `linear`: up to the peak over the warm-up, then linearly to 0 at T. In both t = step + 1, as the released code ran: the
    first step already moves the weights.

    Args:
        warmup: steps of warm-up, if not a whole number; None: the schedule's.
    """
    done = step + 1
    rises = schedule.warmup_steps if warmup is None else warmup
    warm = min(1.0, done / rises) if rises else 1.0
    if schedule.shape == "released":
        return peak * warm * max(0.0, 1 - done / schedule.steps)
    if done <= rises:
        return peak * warm
    return peak * max(0.0, (schedule.steps - done) / max(1, schedule.steps - rises))


def rate_at(step: int, config: Config) -> float:
    """Learning rate of step `step` of a run: its whole schedule, or in two-stage training that of the stage it falls in."""
    schedule, turn, peak = config.schedule, config.first_stage_steps, config.optimizer.learning_rate
    if not turn:
        return learning_rate(step, peak=peak, schedule=schedule)
    first, steps = (0, turn) if step < turn else (turn, schedule.steps - turn)
    stage = dataclasses.replace(schedule, steps=steps, warmup_steps=min(schedule.warmup_steps, steps))
    return learning_rate(step - first, peak=peak, schedule=stage)


class Phases:
    """The part of the objective that each step of a run trains.

    Args:
        config: the run.
        objective: all its networks.
    """

    def __init__(self, config: Config, objective: Objective) -> None:
        self._switch = config.first_stage_steps
        self._objective = objective
        self._stages: tuple[two_stage.GeneratorStage, two_stage.DiscriminatorStage] | None = None
        self._copies = isinstance(config.phases, TwoStage) and config.phases.start == "generator"
        if self._switch:
            assert isinstance(objective, rtd.ReplacedTokenDetection)
            self._stages = two_stage.GeneratorStage(objective), two_stage.DiscriminatorStage(objective)

    def at(self, step: int) -> Objective:
        """The objective of step `step`, in training mode as the whole is; the first step of stage 2 copies the weights before it."""
        if self._stages is None:
            return self._objective
        first, second = self._stages
        if step == self._switch and self._copies:
            assert isinstance(self._objective, rtd.ReplacedTokenDetection)
            two_stage.begin_from_generator(self._objective)
        return first if step < self._switch else second
