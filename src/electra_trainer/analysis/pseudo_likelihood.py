"""What the networks say of each token of a sentence, for many sentences at once, without padding.

A sentence is a row of ids `[CLS] … [SEP]`. Sentences of one length are computed together, at most `TOKENS_TOGETHER` tokens at a time,
so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.objectives.log_probability import log_probability
from electra_trainer.score import encode_rows

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
