"""Adversarial training of the generator by REINFORCE (Appendix F).

What:      the generator is rewarded at each slot for the discriminator's loss there; it is not trained on the original
words.
Equation:  ∇θ_G ≈ Σ over m of ∇ log p_G(x̂_t | x_masked) [R(x̂_t) - b_t], ascended; L_Disc as in ELECTRA, descended
Reward:    R = -log D(x̂_t) where x̂_t is the original, -log(1 - D(x̂_t)) otherwise, D the probability of "original":
           what the discriminator pays at t. The appendix prints L_Disc without its minus signs; taken by the letter,
           its argmax would help the discriminator. Here a step of the generator raises what the discriminator
           minimises, and a test says so.
Baseline:  b_t = -log sigmoid(w·h_G(x_masked)_t), the appendix's with the sign of this reward; trained by cross-entropy
           so that the sigmoid matches exp(-R_t), the probability that the discriminator gave to the truth. Its loss
           reaches w alone.
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   policy_loss and baseline_loss, sums over the K slots; discriminator_loss, a sum over the N real tokens.
           generator_loss, the generator's -log p(original), is only measured.
Siblings:  rtd.py, which trains the same generator by maximum likelihood.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer import batch, randomness
from electra_trainer.kernels import vocabulary_softmax
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import TokenPredictor, in_fp32
from electra_trainer.objectives import generation, rtd
from electra_trainer.settings.config import Config, generator_shape
from electra_trainer.settings.methods import Adversarial


class AdversarialReplacedTokenDetection(rtd.GeneratorAndDiscriminator, settings=Adversarial):
    """Generator against discriminator."""

    settings: Adversarial

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        width = generator_shape(config).hidden_size
        self.baseline = initialize(nn.Linear(width, 1), config.model, self.weights("heads"))

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """Sums of the losses over a lane."""
        settings, generator, used_K = self.settings, self.generator, masked.slots_K >= 0
        assert isinstance(generator, TokenPredictor)
        hidden_KD = generator.electra(masked.input_BT, masked.batch, masked.slots_K)
        projected_KE = generator.as_words(hidden_KD)
        with torch.no_grad():
            generated = generation.generate(
                generator, self.config, masked, rng, diagnose=diagnose, project=projected_KE.detach()
            )
        corrupted = generation.corrupt(masked, generated.sampled_K)
        logits_BT = self.discriminator(corrupted.input_BT, masked.batch)
        paid_BT = rtd.replaced_losses(logits_BT, corrupted.replaced_BT)
        log_p_K = vocabulary_softmax.log_probability(
            projected_KE, *generator.output(), generated.sampled_K.masked_fill(~used_K, -100)
        )
        baseline_K = in_fp32(self.baseline, hidden_KD.detach())[:, 0]
        reward_K = paid_BT.detach().flatten()[masked.slots_K.clamp(min=0)]
        policy, baseline = reinforce(log_p_K, reward_K, baseline_K, used_K)
        assert generated.loss is not None
        disc_sum = (paid_BT * masked.batch.real_BT).sum()
        terms = {
            "generator_loss": batch.Term(sum=generated.loss.detach(), count="masked", weight=0.0),
            "policy_loss": batch.Term(sum=policy, count="masked", weight=settings.policy_weight),
            "baseline_loss": batch.Term(sum=baseline, count="masked", weight=settings.baseline_weight),
            "discriminator_loss": batch.Term(sum=disc_sum, count="real", weight=settings.weight),
        }
        diagnostics = generation.generator_diagnostics(generated, masked)
        diagnostics |= rtd.discriminator_diagnostics(corrupted, logits_BT)
        return batch.Losses(terms=terms, diagnostics=diagnostics if diagnose else {})


def reinforce(log_p_K: Tensor, reward_K: Tensor, baseline_K: Tensor, used_K: Tensor) -> tuple[Tensor, Tensor]:
    """Policy gradient and baseline of some slots, as sums to be minimised.

    Args:
        log_p_K: the generator's log probability of its samples, with gradient.
        reward_K: R >= 0, without gradient.
        baseline_K: w·h, with gradient to w.
        used_K: bool; other slots count for nothing.
    """
    advantage_K = (reward_K + F.logsigmoid(baseline_K.detach())) * used_K  # R - b, b = -log sigmoid
    cross_entropy_K = F.binary_cross_entropy_with_logits(baseline_K, torch.exp(-reward_K), reduction="none")
    return -(advantage_K * log_p_K).sum(), (cross_entropy_K * used_K).sum()
