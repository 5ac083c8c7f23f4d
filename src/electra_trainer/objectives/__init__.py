"""One objective a file; `build` makes the one that a config names."""

from __future__ import annotations

from electra_trainer.config import MLM, RTD, Config
from electra_trainer.objectives.mlm import MaskedLanguageModelling
from electra_trainer.objectives.protocol import Exported, Objective
from electra_trainer.objectives.rtd import ReplacedTokenDetection

__all__ = ["Exported", "Objective", "build"]


def build(config: Config) -> Objective:
    """The objective of `config`, with freshly initialised networks."""
    match config.objective:
        case RTD() as settings:
            return ReplacedTokenDetection(config, settings)
        case MLM():
            return MaskedLanguageModelling(config)
