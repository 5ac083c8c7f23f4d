"""The two networks: encoder plus head, under transformers' parameter names.

Discriminator  =  transformers' ElectraForPreTraining
TokenPredictor =  transformers' ElectraForMaskedLM: ELECTRA's generator, and the whole of BERT
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.config import Config, Model, generator_shape
from electra_trainer.model.encoder import Embeddings, Encoder
from electra_trainer.model.heads import ReplacedHead, TokenHead, VocabularyBias
from electra_trainer.model.initialize import initialize


class Discriminator(nn.Module):
    """Says of each token whether it was replaced (§2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.electra = Encoder(model)
        self.discriminator_predictions = ReplacedHead(model)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        """Logit of "replaced" for each token, fp32 [B, T]; the head is computed in fp32, where its gradient survives."""
        hidden_BTD = self.electra(ids_BT, batch)
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            logits: Tensor = self.discriminator_predictions(hidden_BTD.float())
        return logits


class TokenPredictor(nn.Module):
    """Predicts words at chosen positions (§2).

    Args:
        model: the shape.
        embeddings: the discriminator's, to share them (§3.2); new ones if None.
    """

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None) -> None:
        super().__init__()
        self.electra = Encoder(model, embeddings=embeddings)
        self.generator_predictions = TokenHead(model)
        self.generator_lm_head = VocabularyBias(model)

    def project(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """The flat positions `slots_K` in the space of word embeddings, [K, E]; they are gathered before the head."""
        hidden_ND = self.electra(ids_BT, batch).flatten(0, 1)
        # index_select's gradient is one kernel on a GPU, that of indexing sorts; a slot that is not used (-1) reads any row
        projected: Tensor = self.generator_predictions(hidden_ND.index_select(0, slots_K.clamp(min=0)))
        return projected

    def output(self) -> tuple[Tensor, Tensor]:
        """Weight [V, E], tied to the word embeddings, and bias [V] of the softmax."""
        return self.electra.embeddings.word_embeddings.weight, self.generator_lm_head.bias

    def forward(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """Logits over the vocabulary at `slots_K`, fp32 [K, V]. Training does without them: objectives/token_softmax.py."""
        return F.linear(self.project(ids_BT, batch, slots_K), *self.output()).float()


def build_discriminator(config: Config, generator: torch.Generator) -> Discriminator:
    """A freshly initialised discriminator."""
    return initialize(Discriminator(config.model), config.model, generator)


def build_generator(config: Config, discriminator: Discriminator, generator: torch.Generator) -> TokenPredictor:
    """A freshly initialised ELECTRA generator whose embeddings are the discriminator's very parameters (§3.2)."""
    shared = discriminator.electra.embeddings
    network = TokenPredictor(generator_shape(config), embeddings=shared)
    return initialize(network, config.model, generator, leave=shared)


def build_masked_lm(config: Config, generator: torch.Generator) -> TokenPredictor:
    """A freshly initialised BERT: a token predictor of the full shape."""
    return initialize(TokenPredictor(config.model), config.model, generator)
