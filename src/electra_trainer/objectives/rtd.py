"""Replaced token detection: ELECTRA (§2).

What:      a small generator fills masked positions with samples; the discriminator says of every token whether it was replaced.
Equation:  min over θ_G, θ_D of  L_MLM(x, θ_G) + λ L_Disc(x, θ_D)
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss, a sum over the K chosen positions; discriminator_loss, a sum over the N real tokens, specials included.
Siblings:  mlm.py is its first half, with the full-size encoder.

No gradient flows from the discriminator through the sampling; both losses reach the shared embeddings.
"""

from __future__ import annotations

from torch import Tensor

from electra_trainer.batch import Losses, Masked, Term
from electra_trainer.config import RTD, Config, generator_shape
from electra_trainer.model.networks import build_discriminator, build_generator
from electra_trainer.objectives.corrupt import corrupt
from electra_trainer.objectives.losses import replaced_loss
from electra_trainer.objectives.protocol import Exported, Objective, weight_generator
from electra_trainer.objectives.token_softmax import token_softmax
from electra_trainer.randomness import Rng


class ReplacedTokenDetection(Objective):
    """Generator and discriminator, trained together."""

    def __init__(self, config: Config, settings: RTD) -> None:
        super().__init__()
        self.config = config
        self.settings = settings
        self.discriminator = build_discriminator(config, weight_generator(config, "discriminator"))
        self.generator = build_generator(config, self.discriminator, weight_generator(config, "generator"))

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: chosen positions. `real`: tokens that are not padding."""
        return {"masked": masked.slots_K.new_tensor(len(masked.slots_K)), "real": masked.batch.real_BT.sum()}

    def forward(self, masked: Masked, rng: Rng, *, look: bool = False) -> Losses:
        """Sums of both losses over a lane."""
        batch = masked.batch
        tokens = token_softmax(
            self.generator.project(masked.input_BT, batch, masked.slots_K),
            *self.generator.output(),
            labels_K=masked.labels_K,
            draws_K=rng.uniform("sample", len(masked.slots_K), batch.ids_BT.device),
            look=look,
        )
        corrupted = corrupt(masked, tokens.sampled_K)
        logits_BT = self.discriminator(corrupted.input_BT, batch)
        terms = {
            "generator_loss": Term(sum=tokens.loss, count="masked", weight=self.settings.generator_weight),
            "discriminator_loss": Term(
                sum=replaced_loss(logits_BT, corrupted.replaced_BT, batch.real_BT),
                count="real",
                weight=self.settings.weight,
            ),
        }
        if not look:
            return Losses(terms=terms)
        seen = {
            "used_K": masked.slots_K >= 0,
            "generator_correct_K": tokens.correct_K,
            "generator_entropy_K": tokens.entropy_K,
            "real_BT": batch.real_BT,
            "corrupted_BT": corrupted.input_BT,
            "replaced_BT": corrupted.replaced_BT,
            "replaced_logit_BT": logits_BT.detach(),
        }
        return Losses(terms=terms, seen=seen)

    def exported(self) -> list[Exported]:
        """The discriminator, which is fine-tuned, and the generator."""
        return [
            Exported(
                name="discriminator",
                network=self.discriminator,
                model=self.config.model,
                architecture="ElectraForPreTraining",
            ),
            Exported(
                name="generator",
                network=self.generator,
                model=generator_shape(self.config),
                architecture="ElectraForMaskedLM",
            ),
        ]
