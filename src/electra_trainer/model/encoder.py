"""The transformer, as BERT's and ELECTRA's: post-LayerNorm, erf-GELU, learned positions (Appendix A).

Parameter names are those of transformers' ELECTRA, so that export is a copy. Precision, compilation and
distribution are applied from outside. One line asks for each kernel that a device computes faster: the layers on a CPU (kernels/native),
attention and the residual LayerNorm on a GPU (kernels/gpu). Tests compare each kernel with this file.

`arithmetic` declares what a class computes. The CPU's kernels replace it, and an export accepts it, only if that is what ELECTRA's
layers compute (kernels/native/layers.py). Whoever changes a `forward` changes the declaration with it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.kernels.gpu import add_norm, gpu_attention
from electra_trainer.kernels.native import layers as native
from electra_trainer.model.attention import Dropout, attend
from electra_trainer.settings.config import Model


class Embeddings(nn.Module):
    """Word + position + segment, LayerNorm, dropout: [B, T] ids -> [B, T, E]. Shared by both networks (§3.2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(model.vocab_size, model.embedding_size)
        self.position_embeddings = nn.Embedding(model.max_position_embeddings, model.embedding_size)
        self.token_type_embeddings = nn.Embedding(model.type_vocab_size, model.embedding_size)
        self.LayerNorm = nn.LayerNorm(model.embedding_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        sum_BTE = (
            self.word_embeddings(ids_BT)
            + self.position_embeddings(batch.position_BT)
            + self.token_type_embeddings(batch.segment_BT)
        )
        embedded: Tensor = self.dropout(self.LayerNorm(sum_BTE))
        return embedded


class SelfAttention(nn.Module):
    """Multi-head attention over the tokens of a piece: [B, T, D] -> [B, T, D]."""

    arithmetic: ClassVar[str] = "softmax(QK'/sqrt(d))V within a piece; nothing is added by position"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.heads = model.num_attention_heads
        self.dropout = model.attention_probs_dropout_prob
        self.query = nn.Linear(model.hidden_size, model.hidden_size)
        self.key = nn.Linear(model.hidden_size, model.hidden_size)
        self.value = nn.Linear(model.hidden_size, model.hidden_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | None) -> Tensor:
        rows, tokens, width = hidden_BTD.shape
        weight = torch.cat([self.query.weight, self.key.weight, self.value.weight])  # one product instead of three
        bias = torch.cat([self.query.bias, self.key.bias, self.value.bias])
        packed = F.linear(hidden_BTD, weight, bias).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout)
        return mixed.transpose(1, 2).reshape(rows, tokens, width)


class AddAndNorm(nn.Module):
    """Projection, dropout, residual, LayerNorm: what follows attention and the feed-forward network."""

    arithmetic: ClassVar[str] = "LayerNorm(dropout(projection) + residual)"

    def __init__(self, model: Model, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, model.hidden_size)
        self.LayerNorm = nn.LayerNorm(model.hidden_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)

    def forward(self, inner: Tensor, residual_BTD: Tensor) -> Tensor:
        projected = self.dense(inner)
        if add_norm.usable(projected):
            return add_norm.add_norm(projected, residual_BTD, self.LayerNorm, dropout=self.dropout.p * self.training)
        normed: Tensor = self.LayerNorm(self.dropout(projected) + residual_BTD)
        return normed


class Attention(nn.Module):
    """Self-attention with its residual; `self` and `output` are transformers' names."""

    arithmetic: ClassVar[str] = "self-attention, then its output"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.self = SelfAttention(model)
        self.output = AddAndNorm(model, model.hidden_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | None) -> Tensor:
        attended: Tensor = self.output(self.self(hidden_BTD, bias_B1TT), hidden_BTD)
        return attended


class Intermediate(nn.Module):
    """First half of the feed-forward network: [.., D] -> [.., intermediate], exact GELU."""

    arithmetic: ClassVar[str] = "erf-GELU(projection)"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.intermediate_size)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return F.gelu(self.dense(hidden_BTD))


class Layer(nn.Module):
    """One transformer layer: [B, T, D] -> [B, T, D]."""

    arithmetic: ClassVar[str] = "attention, then the feed-forward network"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.attention = Attention(model)
        self.intermediate = Intermediate(model)
        self.output = AddAndNorm(model, model.intermediate_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | None) -> Tensor:
        attended_BTD = self.attention(hidden_BTD, bias_B1TT)
        out: Tensor = self.output(self.intermediate(attended_BTD), attended_BTD)
        return out


class Layers(nn.Module):
    """The stack of layers."""

    arithmetic: ClassVar[str] = "each layer in turn"

    def __init__(self, model: Model, layers: Iterable[nn.Module] | None = None) -> None:
        super().__init__()
        self.model = model
        self.layer = nn.ModuleList((Layer(model) for _ in range(model.num_hidden_layers)) if layers is None else layers)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | None) -> Tensor:
        for layer in self.layer:
            hidden_BTD = layer(hidden_BTD, bias_B1TT)
        return hidden_BTD

    def part(self, chosen: slice) -> "Layers":
        """Some of the layers, one at least, as a stack of the same weights."""
        layers = self.layer[chosen]
        return Layers(replace(self.model, num_hidden_layers=len(layers)), layers).train(self.training)


class Encoder(nn.Module):
    """Token ids [B, T] -> hidden states [B, T, D].

    Args:
        model: the shape.
        embeddings: an Embeddings to share; a new one if None.
    """

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None) -> None:
        super().__init__()
        self.embeddings = embeddings if embeddings is not None else Embeddings(model)
        self.embeddings_project: nn.Linear | None = None
        if model.embedding_size != model.hidden_size:
            self.embeddings_project = nn.Linear(model.embedding_size, model.hidden_size)
        self.encoder = Layers(model)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        """Encode `ids_BT`, laid out (segments, positions, pieces) as `batch` says."""
        return _through(self.encoder, self._embedded(ids_BT, batch), batch)

    def halves(self, ids_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states after n // 2 of the n layers (of one layer: before it), and after all, each [B, T, D]."""
        half, middle = len(self.encoder.layer) // 2, self._embedded(ids_BT, batch)
        if half:
            middle = _through(self.encoder.part(slice(half)), middle, batch)
        return middle, _through(self.encoder.part(slice(half, None)), middle, batch)

    def _embedded(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        hidden: Tensor = self.embeddings(ids_BT, batch)
        return hidden if self.embeddings_project is None else self.embeddings_project(hidden)


def _through(layers: Layers, hidden: Tensor, batch: Batch) -> Tensor:
    """`layers` upon the hidden states of a batch, [B, T, D]."""
    if native.fits(layers, hidden):
        return native.run_layers(layers, hidden, batch.piece_BT)
    encoded: Tensor = layers(hidden, attention_bias(batch.piece_BT, hidden.dtype))
    return encoded


def attention_bias(piece_BT: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Added to attention scores, [B, 1, T, T]: 0 between tokens of one piece (or both padding), -inf elsewhere.

    None where nothing is to be kept apart. Where a kernel of our own attends (kernels/gpu/gpu_attention.py) it is the pieces themselves,
    int32 [B, T].
    """
    if gpu_attention.usable(piece_BT):
        return piece_BT.int()
    if whole_rows(piece_BT):
        return None
    same_BTT = piece_BT[:, :, None] == piece_BT[:, None, :]
    zeros = torch.zeros(same_BTT.shape, dtype=dtype, device=piece_BT.device)
    return zeros.masked_fill(~same_BTT, float("-inf"))[:, None]


def whole_rows(piece_BT: Tensor) -> bool:
    """True where every row is known to be one piece; nobody asks a GPU, since to ask is to wait."""
    return piece_BT.device.type == "cpu" and bool((piece_BT == piece_BT[:, :1]).all())
