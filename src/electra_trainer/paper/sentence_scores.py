"""Scores of whole sentences: sums over their own tokens ([CLS] and [SEP] are read, but not counted).

    discriminator      log D, the log probability that the token is an original; one forward pass a sentence
    appendix-g         log p_data(x_t | the others) by Appendix G: p_G with the token masked, D with the token in place
    pseudo-likelihood  log p(x_t | the others) by the encoder of an MLM run, each token masked in turn
    encoder            the same by the encoder of replace-mlm and all-tokens-mlm, which never read [MASK] in training
    generator          the same by the generator

Appendix G's likelihood is not normalised over the vocabulary: that would take a forward pass of the discriminator for
each word at each place. With an optimal discriminator there would be nothing to normalise.
"""

from collections.abc import Sequence
from functools import cached_property

import torch.nn.functional as F
from torch import Tensor

from electra_trainer.errors import ConfigError, did_you_mean
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.paper import appendix_g
from electra_trainer.pretrained.pretrained import Pretrained


class SentenceScores:
    """The scores that a run can give.

    Args:
        pretrained: a run or an exported folder.
        p_mask: share of masked tokens for `appendix-g`; None: the run's.
        chosen: only these scores; None: all that the run has.

    Raises:
        ConfigError: this run does not have a chosen score.
    """

    def __init__(
        self, pretrained: Pretrained, *, p_mask: float | None = None, chosen: Sequence[str] | None = None
    ) -> None:
        self.pretrained = pretrained
        self.generator = appendix_g.own_generator(pretrained)
        self.p_mask, self.note = appendix_g.masked_share(pretrained.config, given=p_mask)
        has_discriminator, has_generator = pretrained.discriminator is not None, self.generator is not None
        available = {
            "discriminator": has_discriminator,
            "appendix-g": has_discriminator and has_generator and self.p_mask is not None,
            "encoder": pretrained.encoder is not None and has_generator,
            "pseudo-likelihood": pretrained.encoder is not None and not has_generator,
            "generator": has_generator,
        }
        known = [name for name, there in available.items() if there]
        for name in chosen or ():
            if name not in known:
                why = f" ({self.note})" if name == "appendix-g" and self.note else ""
                raise ConfigError(
                    f"score {name!r}: this run does not have it{why}.{did_you_mean(name, known)} "
                    f"It has: {', '.join(known)}."
                )
        self.names = tuple(chosen or known)
        """The scores that are given, in order."""

    @property
    def notes(self) -> list[str]:
        """Remarks for a reader of the scores."""
        if self.pretrained.discriminator is None or not self.note:
            return []
        return [self.note] if "appendix-g" in self.names else [f"no appendix-g: {self.note}"]

    def of(self, rows: Sequence[Sequence[int]]) -> dict[str, list[float]]:
        """Each score of each row `[CLS] … [SEP]` of ids, at least three long."""
        terms = _Terms(self, rows)
        return {name: [float(terms_T.double().sum()) for terms_T in terms.of(name)] for name in self.names}


class _Terms:
    """One term for each token of each row, fp32 [T - 2]; terms that two scores need are computed once."""

    def __init__(self, scores: SentenceScores, rows: Sequence[Sequence[int]]) -> None:
        self.scores = scores
        self.rows = rows

    def of(self, name: str) -> list[Tensor]:
        """The terms of one score."""
        match name:
            case "discriminator":
                return [F.logsigmoid(-logit_T) for logit_T in self._replaced_logits]
            case "appendix-g":
                return self._appendix_g()
            case "generator":
                return self._generator
            case _:
                return self._predicted(self.scores.pretrained.encoder)

    @cached_property
    def _replaced_logits(self) -> list[Tensor]:
        assert self.scores.pretrained.discriminator is not None
        return appendix_g.replaced_logits(self.scores.pretrained.discriminator, self.rows)

    @cached_property
    def _generator(self) -> list[Tensor]:
        return self._predicted(self.scores.generator)

    def _appendix_g(self) -> list[Tensor]:
        p_mask, temperature = self.scores.p_mask, appendix_g.sampling_temperature(self.scores.pretrained.config)
        assert p_mask is not None
        sampled = self._generator if temperature == 1 else self._predicted(self.scores.generator, temperature)
        return [
            appendix_g.log_likelihood(logit_T, log_p_T, p_mask=p_mask)
            for logit_T, log_p_T in zip(self._replaced_logits, sampled, strict=True)
        ]

    def _predicted(self, network: TokenPredictor | None, temperature: float = 1.0) -> list[Tensor]:
        assert network is not None
        mask = self.scores.pretrained.specials.mask
        return appendix_g.token_log_probabilities(network, self.rows, mask=mask, temperature=temperature)
