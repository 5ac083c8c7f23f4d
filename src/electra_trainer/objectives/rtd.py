"""Replaced token detection: ELECTRA (§2).

What:      a small generator fills masked positions with samples; the discriminator says of every token whether it was
replaced.
Equation:  min over θ_G, θ_D of  L_MLM(x, θ_G) + λ L_Disc(x, θ_D)
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss, a sum over the K slots (none from a generator that does not learn); discriminator_loss, a sum
           over the tokens that `loss_over` names: the N real ones, specials included; the chosen ones (ELECTRA 15 %,
           §3.5); or as many random ones (footnote 8).
Siblings:  mlm.py is its first half, with the full-size encoder. adversarial.py trains the generator otherwise,
           sentence_contrast.py adds a loss over inputs; replace_mlm.py and all_tokens_mlm.py give the kept network
           words to predict, rtd_mlm.py both.

No gradient flows from the discriminator through the sampling; both losses reach what the two networks share.
"""

from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor

from electra_trainer.batch import Corrupted, Losses, Masked, Term
from electra_trainer.model.networks import build_discriminator, build_generator
from electra_trainer.objectives import generation, protocol
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import RTD


class GeneratorAndDiscriminator(protocol.Objective):
    """The two networks of replaced token detection and its variants."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.discriminator = build_discriminator(config, self.weights("kept"))
        self.generator = build_generator(config, self.discriminator.electra, self.weights("generator"))

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: slots. `real`: tokens that are not padding."""
        return {"masked": protocol.slots(masked), "real": masked.batch.real_BT.sum()}


class ReplacedTokenDetection(GeneratorAndDiscriminator, settings=RTD):
    """Generator and discriminator, trained together."""

    settings: RTD

    @property
    def draws(self) -> tuple[str, ...]:
        """The numbers that choose other tokens, if the loss counts these."""
        return ("others",) if self.settings.loss_over == "other" else ()

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: slots. `real`: tokens that are not padding; or `chosen`, `others`: those that the loss counts
        instead.
        """
        return {"masked": protocol.slots(masked), **self.counted(masked)}

    def counted(self, masked: Masked) -> dict[str, Tensor]:
        """The discriminator's count alone."""
        if self.settings.loss_over == "all":
            return {"real": masked.batch.real_BT.sum()}
        return {"chosen" if self.settings.loss_over == "masked" else "others": masked.chosen_BT.sum()}

    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sums of both losses over a lane."""
        generated = generation.generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        found = self.discriminate(masked, generated, rng, diagnose=diagnose)
        terms = generation.generator_terms(generated, self.settings.generator_weight)
        return Losses(terms=terms | found.terms, diagnostics=found.diagnostics)

    def discriminate(self, masked: Masked, generated: generation.Generated, rng: Rng, *, diagnose: bool) -> Losses:
        """The discriminator's sum over a lane with the samples put in, and diagnostics of both networks."""
        corrupted = generation.corrupt(masked, generated.sampled_K)
        if self.settings.lucky == "fake":
            corrupted = replace(corrupted, replaced_BT=masked.chosen_BT)
        logits_BT, further = self.read(masked, corrupted, diagnose=diagnose)
        counted_BT = self.counted_tokens(masked, rng)
        (count,) = self.counted(masked)
        loss = replaced_loss(logits_BT, corrupted.replaced_BT, counted_BT)
        terms = {"discriminator_loss": Term(sum=loss, count=count, weight=self.settings.weight)} | further.terms
        diagnostics = generation.generator_diagnostics(generated, masked) | further.diagnostics
        diagnostics |= discriminator_diagnostics(corrupted, logits_BT, counted_BT)
        return Losses(terms=terms, diagnostics=diagnostics if diagnose else {})

    def read(self, masked: Masked, corrupted: Corrupted, *, diagnose: bool) -> tuple[Tensor, Losses]:
        """The discriminator's one pass: logits of "replaced", [B, T], and further losses of the same hidden states,
        here none.
        """
        return self.discriminator(corrupted.input_BT, masked.batch), Losses(terms={})

    def counted_tokens(self, masked: Masked, rng: Rng) -> Tensor:
        """The tokens that the discriminator's loss counts, bool [B, T]."""
        match self.settings.loss_over:
            case "all":
                return masked.batch.real_BT
            case "masked":
                return masked.chosen_BT
            case "other":
                return other_tokens(masked, rng)


def replaced_loss(logits_BT: Tensor, replaced_BT: Tensor, counted_BT: Tensor) -> Tensor:
    """L_Disc: sum over counted tokens of the binary cross-entropy of "replaced"; fp32 scalar."""
    return (replaced_losses(logits_BT, replaced_BT) * counted_BT).sum()


def replaced_losses(logits_BT: Tensor, replaced_BT: Tensor) -> Tensor:
    """Binary cross-entropy of "replaced" at each token, fp32 [B, T]."""
    return F.binary_cross_entropy_with_logits(logits_BT.float(), replaced_BT.float(), reduction="none")


def other_tokens(masked: Masked, rng: Rng) -> Tensor:
    """In each row as many real tokens as were chosen, drawn anew (footnote 8); bool [B, T].

    The footnote says "distinct from the subset that was originally masked out". Were no masked token allowed, none of
    these would ever be a replaced one, and there would be nothing to learn; so the subset is another one, drawn
    independently.
    """
    real_BT, wanted_B1 = masked.batch.real_BT, masked.chosen_BT.sum(1, keepdim=True)
    key_BT = rng.uniform("others", real_BT.numel(), real_BT.device).view_as(real_BT)
    rank_BT = key_BT.masked_fill(~real_BT, 2.0).argsort(1).argsort(1)
    return (rank_BT < wanted_B1) & real_BT


def discriminator_diagnostics(
    corrupted: Corrupted, logits_BT: Tensor, counted_BT: Tensor | None = None
) -> dict[str, Tensor]:
    """Diagnostics of a discriminator; its loss counts the real tokens by default."""
    return {
        "real_BT": corrupted.batch.real_BT,
        "counted_BT": corrupted.batch.real_BT if counted_BT is None else counted_BT,
        "corrupted_BT": corrupted.input_BT,
        "replaced_BT": corrupted.replaced_BT,
        "replaced_logit_BT": logits_BT.detach(),
    }
