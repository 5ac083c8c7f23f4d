"""ELECTRA as a masked language model (Appendix G): what an optimal discriminator says about the words of a language.

For a context c with one token masked out, Appendix G writes the discriminator's loss as a sum over the vocabulary and finds its
critical point, D = p_data (a + p_G) / (a p_data + p_G). Solved for p_data it is

    p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)),      a = (1 - p_mask) / p_mask

with D the probability that x is the original. A real discriminator is not optimal, so over a vocabulary this need not add up to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.checks import require
from electra_trainer.config import Config
from electra_trainer.methods import RTD, Learned, SentenceContrast


def log_likelihood(replaced_logit: Tensor, log_p_generator: Tensor, *, p_mask: float) -> Tensor:
    """Log p_data(x | c) by Appendix G, elementwise; fp32 logarithms throughout, so that no small p_G is lost.

    Args:
        replaced_logit: the discriminator's logit of "x was replaced", with x put into the context: D = sigmoid(-logit).
        log_p_generator: log p_G(x | c), of the same shape.
        p_mask: share of the discriminator's tokens that were masked, above 0 and at most 1. At 1 (a = 0) it is D itself.
    """
    odds = torch.tensor((1 - p_mask) / p_mask, dtype=replaced_logit.dtype, device=replaced_logit.device)
    log_fake = odds.log() + F.logsigmoid(replaced_logit)  # log a (1 - D)
    return F.logsigmoid(-replaced_logit) + log_p_generator - torch.logaddexp(log_fake, log_p_generator)


class MaskedShare(NamedTuple):
    """p_mask of a run, or why there is none."""

    p_mask: float | None
    note: str = ""
    """Empty where `p_mask` is plainly the run's masking.fraction."""


def masked_share(config: Config | None, *, given: float | None = None) -> MaskedShare:
    """p_mask of Appendix G: the share of the tokens in the discriminator's loss that were masked in training.

    The run's masking.fraction; less by the inputs that `sentence-contrast` leaves as they are; 1 for ELECTRA 15 %, whose loss
    counts masked tokens only, so that D is p_data itself.

    Args:
        config: the run's, None for an exported folder.
        given: a value that overrides it.

    Raises:
        ConfigError: `given` is no share.
    """
    if given is not None:
        require(0 < given <= 1, "--p-mask", given, "a share above 0 and at most 1")
    if config is None:
        missing = "an exported folder does not say with what share it was masked: give --p-mask, or the run"
        return MaskedShare(given, "" if given is not None else missing)
    objective, generator, fraction = config.objective, config.generator, config.masking.fraction
    if not isinstance(generator, Learned):
        return MaskedShare(None, "Appendix G needs the probabilities of a generator that is a network")
    if generator.disallow_correct:
        return MaskedShare(None, "Appendix G assumes a generator that may sample the original word; this one never did")
    if given is not None:
        return MaskedShare(given)
    if isinstance(objective, RTD) and objective.loss_over == "masked":
        return MaskedShare(1.0, "the discriminator's loss counted masked tokens only: p_mask = 1, a = 0")
    if isinstance(objective, SentenceContrast):
        return MaskedShare(
            fraction * (1 - objective.unchanged), "the inputs that stayed as they are lower p_mask to their share"
        )
    if config.masking.rarity:
        return MaskedShare(
            fraction, "masking.rarity: rare words were masked more often than p_mask says, common ones less"
        )
    return MaskedShare(fraction)


def sampling_temperature(config: Config | None) -> float:
    """The temperature that the run's generator sampled with: p_G of Appendix G is what replacements were drawn from."""
    generator = config.generator if config is not None else None
    return generator.temperature if isinstance(generator, Learned) else 1.0
