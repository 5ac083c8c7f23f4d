"""Scores of whole sentences: sums over their own tokens ([CLS] and [SEP] are read and not counted).

    discriminator      log D, the log probability that the token is an original; one forward pass a sentence
    appendix-g         log p_data(x_t | the others) by Appendix G: p_G with the token masked, D with the token in its place
    pseudo-likelihood  log p(x_t | the others) by the encoder of an MLM run, each token masked in turn
    encoder            the same, of the encoder that replace-mlm and all-tokens-mlm keep: in training it never read [MASK]
    generator          the same, of the generator

Appendix G's likelihood is not normalised over the vocabulary: that would take a forward pass of the discriminator for each word at each
place. With an optimal discriminator there would be nothing to normalise.
"""

from collections.abc import Sequence
from functools import cached_property

import torch.nn.functional as F
from torch import Tensor

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.paper.appendix_g import (
    log_likelihood,
    masked_share,
    replaced_logits,
    sampling_temperature,
    token_log_probabilities,
)
from electra_trainer.pretrained.pretrained import Pretrained


class SentenceScores:
    """The scores that a run can give.

    Args:
        pretrained: a run or an exported folder.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.
        chosen: only these scores; None: all that the run has.

    Raises:
        ConfigError: a score was chosen that this run does not have.
    """

    def __init__(
        self, pretrained: Pretrained, *, p_mask: float | None = None, chosen: Sequence[str] | None = None
    ) -> None:
        self.pretrained = pretrained
        self.generator = own_generator(pretrained)
        self.p_mask, self.note = masked_share(pretrained.config, given=p_mask)
        known = self._known()
        for name in chosen or ():
            if name not in known:
                why = f" ({self.note})" if name == "appendix-g" and self.note else ""
                raise ConfigError(
                    f"score {name!r}: not of this run{why}.{did_you_mean(name, known)} It has: {', '.join(known)}."
                )
        self.names = tuple(chosen or known)
        """What is given, in order."""

    def _known(self) -> list[str]:
        names = []
        if self.pretrained.discriminator is not None:
            names.append("discriminator")
            if self.generator is not None and self.p_mask is not None:
                names.append("appendix-g")
        if self.pretrained.encoder is not None:
            names.append("encoder" if self.generator is not None else "pseudo-likelihood")
        if self.generator is not None:
            names.append("generator")
        return names

    @property
    def notes(self) -> list[str]:
        """What a reader of the scores should know."""
        if self.pretrained.discriminator is None or not self.note:
            return []
        return [self.note] if "appendix-g" in self.names else [f"no appendix-g: {self.note}"]

    def of(self, rows: Sequence[Sequence[int]]) -> dict[str, list[float]]:
        """Each score of each row `[CLS] … [SEP]` of ids, at least three long."""
        terms = _Terms(self, rows)
        return {name: [float(terms_T.double().sum()) for terms_T in terms.of(name)] for name in self.names}


class _Terms:
    """One term for each token of each row, fp32 [T - 2]; what two scores need is computed once."""

    def __init__(self, scores: SentenceScores, rows: Sequence[Sequence[int]]) -> None:
        self.scores = scores
        self.rows = rows

    def of(self, name: str) -> list[Tensor]:
        """The terms of one score."""
        if name == "discriminator":
            return [F.logsigmoid(-logit_T) for logit_T in self._replaced_logits]
        if name == "appendix-g":
            return self._appendix_g()
        if name == "generator":
            return self._generator
        return self._predicted(self.scores.pretrained.encoder)

    @cached_property
    def _replaced_logits(self) -> list[Tensor]:
        assert self.scores.pretrained.discriminator is not None
        return replaced_logits(self.scores.pretrained.discriminator, self.rows)

    @cached_property
    def _generator(self) -> list[Tensor]:
        return self._predicted(self.scores.generator)

    def _appendix_g(self) -> list[Tensor]:
        p_mask, temperature = self.scores.p_mask, sampling_temperature(self.scores.pretrained.config)
        assert p_mask is not None
        sampled = self._generator if temperature == 1 else self._predicted(self.scores.generator, temperature)
        return [
            log_likelihood(logit_T, log_p_T, p_mask=p_mask)
            for logit_T, log_p_T in zip(self._replaced_logits, sampled, strict=True)
        ]

    def _predicted(self, network: TokenPredictor | None, temperature: float = 1.0) -> list[Tensor]:
        assert network is not None
        mask = self.scores.pretrained.specials.mask
        return token_log_probabilities(network, self.rows, mask=mask, temperature=temperature)


def own_generator(pretrained: Pretrained) -> TokenPredictor | None:
    """The generator, if there is one beside what is kept (`Pretrained.generator` is an MLM run's encoder otherwise)."""
    return pretrained.generator if pretrained.generator is not pretrained.encoder else None
