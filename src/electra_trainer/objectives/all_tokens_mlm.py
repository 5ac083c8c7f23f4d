"""All-Tokens MLM (§3.5): BERT and ELECTRA in one; predict every word of the corrupted input, mostly by copying it.

What:      as in Replace MLM samples stand in the input; at every token t the encoder gives a copy probability D (a
           sigmoid layer; `copy = false`: none, D = 0) and a softmax over the vocabulary.
Equation:  p(x_t) = D·1[x_t = x_corrupt_t] + (1 - D)·softmax(x_t);   L_MLM(x, θ_G) + w Σ over all tokens of -log p(x_t)
Inputs:    Masked [B, T] with K chosen positions.
Outputs:   generator_loss, a sum over the K slots; encoder_loss, a sum over the N real tokens, specials included.
Siblings:  replace_mlm.py predicts the chosen positions only; rtd.py keeps D and drops the softmax.

The softmax at all tokens is computed a chunk at a time (vocabulary_softmax.py): memory does not grow with tokens times
vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer import batch, randomness
from electra_trainer.kernels import vocabulary_softmax
from electra_trainer.model.attention import at
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import build_generator, build_masked_lm, in_fp32
from electra_trainer.objectives import generation, mlm, protocol, rtd
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import AllTokensMLM


class AllTokensMaskedLanguageModelling(protocol.Objective, settings=AllTokensMLM):
    """A generator, a token predictor of the full shape, and its copy layer, if it has one."""

    settings: AllTokensMLM

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.encoder = build_masked_lm(config, self.weights("kept"))
        self.generator = build_generator(config, self.encoder.electra, self.weights("generator"))
        layer = nn.Linear(config.model.hidden_size, 1) if self.settings.copy else None
        self.copy = layer and initialize(layer, config.model, self.weights("heads"))

    def counts(self, masked: batch.Masked) -> dict[str, Tensor]:
        """`masked`: slots. `real`: tokens that are not padding."""
        return {"masked": protocol.slots(masked), "real": masked.batch.real_BT.sum()}

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """Sums of both losses over a lane."""
        real_BT = masked.batch.real_BT
        generated = generation.generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        corrupted = generation.corrupt(masked, generated.sampled_K)
        hidden_BTD = self.encoder.electra(corrupted.input_BT, masked.batch)
        copy_BT = None if self.copy is None else in_fp32(self.copy, hidden_BTD)[..., 0]
        labels_BT = masked.batch.ids_BT.masked_fill(~real_BT, -100)
        log_p_BT = vocabulary_softmax.log_probability(
            self.encoder.as_words(hidden_BTD.flatten(0, 1)), *self.encoder.output(), labels_BT.flatten()
        ).view_as(labels_BT)
        mixed_BT = log_p_BT if copy_BT is None else mixture(copy_BT, log_p_BT, copied_BT=~corrupted.replaced_BT)
        loss = -(mixed_BT * real_BT).sum()
        terms = generation.generator_terms(generated, self.settings.generator_weight)
        terms["encoder_loss"] = batch.Term(sum=loss, count="real", weight=self.settings.weight)
        if not diagnose:
            return batch.Losses(terms=terms)
        diagnostics = generation.generator_diagnostics(generated, masked)
        diagnostics["corrupted_BT"] = corrupted.input_BT
        if copy_BT is not None:
            diagnostics |= rtd.discriminator_diagnostics(corrupted, -copy_BT)
        with torch.no_grad():  # by the softmax alone
            tokens = mlm.predict(self.encoder, at(hidden_BTD, masked.slots_K), masked, diagnose=True)
        diagnostics["encoder_correct_K"] = tokens.correct_K
        return batch.Losses(terms=terms, diagnostics=diagnostics)


def mixture(copy_BT: Tensor, log_p_BT: Tensor, *, copied_BT: Tensor) -> Tensor:
    """log(D·1[copied] + (1 - D)·p) with D = sigmoid(copy); fp32, elementwise."""
    log_other_BT = F.logsigmoid(-copy_BT) + log_p_BT
    return torch.where(copied_BT, torch.logaddexp(F.logsigmoid(copy_BT), log_other_BT), log_other_BT)
