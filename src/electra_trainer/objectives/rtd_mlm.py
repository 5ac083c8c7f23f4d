"""RTD with corrective MLM: one network finds the replaced words and predicts the originals (RTD and Replace MLM of
§3.5 together).

What:      the discriminator has a token head too; from the corrupted input it predicts the original words at the chosen
positions.
           With `neighbour_weight` it also tells by its mean hidden state which row follows or precedes another.
Equation:  L_MLM(x, θ_G) + λ L_Disc(x, θ_D) + w Σ over m of -log p_D(x_t | x_corrupt)
           + v Σ over rows i of -log softmax over rows j ≠ i of cos(h_i, h_j) / 0.05, at the neighbour of i
Paper:     corrective language modelling of COCO-LM (Meng et al., 2021), without its copy mechanism and at the chosen
positions alone.
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss and encoder_loss, sums over the K slots; discriminator_loss as in rtd.py; neighbour_loss, a
           sum over rows, the one loss here that reads a row beside the others of its lane.
Siblings:  rtd.py has no second head; replace_mlm.py has the second one alone; all_tokens_mlm.py joins both in one
probability.

One pass of the encoder serves both heads. The discriminator is exported as ever, and its encoder once more with the
token head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.batch import Corrupted, Losses, Masked, Term
from electra_trainer.model.attention import at
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.objectives import mlm, rtd
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RtdMLM

_TEMPERATURE = 0.05


class CorrectiveReplacedTokenDetection(rtd.ReplacedTokenDetection, settings=RtdMLM):
    """Generator, discriminator, and a token head on the discriminator's encoder."""

    settings: RtdMLM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        electra = self.discriminator.electra
        predictor = TokenPredictor(config.model, encoder=electra)
        self.encoder = initialize(predictor, config.model, self.weights("kept"), leave=electra)

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """As rtd.py. `paired`: rows that have a neighbour in the lane."""
        rows = masked.batch.ids_BT.new_tensor(len(masked.batch.ids_BT) // 2 * 2)
        return super().counts(masked) | ({"paired": rows} if self.settings.neighbour_weight else {})

    def read(self, masked: Masked, corrupted: Corrupted, *, diagnose: bool) -> tuple[Tensor, Losses]:
        """Logits of "replaced", [B, T], and the corrective loss, a sum over the K slots."""
        hidden_BTD = self.discriminator.electra(corrupted.input_BT, masked.batch)
        tokens = mlm.predict(self.encoder, at(hidden_BTD, masked.slots_K), masked, diagnose=diagnose)
        terms = {"encoder_loss": Term(sum=tokens.loss, count="masked", weight=self.settings.corrective_weight)}
        if weight := self.settings.neighbour_weight:
            loss = neighbour_loss(hidden_BTD, masked.batch.real_BT)
            terms["neighbour_loss"] = Term(sum=loss, count="paired", weight=weight)
        diagnostics = {"encoder_correct_K": tokens.correct_K, "encoder_entropy_K": tokens.entropy_K}
        return self.discriminator.replaced(hidden_BTD), Losses(terms=terms, diagnostics=diagnostics)


def neighbour_loss(hidden_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Sum over rows of the cross-entropy of finding row i's neighbour, i + 1 of an even i, i - 1 of an odd one, among
    all other rows by the cosine of mean hidden states; fp32 scalar. A last row without a neighbour counts for nothing.
    """
    rows = len(real_BT) // 2 * 2
    with torch.autocast(hidden_BTD.device.type, enabled=False):
        real_BT1 = real_BT[:rows, :, None]
        mean_BD = (hidden_BTD[:rows].float() * real_BT1).sum(1) / real_BT1.sum(1).clamp(min=1)
        unit_BD = F.normalize(mean_BD, dim=1)
        cosine_BB = (unit_BD @ unit_BD.T).fill_diagonal_(-torch.inf)
        neighbour_B = torch.arange(rows, device=hidden_BTD.device) ^ 1
        return F.cross_entropy(cosine_BB / _TEMPERATURE, neighbour_B, reduction="sum")
