"""Likelihoods of words and scores of sentences by ELECTRA's networks (Appendix G).

For a context c with one token masked out, Appendix G writes the discriminator's loss as a sum over the vocabulary and
finds its critical point, D = p_data (a + p_G) / (a p_data + p_G). Solved for p_data it is

    p_data(x | c) = D(x, c) p_G(x | c) / (a (1 - D(x, c)) + p_G(x | c)),      a = (1 - p_mask) / p_mask

with D the probability that x is the original. A real discriminator is not optimal, so the sum over a vocabulary need
not be 1.

The networks read every token of many sentences, without padding. A sentence is a row of ids `[CLS] … [SEP]`.
Sentences of one length are computed together, at most `TOKENS_TOGETHER` tokens at a time, so memory does not
grow with their number.

Scores of whole sentences are sums over their own tokens ([CLS] and [SEP] are read, but not counted):

    discriminator      log D, the log probability that the token is an original; one forward pass a sentence
    appendix-g         log p_data(x_t | the others) by Appendix G: p_G with the token masked, D with the token in place
    pseudo-likelihood  log p(x_t | the others) by the encoder of an MLM run, each token masked in turn
    encoder            the same by the encoder of replace-mlm, all-tokens-mlm and rtd-mlm, which never read [MASK]
                       in training
    generator          the same by the generator

Appendix G's likelihood is not normalised over the vocabulary: that would take a forward pass of the discriminator for
each word at each place. With an optimal discriminator there would be nothing to normalise.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import exp
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.cost.parameters import slots
from electra_trainer.data.batches import encode_rows
from electra_trainer.errors import ConfigError, did_you_mean, require
from electra_trainer.kernels.vocabulary_softmax import log_probability
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.pretrained.pretrained import Pretrained, load
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD, Learned

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


def masked_share(config: Config | None, *, given: float | None = None) -> MaskedShare:
    """p_mask of Appendix G: the share of the tokens in the discriminator's loss that were masked in training.

    This is the share of a full row that the run's masking chooses (19 of 128 tokens, 4 of 32), lowered by the inputs
    that `sentence-contrast` leaves unchanged and by positions that are drawn twice. It is 1 for ELECTRA 15 %, whose
    loss counts masked tokens only, so that D is p_data itself (a = 0).

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
    objective, generator, masking = config.objective, config.generator, config.masking
    all_masked = isinstance(objective, RTD) and objective.loss_over == "masked"
    rare = given is None and not all_masked and masking.rarity > 0
    faults = {
        "needs the probabilities of a generator that is a network": not isinstance(generator, Learned),
        "assumes a generator that may sample the original word": getattr(generator, "disallow_correct", False),
        "assumes that a sample equal to the original word is an original": getattr(objective, "lucky", "") == "fake",
        "assumes that all words are masked equally often, without masking.rarity": rare,
    }
    if reasons := [reason for reason, found in faults.items() if found]:
        return MaskedShare(None, f"Appendix G {reasons[0]}")
    if given is not None or all_masked:
        return MaskedShare(1.0 if given is None else given)
    share = slots(config) / config.batch.sequence_length
    share = 1 - exp(-share) if masking.draw == "with-replacement" else share
    return MaskedShare(share * (1 - getattr(objective, "unchanged", 0.0)))


def sampling_temperature(config: Config | None) -> float:
    """The temperature at which the run's generator sampled: p_G is the distribution of the replacements."""
    generator = config.generator if config is not None else None
    return generator.temperature if isinstance(generator, Learned) else 1.0


def loaded(pretrained: str | Path | Pretrained) -> Pretrained:
    """A run or an exported folder, loaded or its path."""
    return pretrained if isinstance(pretrained, Pretrained) else load(pretrained)


def own_generator(pretrained: Pretrained) -> TokenPredictor | None:
    """The generator next to the exported network, if there is one (`Pretrained.generator` is an MLM run's encoder
    otherwise).
    """
    return pretrained.generator if pretrained.generator is not pretrained.encoder else None


def most_positions(pretrained: Pretrained) -> int | None:
    """Length of the longest row that every network can read; None: there is no network."""
    networks = (pretrained.discriminator, pretrained.generator, pretrained.encoder)
    counts = [n.electra.encoder.model.max_position_embeddings for n in networks if n is not None]
    return min(counts, default=None)


def passes(rows: int, tokens: int) -> list[slice]:
    """The rows of each forward pass, for `rows` rows of `tokens`."""
    size = max(1, TOKENS_TOGETHER // tokens)
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def device_of(network: nn.Module) -> torch.device:
    """The device of a network's weights."""
    return next(network.parameters()).device


def put(batch: Batch, row_M: Tensor, column_M: Tensor, word_M: Tensor | int) -> tuple[Batch, Tensor]:
    """Copies of rows, each with one word put into a place: a batch [M, T], and the flat index of the places, [M]."""
    copies = Batch(**{name: values_BT[row_M] for name, values_BT in vars(batch).items()})
    slots_M = torch.arange(len(row_M), device=row_M.device) * copies.ids_BT.shape[1] + column_M
    copies.ids_BT.view(-1)[slots_M] = word_M
    return copies, slots_M


@torch.no_grad()
def replaced_logits(network: Discriminator, sentences: Sequence[Sequence[int]]) -> list[Tensor]:
    """The discriminator's logit of "replaced" for each token but [CLS] and [SEP]: fp32 [T - 2] for each sentence.

    One forward pass a sentence, read unchanged.
    """

    def compute(ids_NT: Tensor) -> Tensor:
        parts = [network(ids_NT[part], encode_rows(ids_NT[part])).cpu() for part in passes(*ids_NT.shape)]
        return torch.cat(parts)[:, 1:-1]

    return _by_length(sentences, device_of(network), compute)


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
    words_VE, bias_V = network.output()

    def compute(ids_NT: Tensor) -> Tensor:
        batch, (rows, tokens) = encode_rows(ids_NT), ids_NT.shape
        # one masked token of one sentence is one row
        row_M = torch.arange(rows, device=ids_NT.device).repeat_interleave(tokens - 2)
        column_M = torch.arange(1, tokens - 1, device=ids_NT.device).repeat(rows)
        parts = []
        for part in passes(len(row_M), tokens):
            masked, slots_m = put(batch, row_M[part], column_M[part], mask)
            projected_mE = network.project(masked.ids_BT, masked, slots_m)
            labels_m = ids_NT[row_M[part], column_M[part]]
            parts.append(log_probability(projected_mE / temperature, words_VE, bias_V / temperature, labels_m).cpu())
        return torch.cat(parts).view(rows, tokens - 2)

    return _by_length(sentences, words_VE.device, compute)


def _by_length(
    sentences: Sequence[Sequence[int]], device: torch.device, compute: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Results of `compute` for the sentences of each length, ids int64 [N, T], in the order of the sentences."""
    found: dict[int, Tensor] = {}
    for length in sorted({len(sentence) for sentence in sentences}):
        members = [index for index, sentence in enumerate(sentences) if len(sentence) == length]
        ids_NT = torch.tensor([sentences[index] for index in members], dtype=torch.int64).to(device)
        found.update(zip(members, compute(ids_NT), strict=True))
    return [found[index] for index in range(len(sentences))]


def sentence_scores(
    pretrained: Pretrained, rows: Sequence[Sequence[int]], *, p_mask: float | None, chosen: Sequence[str] | None
) -> tuple[dict[str, list[float]], tuple[str, ...]]:
    """Each score that a run can give of each row `[CLS] … [SEP]` of ids, at least three long; and remarks.

    Args:
        pretrained: a run or an exported folder.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.
        chosen: only these scores, in this order; None: all that the run has.

    Raises:
        ConfigError: this run does not have a chosen score.
    """
    discriminator, generator, encoder = pretrained.discriminator, own_generator(pretrained), pretrained.encoder
    share, note = masked_share(pretrained.config, given=p_mask)
    terms: dict[str, Callable[[], list[Tensor]]] = {}

    @cache
    def predicted(network: TokenPredictor, temperature: float = 1.0) -> list[Tensor]:
        return token_log_probabilities(network, rows, mask=pretrained.specials.mask, temperature=temperature)

    if discriminator is not None:
        judged = cache(partial(replaced_logits, discriminator, rows))
        terms["discriminator"] = lambda: [F.logsigmoid(-logit_T) for logit_T in judged()]
        if generator is not None and share is not None:
            sampled = partial(predicted, generator, sampling_temperature(pretrained.config))
            join = partial(log_likelihood, p_mask=share)
            terms["appendix-g"] = lambda: [*map(join, judged(), sampled())]
    if encoder is not None:
        terms["pseudo-likelihood" if generator is None else "encoder"] = partial(predicted, encoder)
    if generator is not None:
        terms["generator"] = partial(predicted, generator)
    names = chosen or [*terms]
    if missing := [name for name in names if name not in terms]:
        raise ConfigError(
            f"score {missing[0]!r}: this run does not have it{f' ({note})' if note else ''}."
            f"{did_you_mean(missing[0], terms)} It has: {', '.join(terms)}."
        )
    scores = {name: [float(terms_T.double().sum()) for terms_T in terms[name]()] for name in names}
    return scores, (f"no appendix-g: {note}",) if discriminator is not None and note else ()
