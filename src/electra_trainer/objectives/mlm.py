"""Masked language modelling: BERT, the baseline (§3, Table 1).

What:      predict the words at masked positions with the full-size encoder.
Equation:  L_MLM = -Σ log p(x_t | x_masked) over the chosen positions
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss, a sum over the K chosen positions (named as in RTD, so that runs compare).
Siblings:  rtd.py adds a discriminator behind a smaller one of these.
"""

from torch import Tensor

from electra_trainer import batch, randomness
from electra_trainer.kernels import vocabulary_softmax
from electra_trainer.model.networks import TokenPredictor, build_masked_lm
from electra_trainer.objectives import protocol
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM


class MaskedLanguageModelling(protocol.Objective, settings=MLM):
    """One token predictor of the full shape."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.encoder = build_masked_lm(config, self.weights("kept"))

    def counts(self, masked: batch.Masked) -> dict[str, Tensor]:
        """`masked`: chosen positions."""
        return {"masked": protocol.slots(masked)}

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """Sum of the loss over a lane."""
        hidden_KD = self.encoder.electra(masked.input_BT, masked.batch, masked.slots_K)
        tokens = predict(self.encoder, hidden_KD, masked, diagnose=diagnose)
        terms = {"generator_loss": batch.Term(sum=tokens.loss, count="masked", weight=1.0)}
        diagnostics = {
            "used_K": masked.slots_K >= 0,
            "generator_correct_K": tokens.correct_K,
            "generator_entropy_K": tokens.entropy_K,
        }
        return batch.Losses(terms=terms, diagnostics=diagnostics if diagnose else {})


def predict(
    encoder: TokenPredictor, hidden_KD: Tensor, masked: batch.Masked, *, diagnose: bool
) -> vocabulary_softmax.TokenSoftmax:
    """L_MLM of an encoder that gave these hidden states, a sum over the K slots."""
    return vocabulary_softmax.token_softmax(
        encoder.as_words(hidden_KD), *encoder.output(), labels_K=masked.labels_K, draws_K=None, diagnose=diagnose
    )
