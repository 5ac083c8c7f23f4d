"""The learning rate as a pure function of the step (Table 5; released optimization.py)."""

from __future__ import annotations

import dataclasses

from electra_trainer.config import Config, Schedule
from electra_trainer.cost.flops import first_stage_steps


def learning_rate(step: int, *, peak: float, schedule: Schedule, warmup: float | None = None) -> float:
    """Learning rate of optimizer step `step`, counted from 0.

    `released`: peak * (1 - t/T) * min(1, t/warmup): the decay starts at once, so the peak is never quite reached.
    `linear`: up to the peak over the warm-up, then linearly to 0 at T. In both t = step + 1, as the released code ran: the
    first step already moves the weights.

    Args:
        warmup: steps of warm-up where they are no whole number; None: the schedule's.
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
    schedule, turn, peak = config.schedule, first_stage_steps(config), config.optimizer.learning_rate
    if not turn:
        return learning_rate(step, peak=peak, schedule=schedule)
    first, steps = (0, turn) if step < turn else (turn, schedule.steps - turn)
    stage = dataclasses.replace(schedule, steps=steps, warmup_steps=min(schedule.warmup_steps, steps))
    return learning_rate(step - first, peak=peak, schedule=stage)
