"""RTD with corrective MLM: one network finds the replaced words and predicts the originals (RTD and Replace MLM of
§3.5 together).

What:      the discriminator has a token head too; from the corrupted input it predicts the original words at the chosen
positions.
Equation:  L_MLM(x, θ_G) + λ L_Disc(x, θ_D) + w Σ over m of -log p_D(x_t | x_corrupt)
Paper:     corrective language modelling of COCO-LM (Meng et al., 2021), without its copy mechanism and at the chosen
positions alone.
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss and encoder_loss, sums over the K slots; discriminator_loss as in rtd.py.
Siblings:  rtd.py has no second head; replace_mlm.py has the second one alone; all_tokens_mlm.py joins both in one
probability.

One pass of the encoder serves both heads. The discriminator is exported as ever, and its encoder once more with the
token head.
"""

from torch import Tensor

from electra_trainer.batch import Corrupted, Losses, Masked, Term
from electra_trainer.model.attention import at
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.objectives import mlm, rtd
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RtdMLM


class CorrectiveReplacedTokenDetection(rtd.ReplacedTokenDetection, settings=RtdMLM):
    """Generator, discriminator, and a token head on the discriminator's encoder."""

    settings: RtdMLM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        electra = self.discriminator.electra
        predictor = TokenPredictor(config.model, encoder=electra)
        self.encoder = initialize(predictor, config.model, self.weights("kept"), leave=electra)

    def read(self, masked: Masked, corrupted: Corrupted, *, diagnose: bool) -> tuple[Tensor, Losses]:
        """Logits of "replaced", [B, T], and the corrective loss, a sum over the K slots."""
        hidden_BTD = self.discriminator.electra(corrupted.input_BT, masked.batch)
        tokens = mlm.predict(self.encoder, at(hidden_BTD, masked.slots_K), masked, diagnose=diagnose)
        terms = {"encoder_loss": Term(sum=tokens.loss, count="masked", weight=self.settings.corrective_weight)}
        diagnostics = {"encoder_correct_K": tokens.correct_K, "encoder_entropy_K": tokens.entropy_K}
        return self.discriminator.replaced(hidden_BTD), Losses(terms=terms, diagnostics=diagnostics)
