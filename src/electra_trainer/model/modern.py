"""The transformer, as ModernBERT's: LayerNorm before attention, rotary positions, gated feed-forward, no biases (Warner
et al., 2024).

    embeddings      dropout(LayerNorm(words @ projection)); neither positions nor segments
    a layer         x + Wo(attention(turned(Wqkv(attn_norm(x))))),
                    then x + Wo(GELU(a) * b) with [a, b] = Wi(mlp_norm(x))
    after the last  final_norm

With `Model.local_attention` the tokens of some layers see a window of their piece, and are turned by other angles.
Dropout is where transformers' ModernBertModel has it: `hidden_dropout_prob` after the embeddings and inside the
feed-forward network, `attention_probs_dropout_prob` on attention weights and after attention. Parameters inside a layer
have ModernBERT's names. As in encoder.py, each class declares the block that it is a part of, and `run` may be faster
code that computes the same (kernels/stack.py).
"""

from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.model.attention import Bias, Dropout, Read, at, attend, attention_bias, whole_rows
from electra_trainer.model.encoder import Embeddings, Encoder, Layer, Layers, Run
from electra_trainer.model.initial_weights import ResidualLinear
from electra_trainer.settings.config import MODERN_NORM_EPS, Model
from electra_trainer.settings.config import Block as Kind


class Places(NamedTuple):
    """The places of the tokens of a batch."""

    piece_BT: Tensor
    """Piece that each token belongs to: it attends to that piece alone."""
    angle_BTF: Tensor
    """Angle, fp32, by which each of the F = S / 2 pairs of dimensions of a head is turned; one row where all rows have
    the same positions.
    """
    local_angle_BTF: Tensor | None = None
    """Angles in layers with a window; None where no layer has one."""


class Placed(NamedTuple):
    """The places of the tokens, as plain layers use them; it is computed once a pass."""

    bias_B1TT: Bias
    """Added to attention scores; B may be 1."""
    cos_BT1S: Tensor
    """Cosine of the angle by which each dimension of a head is turned; B may be 1."""
    sin_BT1S: Tensor
    """Sine of that angle, negative in the first half of a head."""


class PackedLinear(nn.Linear):
    """A linear layer without bias that holds `parts` matrices of one shape, one below another; Muon takes them
    apart.
    """

    computes: ClassVar[Kind] = "modern"

    def __init__(self, inputs: int, outputs: int, *, parts: int) -> None:
        super().__init__(inputs, parts * outputs, bias=False)
        self.parts = parts


class ModernAttention(nn.Module):
    """Multi-head attention over the tokens of a piece, queries and keys turned by their position: [B, T, D] -> [B, T,
    D].
    """

    computes: ClassVar[Kind] = "modern"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.heads = model.num_attention_heads
        self.Wqkv = PackedLinear(model.hidden_size, model.hidden_size, parts=3)
        self.Wo = ResidualLinear(model.hidden_size, model.hidden_size, bias=False)
        self.out_drop = Dropout(model.attention_probs_dropout_prob)

    def forward(self, hidden_BTD: Tensor, placed: Placed, read: Read | None = None) -> Tensor:
        rows, tokens, width = hidden_BTD.shape
        shape = (rows, tokens, 2, self.heads, width // self.heads)
        both, value = self.Wqkv(hidden_BTD).split([2 * width, width], -1)
        both = turn(both.view(rows, tokens, 2 * self.heads, -1), placed)
        query, key = both.view(shape).permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        value = value.unflatten(-1, shape[3:]).transpose(1, 2)
        dropout = self.out_drop.p if self.training else 0.0
        mixed = attend(query, key, value, bias_B1TT=placed.bias_B1TT, dropout=dropout)
        mixed = mixed.transpose(1, 2).reshape(rows, tokens, width)
        out: Tensor = self.out_drop(self.Wo(mixed if read is None else at(mixed, read.slots_K)), read)
        return out


def turn(x: Tensor, placed: Placed) -> Tensor:
    """Heads of queries and keys, [B, T, heads, S], turned by the positions of their tokens: each dimension of the first
    half of a head with one of the second.
    """
    first, second = x.chunk(2, -1)
    return x * placed.cos_BT1S + torch.cat([second, first], -1) * placed.sin_BT1S


class GatedFeedForward(nn.Module):
    """GELU of one projection times another, projected back: [.., D] -> [.., D], `Model.inner_size` wide inside."""

    computes: ClassVar[Kind] = "modern"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.Wi = PackedLinear(model.hidden_size, model.inner_size, parts=2)
        self.drop = Dropout(model.hidden_dropout_prob)
        self.Wo = ResidualLinear(model.inner_size, model.hidden_size, bias=False)

    def forward(self, hidden: Tensor, read: Read | None = None) -> Tensor:
        first, gate = self.Wi(hidden).chunk(2, -1)
        # PyTorch's GELU is several times slower where memory is not contiguous
        out: Tensor = self.Wo(self.drop(F.gelu(first.contiguous()) * gate, read))
        return out


class ModernLayer(nn.Module):
    """One layer of ModernBERT: [B, T, D] -> [B, T, D], or as `Layer` [K, D]. The first has no norm before attention,
    since the embeddings end with one.
    """

    computes: ClassVar[Kind] = "modern"

    def __init__(self, model: Model, *, first: bool) -> None:
        super().__init__()
        self.attn_norm = nn.Identity() if first else norm(model.hidden_size)
        self.attn = ModernAttention(model)
        self.mlp_norm = norm(model.hidden_size)
        self.mlp = GatedFeedForward(model)

    def forward(self, hidden_BTD: Tensor, placed: Placed, read: Read | None = None) -> Tensor:
        mixed = self.attn(self.attn_norm(hidden_BTD), placed, read)
        hidden = mixed + (hidden_BTD if read is None else at(hidden_BTD, read.slots_K))
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden), read)
        return out


AnyLayer = Layer | ModernLayer
"""A layer of either block, for isinstance."""


def norm(width: int) -> nn.LayerNorm:
    """LayerNorm without bias."""
    return nn.LayerNorm(width, eps=MODERN_NORM_EPS, bias=False)


class ModernLayers(Layers):
    """The stack of layers and the last norm."""

    computes: ClassVar[Kind] = "modern"

    def __init__(self, model: Model) -> None:
        super().__init__(model, [ModernLayer(model, first=number == 0) for number in range(model.num_hidden_layers)])
        self.final_norm = norm(model.hidden_size)

    def forward(self, hidden_BTD: Tensor, places: Any, slots_K: Tensor | None = None) -> Tensor:
        out: Tensor = self.final_norm(self.through(slice(None), hidden_BTD, places, slots_K))
        return out

    def through(self, chosen: slice, hidden_BTD: Tensor, places: Places, slots_K: Tensor | None = None) -> Tensor:
        """Output of some of the layers, without the last norm; `slots_K` as in `forward`."""
        device = hidden_BTD.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_BTD.dtype
        place = partial(_placed, places.piece_BT, dtype=dtype, most_pieces=self.most_pieces)
        placed = local = place(places.angle_BTF)
        if places.local_angle_BTF is not None:
            reach = self.model.local_attention // 2
            local = place(places.local_angle_BTF, reach=reach)
        last = len(self.layer) - 1
        for number in range(last + 1)[chosen]:
            read = Read.of(slots_K, places.piece_BT) if number == last else None
            hidden_BTD = self.layer[number](hidden_BTD, local if self.model.is_local(number) else placed, read)
        return hidden_BTD


def _placed(piece_BT: Tensor, angle_BTF: Tensor, *, dtype: torch.dtype, **limits: int | None) -> Placed:
    cos, sin = angle_BTF[:, :, None].cos(), angle_BTF[:, :, None].sin()
    return Placed(
        bias_B1TT=attention_bias(piece_BT, dtype, **limits),
        cos_BT1S=torch.cat([cos, cos], -1).to(dtype),
        sin_BT1S=torch.cat([-sin, sin], -1).to(dtype),
    )


class ModernEmbeddings(Embeddings):
    """The word table alone: [B, T] ids -> [B, T, E]. What follows it is as wide as the encoder, and so cannot be
    shared.
    """

    def __init__(self, model: Model) -> None:
        nn.Module.__init__(self)
        self.word_embeddings = nn.Embedding(model.vocab_size, model.embedding_size)

    def forward(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        words_BTE: Tensor = self.word_embeddings(ids_BT)
        return words_BTE


class ModernEncoder(Encoder):
    """Token ids [B, T] -> hidden states [B, T, D], as transformers' ModernBertModel.

    The projection from E to D has no bias, so that an export folds it into the word table.

    Args:
        model: the shape.
        embeddings: the word table to share; a new one if None.
        run: runs the layers.
    """

    encoder: ModernLayers

    def __init__(self, model: Model, *, embeddings: Embeddings | None = None, run: Run = nn.Module.__call__) -> None:
        nn.Module.__init__(self)
        self.embeddings = embeddings if embeddings is not None else ModernEmbeddings(model)
        self.embeddings_project = None
        if model.embedding_size != model.hidden_size:
            self.embeddings_project = nn.Linear(model.embedding_size, model.hidden_size, bias=False)
        self.embeddings_norm = norm(model.hidden_size)
        self.dropout = Dropout(model.hidden_dropout_prob)
        self.encoder = ModernLayers(model)
        self.run = run

    def halves(self, ids_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Hidden states after n // 2 of the n layers, as the next layer reads them, and after all, each [B, T, D]."""
        half, middle = len(self.encoder.layer) // 2, self._embedded(ids_BT, batch)
        places = self._places(batch)
        middle = self.encoder.through(slice(half), middle, places)
        last = self.encoder.final_norm(self.encoder.through(slice(half, None), middle, places))
        return self.encoder.layer[half].attn_norm(middle), last  # type: ignore[operator]

    def _embedded(self, ids_BT: Tensor, batch: Batch) -> Tensor:
        embedded: Tensor = self.dropout(self.embeddings_norm(super()._embedded(ids_BT, batch)))
        return embedded

    def _places(self, batch: Batch) -> Places:
        model, position = self.encoder.model, batch.position_BT
        size = model.hidden_size // model.num_attention_heads
        if whole_rows(batch.piece_BT):
            position = position[:1]
        share_F = torch.arange(0, size, 2, device=position.device).float() / size

        def angles(theta: float) -> Tensor:
            return position[..., None].float() * (1.0 / theta**share_F)

        local_angle_BTF = angles(model.local_rotary_theta) if model.has_windows else None
        return Places(batch.piece_BT, angles(model.rotary_theta), local_angle_BTF)


class PredictionHead(nn.Module):
    """Dense without bias, GELU, LayerNorm: [.., D] -> [.., D], as transformers' ModernBertPredictionHead."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.dense = nn.Linear(model.hidden_size, model.hidden_size, bias=False)
        self.norm = norm(model.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return found


class ModernReplacedHead(PredictionHead):
    """Hidden states -> the logit of "this token was replaced", [B, T, D] -> [B, T]: the difference of the two logits of
    a token classifier.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.classifier = nn.Linear(model.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.classifier(super().forward(hidden))
        return logits.squeeze(-1)
