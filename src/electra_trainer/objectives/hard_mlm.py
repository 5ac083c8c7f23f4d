"""Masked language modelling of tokens that are hard to predict (Appendix H, the second strategic masking).

What:      "training a model to guess which tokens BERT would struggle to predict if they were masked out": a small
           encoder, the guesser, reads the unmasked row and gives at each token a guess g of BERT's loss there. Of a
           pool of positions, drawn as ever and several times as many as are wanted, k different ones are masked, each
           draw in proportion to the guesses of those that are left.
Equation:  L_MLM + w Σ (g_t - L_t)² over the chosen positions, L_t = -log p(x_t | x_masked) without gradient
Inputs:    Masked [B, T]: the pool, masked.
Outputs:   generator_loss (as in mlm.py) and guess_loss, sums over the K chosen positions.
Siblings:  mlm.py draws all positions alike; `masking.rarity` makes the guess from a word's frequency.

The pool follows from (seed, step, lane) and the choice from it, more random numbers of the lane and the weights, so a
resumed run makes the same choices. In evaluation the choice is uniform, so that held-out losses compare with other
runs'.
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Losses, Masked, Term
from electra_trainer.kernels import vocabulary_softmax
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import build_encoder, in_fp32
from electra_trainer.objectives import mlm
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config, guesser_shape
from electra_trainer.settings.methods import HardMLM

LEAST = 1e-3
"""Nats; the least guess that a position is drawn by."""


class HardMaskedLanguageModelling(mlm.MaskedLanguageModelling, settings=HardMLM):
    """A token predictor of the full shape, and a guesser, which shares its embeddings."""

    settings: HardMLM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        shape, embeddings = guesser_shape(config), self.encoder.electra.embeddings
        weights = self.weights("heads")
        self.guesser = initialize(build_encoder(shape, embeddings=embeddings), shape, weights, leave=embeddings)
        self.guess = initialize(nn.Linear(shape.hidden_size, 1), shape, weights)
        # BERT's first loss; else its error fills the clipped gradient
        nn.init.constant_(self.guess.bias, math.log(shape.vocab_size))

    @property
    def static(self) -> bool:
        """No: the choice is drawn too, and its number follows from the ids."""
        return False

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: positions that will be chosen."""
        return {"masked": self.wanted(masked).sum()}

    def wanted(self, masked: Masked) -> Tensor:
        """K of each row, int64 [B]: of its n real tokens, as `masking` says, at most its pool."""
        real_B, pool_B = masked.batch.real_BT.sum(1), masked.chosen_BT.sum(1)
        length = masked.chosen_BT.shape[1]
        k_B = real_B.new_tensor([self.config.masking.positions(real, length) for real in real_B.tolist()])
        return torch.minimum(k_B, pool_B)

    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sums of both losses over a lane."""
        guess_BT = self.guessed(masked)
        chosen = self.chosen(masked, guess_BT.detach() if self.training else torch.ones_like(guess_BT), rng)
        hidden_KD = self.encoder.electra(chosen.input_BT, chosen.batch, chosen.slots_K)
        log_p_K = vocabulary_softmax.log_probability(
            self.encoder.as_words(hidden_KD), *self.encoder.output(), chosen.labels_K
        )
        error = F.mse_loss(guess_BT.flatten()[chosen.slots_K], -log_p_K.detach(), reduction="sum")
        terms = {
            "generator_loss": Term(sum=-log_p_K.sum(), count="masked", weight=1.0),
            "guess_loss": Term(sum=error, count="masked", weight=self.settings.guess_weight),
        }
        if not diagnose:
            return Losses(terms=terms)
        with torch.no_grad():
            tokens = mlm.predict(self.encoder, hidden_KD, chosen, diagnose=True)
        # of the pool: what is recorded belongs to the slots that were given
        used_K = chosen.chosen_BT.flatten()[masked.slots_K]
        diagnostics = {"used_K": used_K, "corrupted_BT": chosen.input_BT}
        for name, value in (("correct", tokens.correct_K), ("entropy", tokens.entropy_K)):
            diagnostics[f"generator_{name}_K"] = value.new_zeros(len(used_K)).masked_scatter(used_K, value)
        return Losses(terms=terms, diagnostics=diagnostics)

    def guessed(self, masked: Masked) -> Tensor:
        """The guesser's guess of BERT's loss at each token of the unmasked rows, in nats, above 0, fp32 [B, T]."""
        hidden_BTD = self.guesser(masked.batch.ids_BT, masked.batch)
        return F.softplus(in_fp32(self.guess, hidden_BTD)[..., 0])

    def chosen(self, masked: Masked, guess_BT: Tensor, rng: Rng) -> Masked:
        """K of the pool of each row, each draw in proportion to `guess_BT`; the rest of the pool has its words back.

        As in data/masking.py: the first to arrive, when each waits an exponential time with its guess as rate.
        """
        batch, pool_BT = masked.batch, masked.chosen_BT
        draw_BT = rng.uniform("hard", pool_BT.numel(), pool_BT.device).view_as(guess_BT)
        wait_BT = (-torch.log1p(-draw_BT) / guess_BT.clamp(min=LEAST)).masked_fill(~pool_BT, float("inf"))
        rank_BT = wait_BT.argsort(dim=1, stable=True).argsort(dim=1)
        keep_BT = (rank_BT < self.wanted(masked)[:, None]) & pool_BT
        input_BT = torch.where(keep_BT, masked.input_BT, batch.ids_BT)
        return replace(masked, input_BT=input_BT, slots_K=keep_BT.flatten().nonzero()[:, 0])
