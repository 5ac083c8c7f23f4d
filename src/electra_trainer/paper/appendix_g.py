"""ELECTRA as a masked language model (Appendix G): the likelihood of a word by an optimal discriminator.

For a context c with one token masked out, Appendix G writes the discriminator's loss as a sum over the vocabulary and
finds its critical point, D = p_data (a + p_G) / (a p_data + p_G). Solved for p_data it is

    p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)),      a = (1 - p_mask) / p_mask

with D the probability that x is the original. A real discriminator is not optimal, so the sum over a vocabulary need
not be 1.

The second half runs the networks on every token of many sentences, without padding. A sentence is a row of ids `[CLS] …
[SEP]`. Sentences of one length are computed together, at most `TOKENS_TOGETHER` tokens at a time, so memory does not
grow with their number.
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
from electra_trainer.pretrained.pretrained import Pretrained
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, Learned, SentenceContrast

TOKENS_TOGETHER = 1 << 14
"""Tokens in one forward pass; a longer row is computed alone."""


def log_likelihood(replaced_logit: Tensor, log_p_generator: Tensor, *, p_mask: float) -> Tensor:
    """Log p_data(x | c) by Appendix G, elementwise; in fp32 logarithms throughout, so that no small p_G is lost.

    Args:
        replaced_logit: the discriminator's logit of "x was replaced", with x put into the context: D = sigmoid(-logit).
        log_p_generator: log p_G(x | c), of the same shape.
        p_mask: share of the discriminator's tokens that were masked, above 0 and at most 1. At 1 (a = 0) the result is
        D itself.
    """
    odds = torch.tensor((1 - p_mask) / p_mask, dtype=replaced_logit.dtype, device=replaced_logit.device)
    log_fake = odds.log() + F.logsigmoid(replaced_logit)  # log a (1 - D)
    return F.logsigmoid(-replaced_logit) + log_p_generator - torch.logaddexp(log_fake, log_p_generator)


class MaskedShare(NamedTuple):
    """p_mask of a run, or why it has none."""

    p_mask: float | None
    note: str = ""
    """Empty where `p_mask` is simply the run's masking.fraction."""


def masked_share(config: Config | None, *, given: float | None = None) -> MaskedShare:
    """p_mask of Appendix G: the share of the tokens in the discriminator's loss that were masked in training.

    This is the run's masking.fraction, lowered by the inputs that `sentence-contrast` leaves unchanged. It is 1 for
    ELECTRA 15 %, whose loss counts masked tokens only, so that D is p_data itself.

    Args:
        config: the run's, None for an exported folder.
        given: a value that overrides it.

    Raises:
        ConfigError: `given` is not a share.
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
            fraction * (1 - objective.unchanged),
            "inputs left unchanged lower p_mask to masking.fraction x (1 - unchanged)",
        )
    if config.masking.rarity:
        return MaskedShare(
            fraction, "masking.rarity: rare words were masked more often than p_mask says, common words less often"
        )
    return MaskedShare(fraction)


def sampling_temperature(config: Config | None) -> float:
    """The temperature at which the run's generator sampled: p_G is the distribution of the replacements."""
    generator = config.generator if config is not None else None
    return generator.temperature if isinstance(generator, Learned) else 1.0


def own_generator(pretrained: Pretrained) -> TokenPredictor | None:
    """The generator next to the exported network, if there is one (`Pretrained.generator` is an MLM run's encoder
    otherwise).
    """
    return pretrained.generator if pretrained.generator is not pretrained.encoder else None


def most_positions(pretrained: Pretrained) -> int | None:
    """Length of the longest row that every network can read; None: there is no network."""
    networks = (pretrained.discriminator, pretrained.generator, pretrained.encoder)
    counts = [n.electra.embeddings.position_embeddings.num_embeddings for n in networks if n is not None]
    return min(counts, default=None)


def passes(rows: int, tokens: int) -> list[slice]:
    """The rows of each forward pass, for `rows` rows of `tokens`."""
    size = max(1, TOKENS_TOGETHER // tokens)
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def device_of(network: nn.Module) -> torch.device:
    """The device of a network's weights."""
    return next(network.parameters()).device


@torch.no_grad()
def replaced_logits(network: Discriminator, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
    """The discriminator's logit of "replaced" for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    One forward pass a sentence, read unchanged.
    """
    found: dict[int, Tensor] = {}
    for members, ids_NT in _by_length(sentences, device_of(network)):
        parts = [network(ids_NT[part], encode_rows(ids_NT[part])).cpu() for part in passes(*ids_NT.shape)]
        found.update(zip(members, torch.cat(parts)[:, 1:-1], strict=True))
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
    for members, ids_NT in _by_length(sentences, words_VE.device):
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


def _by_length(sentences: Sequence[Sequence[int]], device: torch.device) -> Iterator[tuple[list[int], Tensor]]:
    """The sentences of each length: their indices, and their ids, int64 [N, T]."""
    by_length: dict[int, list[int]] = {}
    for index, sentence in enumerate(sentences):
        by_length.setdefault(len(sentence), []).append(index)
    for length in sorted(by_length):
        members = by_length[length]
        yield members, torch.tensor([sentences[index] for index in members], dtype=torch.int64).to(device)
