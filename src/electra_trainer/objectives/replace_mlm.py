"""Replace MLM (§3.5): masked language modelling without [MASK] in the input.

What:      the generator's samples replace the masked words; the encoder predicts the original words there.
Equation:  L_MLM(x, θ_G) + w Σ over m of -log p(x_t | x_corrupt)
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss and encoder_loss, sums over the K slots.
Siblings:  mlm.py reads [MASK]; all_tokens_mlm.py predicts every token of the same input; rtd.py says of each whether it
was replaced.
"""

from torch import Tensor

from electra_trainer import batch, randomness
from electra_trainer.model.networks import build_generator, build_masked_lm
from electra_trainer.objectives import generation, mlm, protocol
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import ReplaceMLM


class ReplaceMaskedLanguageModelling(protocol.Objective, settings=ReplaceMLM):
    """A generator, and a token predictor of the full shape."""

    settings: ReplaceMLM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.encoder = build_masked_lm(config, self.weights("kept"))
        self.generator = build_generator(config, self.encoder.electra, self.weights("generator"))

    def counts(self, masked: batch.Masked) -> dict[str, Tensor]:
        """`masked`: slots."""
        return {"masked": protocol.slots(masked)}

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """Sums of both losses over a lane."""
        generated = generation.generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        corrupted = generation.corrupt(masked, generated.sampled_K)
        hidden_KD = self.encoder.electra(corrupted.input_BT, masked.batch, masked.slots_K)
        tokens = mlm.predict(self.encoder, hidden_KD, masked, diagnose=diagnose)
        terms = generation.generator_terms(generated, self.settings.generator_weight)
        terms["encoder_loss"] = batch.Term(sum=tokens.loss, count="masked", weight=self.settings.weight)
        diagnostics = generation.generator_diagnostics(generated, masked) | {
            "encoder_correct_K": tokens.correct_K,
            "encoder_entropy_K": tokens.entropy_K,
            "corrupted_BT": corrupted.input_BT,
        }
        return batch.Losses(terms=terms, diagnostics=diagnostics if diagnose else {})
