"""A generator without a network: samples words by fixed frequencies (§3.2, "unigram"; released: "uniform")."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class WordFrequencies(nn.Module):
    """A distribution over the vocabulary that looks at nothing. It has no parameters; the frequencies are saved with the run.

    Args:
        vocab_size: V. Until `use` is called every word is as frequent as another.
    """

    cumulative_V: Tensor

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.register_buffer("cumulative_V", torch.arange(1, vocab_size + 1, dtype=torch.float64) / vocab_size)

    def use(self, counts_V: Tensor) -> None:
        """Take the frequencies of a corpus: occurrences of each word, [V]; a word that has none is never sampled."""
        sums_V = counts_V.double().cumsum(0)
        self.cumulative_V.copy_(sums_V / sums_V[-1])

    @property
    def probability_V(self) -> Tensor:
        """Probability of each word, fp64 [V]."""
        return self.cumulative_V.diff(prepend=self.cumulative_V.new_zeros(1))

    def sample(self, draws_K: Tensor, *, without_K: Tensor | None = None) -> Tensor:
        """The word at which the cumulative distribution passes each draw from [0, 1), int64 [K].

        Args:
            draws_K: uniform numbers.
            without_K: a word for each draw that is not to be sampled; the others keep their proportions.
        """
        draws_K = draws_K.double()
        if without_K is not None:
            end_K = self.cumulative_V[without_K]
            start_K = torch.where(without_K > 0, self.cumulative_V[without_K - 1], 0.0)
            draws_K = draws_K * (1 - (end_K - start_K))
            draws_K = torch.where(
                draws_K >= start_K, draws_K - start_K + end_K, draws_K
            )  # step over the word's own share
        # right=True finds the first entry above the draw, so a word of probability 0 is never taken
        found_K = torch.searchsorted(self.cumulative_V, draws_K, right=True)
        return found_K.clamp(max=len(self.cumulative_V) - 1)

    def entropy(self) -> Tensor:
        """Nats, fp64 scalar."""
        p_V = self.probability_V
        total: Tensor = -torch.special.xlogy(p_V, p_V).sum()
        return total
