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
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import at, build_generator, build_masked_lm
from electra_trainer.objectives import generation, protocol, rtd
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import AllTokensMLM


class AllTokensMaskedLanguageModelling(protocol.Objective, settings=AllTokensMLM):
    """A generator, a token predictor of the full shape, and its copy layer, if it has one."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        assert isinstance(config.objective, AllTokensMLM)
        self.settings = config.objective
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
        copy_BT = self._copy(hidden_BTD)
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
        diagnostics["encoder_correct_K"] = self._correct(masked, corrupted, hidden_BTD.detach(), copy_BT)
        return batch.Losses(terms=terms, diagnostics=diagnostics)

    def _copy(self, hidden_BTD: Tensor) -> Tensor | None:
        """Logits of copying, fp32; None without that layer."""
        if self.copy is None:
            return None
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            logits_BT: Tensor = self.copy(hidden_BTD.float())[..., 0]
        return logits_BT

    @torch.no_grad()
    def _correct(
        self, masked: batch.Masked, corrupted: batch.Corrupted, hidden_BTD: Tensor, copy_BT: Tensor | None
    ) -> Tensor:
        """Whether the most probable word of the mixture is the original, at the slots; bool [K]."""
        slots_K = masked.slots_K.clamp(min=0)
        projected_KE = self.encoder.as_words(at(hidden_BTD, slots_K))
        input_K = corrupted.input_BT.flatten()[slots_K]
        copy_K = None if copy_BT is None else copy_BT.flatten()[slots_K]
        correct = [torch.zeros_like(input_K[:0], dtype=torch.bool)]
        for part, log_p_kV in vocabulary_softmax.log_probabilities(projected_KE, *self.encoder.output()):
            mixed_kV = log_p_kV
            if copy_K is not None:
                copied_kV = F.one_hot(input_K[part], log_p_kV.shape[1]).bool()
                mixed_kV = mixture(copy_K[part, None], log_p_kV, copied_BT=copied_kV)
            correct.append(mixed_kV.argmax(-1) == masked.labels_K[part])
        return torch.cat(correct)


def mixture(copy_BT: Tensor, log_p_BT: Tensor, *, copied_BT: Tensor) -> Tensor:
    """log(D·1[copied] + (1 - D)·p) with D = sigmoid(copy); fp32, elementwise."""
    log_other_BT = F.logsigmoid(-copy_BT) + log_p_BT
    return torch.where(copied_BT, torch.logaddexp(F.logsigmoid(copy_BT), log_other_BT), log_other_BT)
