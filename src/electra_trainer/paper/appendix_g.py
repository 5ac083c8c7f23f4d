"""ELECTRA as a masked language model (Appendix G): what an optimal discriminator says about the words of a language.

For a context c with one token masked out, Appendix G writes the discriminator's loss as a sum over the vocabulary and finds its
critical point, D = p_data (a + p_G) / (a p_data + p_G). Solved for p_data it is

    p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)),      a = (1 - p_mask) / p_mask

with D the probability that x is the original. A real discriminator is not optimal, so over a vocabulary this need not add up to 1.

What the networks say of each token of a sentence, for many sentences at once, without padding.

A sentence is a row of ids `[CLS] … [SEP]`. Sentences of one length are computed together, at most `TOKENS_TOGETHER` tokens at a time,
so memory does not grow with their number.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import require
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.objectives.vocabulary_softmax import log_probability
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, Learned, SentenceContrast


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


TOKENS_TOGETHER = 1 << 14
"""Tokens in one forward pass; a row that is longer is computed alone."""


def passes(rows: int, tokens: int) -> list[slice]:
    """The rows of each forward pass, of `rows` rows of `tokens`."""
    size = max(1, TOKENS_TOGETHER // tokens)
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def device_of(network: nn.Module) -> torch.device:
    """Where a network's weights are."""
    return next(network.parameters()).device


@torch.no_grad()
def replaced_logits(network: Discriminator, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
    """The discriminator's logit of "replaced" for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    One forward pass a sentence, read as it is.
    """
    found: dict[int, Tensor] = {}
    for members, ids_NT in _of_equal_length(sentences):
        ids_NT = ids_NT.to(device_of(network))
        parts = [network(ids_NT[part], encode_rows(ids_NT[part])).cpu() for part in passes(*ids_NT.shape)]
        logits_NT = torch.cat(parts)
        found.update(zip(members, logits_NT[:, 1:-1], strict=True))
    return [found[index] for index in range(len(sentences))]


@torch.no_grad()
def token_log_probabilities(
    network: TokenPredictor, sentences: Sequence[Sequence[int]], *, mask: int, temperature: float = 1.0
) -> list[Tensor]:
    """Log p(x_t | x without t) for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    Each token is masked in turn, so a sentence takes T - 2 forward passes.

    Args:
        network: predicts the words.
        sentences: rows of ids, at least three each.
        mask: id of [MASK].
        temperature: divides the logits.
    """
    found: dict[int, Tensor] = {}
    words_VE, bias_V = network.output()
    for members, ids_NT in _of_equal_length(sentences):
        ids_NT = ids_NT.to(words_VE.device)
        tokens = ids_NT.shape[1]
        # one masked token of one sentence is one item
        items_M = torch.arange(len(members) * (tokens - 2), device=ids_NT.device)
        parts = []
        for part in passes(len(items_M), tokens):
            items_m = items_M[part]
            input_mT, column_m = ids_NT[items_m // (tokens - 2)], items_m % (tokens - 2) + 1
            slots_m = torch.arange(len(items_m), device=ids_NT.device) * tokens + column_m
            labels_m = input_mT.flatten()[slots_m]
            input_mT.view(-1)[slots_m] = mask
            projected_mE = network.project(input_mT, encode_rows(input_mT), slots_m)
            parts.append(log_probability(projected_mE / temperature, words_VE, bias_V / temperature, labels_m).cpu())
        found.update(zip(members, torch.cat(parts).view(len(members), tokens - 2), strict=True))
    return [found[index] for index in range(len(sentences))]


def _of_equal_length(sentences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor]]:
    """The sentences of each length: where they stand, and their ids, int64 [N, T]."""
    by_length: dict[int, list[int]] = {}
    for index, sentence in enumerate(sentences):
        by_length.setdefault(len(sentence), []).append(index)
    for length in sorted(by_length):
        members = by_length[length]
        yield members, torch.tensor([sentences[index] for index in members], dtype=torch.int64)
