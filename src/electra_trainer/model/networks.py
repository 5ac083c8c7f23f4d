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
from electra_trainer.methods import Learned
from electra_trainer.model.encoder import Embeddings, Encoder
from electra_trainer.model.frequencies import WordFrequencies
from electra_trainer.model.heads import ReplacedHead, TokenHead, VocabularyBias
from electra_trainer.model.initialize import Weights, initialize


class Discriminator(nn.Module):
    """Says of each token whether it was replaced (§2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.electra = Encoder(model)
        self.discriminator_predictions = ReplacedHead(model)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        """Logit of "replaced" for each token, fp32 [B, T]."""
        return self.replaced(self.electra(ids_BT, batch))

    def replaced(self, hidden_BTD: Tensor) -> Tensor:
        """The same from hidden states; the head is computed in fp32, where its gradient survives."""
        with torch.autocast(hidden_BTD.device.type, enabled=False):
            logits: Tensor = self.discriminator_predictions(hidden_BTD.float())
        return logits


class TokenPredictor(nn.Module):
    """Predicts words at chosen positions (§2).

    Args:
        model: the shape.
        embeddings: the kept network's, to share them (§3.2); new ones if None.
        encoder: the kept network's whole encoder, to share it.
    """

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None, encoder: Encoder | None = None) -> None:
        super().__init__()
        self.electra = encoder if encoder is not None else Encoder(model, embeddings=embeddings)
        self.generator_predictions = TokenHead(model)
        self.generator_lm_head = VocabularyBias(model)

    def project(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """The flat positions `slots_K` in the space of word embeddings, [K, E]; they are gathered before the head."""
        projected: Tensor = self.generator_predictions(at(self.electra(ids_BT, batch), slots_K))
        return projected

    def output(self) -> tuple[Tensor, Tensor]:
        """Weight [V, E], tied to the word embeddings, and bias [V] of the softmax."""
        return self.electra.embeddings.word_embeddings.weight, self.generator_lm_head.bias

    def forward(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor) -> Tensor:
        """Logits over the vocabulary at `slots_K`, fp32 [K, V]. Training does without them: objectives/token_softmax.py."""
        return F.linear(self.project(ids_BT, batch, slots_K), *self.output()).float()


def at(hidden_BTD: Tensor, slots_K: Tensor) -> Tensor:
    """Hidden states at flat positions, [K, D]; a slot that is not used (-1) reads any row."""
    # index_select's gradient is one kernel on a GPU, that of indexing sorts
    return hidden_BTD.flatten(0, 1).index_select(0, slots_K.clamp(min=0))


def build_discriminator(config: Config, weights: Weights) -> Discriminator:
    """A freshly initialised discriminator."""
    return initialize(Discriminator(config.model), config.model, weights)


def build_masked_lm(config: Config, weights: Weights) -> TokenPredictor:
    """A freshly initialised BERT: a token predictor of the full shape."""
    return initialize(TokenPredictor(config.model), config.model, weights)


def build_generator(config: Config, kept: Encoder, weights: Weights) -> TokenPredictor | WordFrequencies:
    """A fresh generator (§3.2), sharing with the encoder `kept` what the config says: the very same parameters."""
    if not isinstance(config.generator, Learned):
        return WordFrequencies(config.model.vocab_size)
    shape = generator_shape(config)
    if config.sharing == "all":
        return initialize(TokenPredictor(shape, encoder=kept), config.model, weights, leave=kept)
    if config.sharing == "embeddings":
        return initialize(
            TokenPredictor(shape, embeddings=kept.embeddings), config.model, weights, leave=kept.embeddings
        )
    return initialize(TokenPredictor(shape), config.model, weights)
