"""The transformer of BERT and ELECTRA: post-LayerNorm, erf-GELU, learned positions (Appendix A).

Parameter names are those of transformers' ELECTRA, so that export is a copy. This file knows no device: precision,
compilation and distribution are applied from outside, and `Encoder` takes the function that runs its layers
(kernels/stack.py has the fast ones). Tests compare each kernel with this file.

`computes` declares the block that a class is a part of. Kernels replace a class, and an export accepts it, only if it
declares "bert"; a subclass does not inherit the declaration.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.model.attention import Bias, Dropout, Read, at, attend, attention_bias
from electra_trainer.model.initial_weights import GlorotLinear
from electra_trainer.model.shared_table import SharedTable
from electra_trainer.settings.config import Block, Model


class Embeddings(nn.Module):
    """Word + position + segment, LayerNorm, dropout: [B, T] ids -> [B, T, E]. Shared by both networks (§3.2)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.word_embeddings: nn.Embedding | SharedTable = nn.Embedding(model.vocab_size, model.embedding_size)
        self.position_embeddings: nn.Embedding | SharedTable = nn.Embedding(
            model.max_position_embeddings, model.embedding_size
        )
        self.token_type_embeddings = nn.Embedding(model.type_vocab_size, model.embedding_size)
        self.LayerNorm = nn.LayerNorm(model.embedding_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        placed_BTE = self.word_embeddings(ids_BT) + self.position_embeddings(batch.position_BT)
        embedded: Tensor = self.dropout(self.LayerNorm(placed_BTE + self.token_type_embeddings(batch.segment_BT)))
        return embedded


class SelfAttention(nn.Module):
    """Multi-head attention over the tokens of a piece: [B, T, D] -> [B, T, D]."""

    computes: ClassVar[Block] = "bert"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.heads = model.num_attention_heads
        self.dropout = model.attention_probs_dropout_prob
        self.query = nn.Linear(model.hidden_size, model.hidden_size)
        self.key = nn.Linear(model.hidden_size, model.hidden_size)
        self.value = nn.Linear(model.hidden_size, model.hidden_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Bias) -> Tensor:
        """softmax(QKᵀ/√d + bias) V."""
        rows, tokens, width = hidden_BTD.shape
        packed = F.linear(hidden_BTD, *self.packed()).view(rows, tokens, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout)
        return mixed.transpose(1, 2).reshape(rows, tokens, width)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Weight [3D, D] and bias [3D] of queries, keys and values: one product instead of three."""
        weight = torch.cat([self.query.weight, self.key.weight, self.value.weight])
        return weight, torch.cat([self.query.bias, self.key.bias, self.value.bias])


class AddAndNorm(nn.Module):
    """Projection, dropout, residual, LayerNorm: the end of attention and of the feed-forward network."""

    computes: ClassVar[Block] = "bert"
    narrow: bool | None = None
    """The result has the precision of the projection; a GPU's autocast gives fp32."""

    def __init__(self, model: Model, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, model.hidden_size)
        self.LayerNorm = nn.LayerNorm(model.hidden_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)

    def forward(self, inner: Tensor, residual: Tensor, read: Read | None = None) -> Tensor:
        projected = self.dense(inner)
        normed: Tensor = self.LayerNorm(self.dropout(projected, read) + residual)
        return normed.to(projected.dtype) if self.narrow else normed


class Attention(nn.Module):
    """Self-attention with its residual; `self` and `output` are transformers' names."""

    computes: ClassVar[Block] = "bert"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.self = SelfAttention(model)
        self.output = AddAndNorm(model, model.hidden_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Bias, read: Read | None = None) -> Tensor:
        mixed = self.self(hidden_BTD, bias_B1TT)
        if read is not None:
            mixed, hidden_BTD = at(mixed, read.slots_K), at(hidden_BTD, read.slots_K)
        attended: Tensor = self.output(mixed, hidden_BTD, read)
        return attended


class Intermediate(nn.Module):
    """First half of the feed-forward network: [.., D] -> [.., intermediate], exact GELU."""

    computes: ClassVar[Block] = "bert"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.intermediate_size)

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return F.gelu(self.dense(hidden_BTD))


class Layer(nn.Module):
    """One transformer layer: [B, T, D] -> [B, T, D], or [K, D]: at what is read, once attention has mixed."""

    computes: ClassVar[Block] = "bert"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.attention = Attention(model)
        self.intermediate = Intermediate(model)
        self.output = AddAndNorm(model, model.intermediate_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Bias, read: Read | None = None) -> Tensor:
        attended = self.attention(hidden_BTD, bias_B1TT, read)
        out: Tensor = self.output(self.intermediate(attended), attended, read)
        return out


class Layers(nn.Module):
    """The stack of layers: [B, T, D] -> [B, T, D], or [K, D]: the last one's output at the flat positions `slots_K`."""

    computes: ClassVar[Block] = "bert"
    most_pieces: int | None = None
    """Most pieces of a batch, where attention is FlashAttention's over pieces; None: it has a bias."""

    def __init__(self, model: Model, layers: Iterable[nn.Module] | None = None) -> None:
        super().__init__()
        self.model = model
        self.layer = nn.ModuleList((Layer(model) for _ in range(model.num_hidden_layers)) if layers is None else layers)

    def forward(self, hidden_BTD: Tensor, piece_BT: Tensor, slots_K: Tensor | None = None) -> Tensor:
        bias_B1TT = attention_bias(piece_BT, hidden_BTD.dtype, most_pieces=self.most_pieces)
        for layer in self.layer[:-1]:
            hidden_BTD = layer(hidden_BTD, bias_B1TT)
        out: Tensor = self.layer[-1](hidden_BTD, bias_B1TT, Read.of(slots_K, piece_BT))
        return out

    def part(self, chosen: slice) -> "Layers":
        """Some of the layers, one at least, as a stack of the same weights."""
        layers = self.layer[chosen]
        return Layers(replace(self.model, num_hidden_layers=len(layers)), layers).train(self.training)


Run = Callable[[Layers, Tensor, Any, Tensor | None], Tensor]
"""Runs a stack of layers on hidden states [B, T, D]; the other arguments are those of the stack, here the pieces [B, T]
and the positions that are read."""


class Encoder(nn.Module):
    """Token ids [B, T] -> hidden states [B, T, D].

    Args:
        model: the shape.
        embeddings: an Embeddings to share; a new one if None.
        run: runs the layers; by default as they are written.
    """

    last_layer: Literal["all", "read"] = "read"
    """As in `Config`."""

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None, run: Run = nn.Module.__call__) -> None:
        super().__init__()
        self.embeddings = embeddings if embeddings is not None else Embeddings(model)
        self.embeddings_project: nn.Linear | None = None
        if model.embedding_size != model.hidden_size:
            self.embeddings_project = GlorotLinear(model.embedding_size, model.hidden_size)
        self.encoder = Layers(model)
        self.run = run

    def forward(self, ids_BT: Tensor, batch: Batch, slots_K: Tensor | None = None) -> Tensor:
        """Encode `ids_BT`, laid out (segments, positions, pieces) as `batch` says; [K, D], if only at `slots_K`."""
        hidden_BTD, places = self._embedded(ids_BT, batch), self._places(batch)
        if self.last_layer == "read" or slots_K is None:
            return self.run(self.encoder, hidden_BTD, places, slots_K)
        return at(self.run(self.encoder, hidden_BTD, places, None), slots_K)

    def halves(self, ids_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states after n // 2 of the n layers (of one layer: before it), and after all, each [B, T, D]."""
        half, middle = len(self.encoder.layer) // 2, self._embedded(ids_BT, batch)
        if half:
            middle = self.run(self.encoder.part(slice(half)), middle, batch.piece_BT, None)
        return middle, self.run(self.encoder.part(slice(half, None)), middle, batch.piece_BT, None)

    def _places(self, batch: Batch) -> Any:
        return batch.piece_BT

    def _embedded(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        hidden: Tensor = self.embeddings(ids_BT, batch)
        return hidden if self.embeddings_project is None else self.embeddings_project(hidden)
