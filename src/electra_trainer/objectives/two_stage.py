"""The two stages of two-stage training (§3.2, "Training Algorithms"), made of one replaced token detection.

What:      stage 1 trains the generator alone with L_MLM; stage 2 begins the discriminator's encoder from the
           generator's weights and trains it alone with L_Disc (of rtd_mlm.py also its token loss) against samples of
           the frozen generator.
Inputs, outputs: as rtd.py or rtd_mlm.py; a stage has the terms of the networks that it trains.
Siblings:  rtd.py, which holds both networks, evaluates them and is what a checkpoint stores; train/optim.py, which says
when.
"""

import torch
from torch import Tensor

from electra_trainer import batch, randomness
from electra_trainer.model.networks import TokenPredictor
from electra_trainer.objectives import generation, protocol, rtd, rtd_mlm


class _Stage(protocol.Objective):
    """A stage of a whole objective, which exports the networks of the whole."""

    def __init__(self, whole: rtd.ReplacedTokenDetection) -> None:
        super().__init__(whole.config)
        self._whole = (whole,)  # in a tuple, so that its parameters are not this module's

    def exported(self) -> list[protocol.Exported]:
        """All networks, also those that this stage does not train."""
        return self._whole[0].exported()


class GeneratorStage(_Stage):
    """Stage 1: masked language modelling with the generator. Its parameters are the generator's."""

    def __init__(self, whole: rtd.ReplacedTokenDetection) -> None:
        super().__init__(whole)
        self.generator = whole.generator

    def counts(self, masked: batch.Masked) -> dict[str, Tensor]:
        """`masked`: slots."""
        return {"masked": protocol.slots(masked)}

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """The generator's sum over a lane."""
        (whole,) = self._whole
        generated = generation.generate(self.generator, self.config, masked, rng, diagnose=diagnose)
        terms = generation.generator_terms(generated, whole.settings.generator_weight)
        diagnostics = generation.generator_diagnostics(generated, masked)
        return batch.Losses(terms=terms, diagnostics=diagnostics if diagnose else {})


class DiscriminatorStage(_Stage):
    """Stage 2: replaced token detection against a frozen generator. Its parameters are all but the generator's."""

    def __init__(self, whole: rtd.ReplacedTokenDetection) -> None:
        super().__init__(whole)
        for name, network in whole.named_children():
            if name != "generator":
                self.add_module(name, network)

    @property
    def draws(self) -> tuple[str, ...]:
        """As the whole."""
        return self._whole[0].draws

    def counts(self, masked: batch.Masked) -> dict[str, Tensor]:
        """As the whole: `masked` divides the generator's accuracy."""
        return self._whole[0].counts(masked)

    def forward(self, masked: batch.Masked, rng: randomness.Rng, *, diagnose: bool = False) -> batch.Losses:
        """The discriminator's sums over a lane."""
        (whole,) = self._whole
        with torch.no_grad():
            generated = generation.generate(whole.generator, self.config, masked, rng, diagnose=diagnose)
        return whole.discriminate(masked, generated, rng, diagnose=diagnose)


@torch.no_grad()
def begin_from_generator(whole: rtd.ReplacedTokenDetection) -> None:
    """Copy the generator's encoder over the discriminator's, embeddings too, and its token head where there is one;
    other heads stay.
    """
    assert isinstance(whole.generator, TokenPredictor)
    whole.discriminator.electra.load_state_dict(whole.generator.electra.state_dict())
    if isinstance(whole, rtd_mlm.CorrectiveReplacedTokenDetection):
        whole.encoder.load_state_dict(whole.generator.state_dict())
