"""What a run trains, in words: for the plan and the model card. No torch here."""

from __future__ import annotations

from electra_trainer.config import Config
from electra_trainer.methods import (
    MLM,
    RTD,
    Adversarial,
    AllTokensMLM,
    ObjectiveSettings,
    ReplaceMLM,
    SentenceContrast,
    TwoStage,
    kind_of,
)

_TITLES: dict[type[ObjectiveSettings], str] = {
    RTD: "replaced token detection",
    MLM: "masked language modelling",
    ReplaceMLM: "replace MLM",
    AllTokensMLM: "all-tokens MLM",
    Adversarial: "adversarial replaced token detection",
    SentenceContrast: "replaced token detection with sentence contrast",
}
_LOSS_OVER = {"all": "", "masked": " over the masked tokens", "other": " over as many other tokens"}


def objective_title(config: Config) -> str:
    """The objective and the algorithm; an objective of a user's own goes by its kind."""
    objective = config.objective
    title = _TITLES.get(type(objective), kind_of(type(objective)))
    if isinstance(objective, RTD):
        title += _LOSS_OVER[objective.loss_over]
    return title + (" in two stages" if isinstance(config.phases, TwoStage) else "")
