"""RTD with a sentence-level contrastive objective (Appendix H).

What:      a fifth of the inputs is left as it is; a head at [CLS] says of each input whether it was corrupted.
Equation:  L_MLM + λ L_Disc + w Σ over inputs s of -log p(corrupted_s | h_D at its [CLS])
Inputs:    Masked [B, T] with K chosen positions. An input is a piece of a row, `[CLS] … [SEP]`.
Outputs:   generator_loss over the K slots (the generator reads every input masked), discriminator_loss over the N real
           tokens, sentence_loss over the inputs. An input whose samples were all the originals is not corrupted, as a
           token is not (§2).
Siblings:  rtd.py, which is this without the head and with every input noised.
"""

import torch
from torch import Tensor, nn

from electra_trainer.batch import Batch, Corrupted, Losses, Masked, Term
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.networks import in_fp32
from electra_trainer.objectives import generation, rtd
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import SentenceContrast


class ContrastiveReplacedTokenDetection(rtd.GeneratorAndDiscriminator, settings=SentenceContrast):
    """Generator and discriminator, with a head over inputs."""

    settings: SentenceContrast

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sentence = initialize(nn.Linear(config.model.hidden_size, 1), config.model, self.weights("heads"))

    @property
    def draws(self) -> tuple[str, ...]:
        """The numbers that choose the inputs that stay."""
        return ("unchanged",)

    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """`masked`: slots. `real`: tokens that are not padding. `sentences`: inputs."""
        return super().counts(masked) | {"sentences": _starts(masked.batch).sum()}

    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sums of the three losses over a lane."""
        settings, batch = self.settings, masked.batch
        generated = generation.generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        stays_K = unchanged_tokens(batch, rng, settings.unchanged).flatten()[masked.slots_K]
        corrupted = generation.corrupt(masked, torch.where(stays_K, masked.labels_K, generated.sampled_K))
        hidden_BTD = self.discriminator.electra(corrupted.input_BT, batch)
        logits_BT = self.discriminator.replaced(hidden_BTD)
        hidden, label, counted = hidden_BTD, in_corrupted_sentence(corrupted), _starts(batch)
        if picks_out(hidden_BTD.device):
            hidden, label, counted = (each[counted] for each in (hidden, label, counted))
        logit = in_fp32(self.sentence, hidden)[..., 0]
        sentence = rtd.replaced_loss(logit, label, counted)
        disc_sum = rtd.replaced_loss(logits_BT, corrupted.replaced_BT, batch.real_BT)
        terms = generation.generator_terms(generated, settings.generator_weight)
        terms["discriminator_loss"] = Term(sum=disc_sum, count="real", weight=settings.weight)
        terms["sentence_loss"] = Term(sum=sentence, count="sentences", weight=settings.sentence_weight)
        diagnostics = {"sentence_counted": counted, "sentence_corrupted": label, "sentence_logit": logit.detach()}
        diagnostics |= generation.generator_diagnostics(generated, masked)
        diagnostics |= rtd.discriminator_diagnostics(corrupted, logits_BT)
        return Losses(terms=terms, diagnostics=diagnostics if diagnose else {})


def picks_out(device: torch.device) -> bool:
    """Whether the head over inputs reads the first tokens alone. A GPU reads all and counts these: a CUDA graph knows
    no number of inputs.
    """
    return device.type == "cpu"


def _starts(batch: Batch) -> Tensor:
    """Bool [B, T], True at the [CLS] of each input; they are in the order of rows."""
    return batch.real_BT & (batch.position_BT == 0)


def _start_of_each(batch: Batch) -> Tensor:
    """int64 [B, T], flat index of the [CLS] of each token's input."""
    index_BT = torch.arange(batch.ids_BT.numel(), device=batch.ids_BT.device).view_as(batch.ids_BT)
    return index_BT - batch.position_BT


def unchanged_tokens(batch: Batch, rng: Rng, share: float) -> Tensor:
    """Bool [B, T], True on the tokens of inputs that are to stay as they are; one draw decides for a whole input."""
    draw_N = rng.uniform("unchanged", batch.ids_BT.numel(), batch.ids_BT.device)
    return draw_N[_start_of_each(batch)] < share


def in_corrupted_sentence(corrupted: Corrupted) -> Tensor:
    """Bool [B, T], at each [CLS]: does its input hold a replaced token. Elsewhere without meaning."""
    batch = corrupted.batch
    replaced_N = corrupted.replaced_BT.flatten().long()
    found_N = torch.zeros_like(replaced_N).index_add_(0, _start_of_each(batch).flatten(), replaced_N)
    return found_N.view_as(batch.ids_BT) > 0
