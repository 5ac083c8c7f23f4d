"""The two pre-training heads (§2), as released."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.config import Model


class TokenHead(nn.Module):
    """Hidden states -> the space of word embeddings: dense, GELU, LayerNorm. [N, D] -> [N, E]."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.embedding_size)
        self.LayerNorm = nn.LayerNorm(model.embedding_size, eps=model.layer_norm_eps)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        projected: Tensor = self.LayerNorm(F.gelu(self.dense(hidden_ND)))
        return projected


class VocabularyBias(nn.Module):
    """The output bias of the tied softmax layer; its weight is the word embedding itself."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.bias = nn.Parameter(Tensor(model.vocab_size).zero_())


class ReplacedHead(nn.Module):
    """Hidden states -> the logit of "this token was replaced": dense, GELU, dense. [B, T, D] -> [B, T].

    The paper writes D = sigmoid(w·h); the released code, and so transformers, has the first dense layer too.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.hidden_size)
        self.dense_prediction = nn.Linear(model.hidden_size, 1)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        logits: Tensor = self.dense_prediction(F.gelu(self.dense(hidden_BTD)))
        return logits.squeeze(-1)
