"""Which part of an objective step s trains (§3.2, "Training Algorithms"). Joint training has one phase, two-stage training two.

A phase is an objective over some of the networks; the optimizer holds all parameters and moves those that have a gradient.
"""

from __future__ import annotations

from electra_trainer.config import Config
from electra_trainer.cost.flops import first_stage_steps
from electra_trainer.methods import TwoStage
from electra_trainer.objectives import Objective
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.objectives.two_stage import DiscriminatorStage, GeneratorStage, begin_from_generator


class Phases:
    """What each step of a run trains.

    Args:
        config: the run.
        objective: all its networks.
    """

    def __init__(self, config: Config, objective: Objective) -> None:
        self._switch = first_stage_steps(config)
        self._objective = objective
        self._stages: tuple[GeneratorStage, DiscriminatorStage] | None = None
        self._copies = isinstance(config.phases, TwoStage) and config.phases.start == "generator"
        if self._switch:
            assert isinstance(objective, ReplacedTokenDetection)
            self._stages = GeneratorStage(objective), DiscriminatorStage(objective)

    def at(self, step: int) -> Objective:
        """What step `step` trains, in training mode as the whole is; the first step of stage 2 copies the weights before it."""
        if self._stages is None:
            return self._objective
        first, second = self._stages
        if step == self._switch and self._copies:
            assert isinstance(self._objective, ReplacedTokenDetection)
            begin_from_generator(self._objective)
        return first if step < self._switch else second
