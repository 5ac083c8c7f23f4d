"""Replace MLM (§3.5): masked language modelling without [MASK] in the input.

What:      the generator's samples stand where words were masked out; the encoder predicts the original words there.
Equation:  L_MLM(x, θ_G) + w Σ over m of -log p(x_t | x_corrupt)
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss and encoder_loss, sums over the K slots.
Siblings:  mlm.py reads [MASK]; all_tokens_mlm.py predicts every token of the same input; rtd.py says of each whether it was replaced.
"""

from torch import Tensor

from electra_trainer.batch import Losses, Masked, Term
from electra_trainer.model.networks import build_generator, build_masked_lm
from electra_trainer.objectives.generate import exported_generator, generate, generator_diagnostics, generator_terms
from electra_trainer.objectives.losses import corrupt
from electra_trainer.objectives.mlm import exported_encoder
from electra_trainer.objectives.protocol import Exported, Objective, slots, weight_source
from electra_trainer.objectives.vocabulary_softmax import token_softmax
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import ReplaceMLM


class ReplaceMaskedLanguageModelling(Objective, settings=ReplaceMLM):
    """A generator, and a token predictor of the full shape."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        assert isinstance(config.objective, ReplaceMLM)
        self.settings = config.objective
        self.encoder = build_masked_lm(config, weight_source(config, "kept"))
        self.generator = build_generator(config, self.encoder.electra, weight_source(config, "generator"))

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: slots."""
        return {"masked": slots(masked)}

    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sums of both losses over a lane."""
        generated = generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        corrupted = corrupt(masked, generated.sampled_K)
        tokens = token_softmax(
            self.encoder.project(corrupted.input_BT, masked.batch, masked.slots_K),
            *self.encoder.output(),
            labels_K=masked.labels_K,
            draws_K=None,
            diagnose=diagnose,
        )
        terms = generator_terms(generated, self.settings.generator_weight)
        terms["encoder_loss"] = Term(sum=tokens.loss, count="masked", weight=self.settings.weight)
        if not diagnose:
            return Losses(terms=terms)
        diagnostics = {"encoder_correct_K": tokens.correct_K, "encoder_entropy_K": tokens.entropy_K}
        diagnostics["corrupted_BT"] = corrupted.input_BT
        return Losses(terms=terms, diagnostics=generator_diagnostics(generated, masked) | diagnostics)

    def exported(self) -> list[Exported]:
        """The encoder with its token head, and the generator."""
        return [exported_encoder(self.config, self.encoder), *exported_generator(self.config, self.generator)]
