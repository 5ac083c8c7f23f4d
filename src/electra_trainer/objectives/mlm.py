"""Masked language modelling: BERT, the baseline (§3, Table 1).

What:      predict the words at masked positions with the full-size encoder.
Equation:  L_MLM = -Σ log p(x_t | x_masked) over the chosen positions
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss, a sum over the K chosen positions (named as in RTD, so that runs compare).
Siblings:  rtd.py adds a discriminator behind a smaller one of these.
"""

from torch import Tensor

from electra_trainer.batch import Losses, Masked, Term
from electra_trainer.model.networks import TokenPredictor, build_masked_lm
from electra_trainer.objectives.protocol import Exported, Objective, slots, weight_source
from electra_trainer.objectives.vocabulary_softmax import token_softmax
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM


class MaskedLanguageModelling(Objective, settings=MLM):
    """One token predictor of the full shape."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.encoder = build_masked_lm(config, weight_source(config, "kept"))

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: chosen positions."""
        return {"masked": slots(masked)}

    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sum of the loss over a lane."""
        tokens = token_softmax(
            self.encoder.project(masked.input_BT, masked.batch, masked.slots_K),
            *self.encoder.output(),
            labels_K=masked.labels_K,
            draws_K=None,
            diagnose=diagnose,
        )
        terms = {"generator_loss": Term(sum=tokens.loss, count="masked", weight=1.0)}
        if not diagnose:
            return Losses(terms=terms)
        diagnostics = {
            "used_K": masked.slots_K >= 0,
            "generator_correct_K": tokens.correct_K,
            "generator_entropy_K": tokens.entropy_K,
        }
        return Losses(terms=terms, diagnostics=diagnostics)

    def exported(self) -> list[Exported]:
        """The encoder with its token head."""
        return [exported_encoder(self.config, self.encoder)]


def exported_encoder(config: Config, encoder: TokenPredictor) -> Exported:
    """An encoder with a token head, to be handed on."""
    return Exported(name="encoder", network=encoder, model=config.model, architecture="ElectraForMaskedLM")
