"""The transformer, as BERT's and ELECTRA's: post-LayerNorm, erf-GELU, learned positions (Appendix A).

Parameter names are those of transformers' ELECTRA, so that export is a copy. Precision, compilation and
distribution are applied from outside. One line asks for each kernel that a device computes faster: the layers on a CPU (kernels/native),
attention and the residual LayerNorm on a GPU (kernels/gpu, `OnGpu`). Tests compare each kernel with this file.

`arithmetic` declares what a class computes. The CPU's kernels replace it, and an export accepts it, only if that is what ELECTRA's
layers compute (kernels/native/layers.py). Whoever changes a `forward` changes the declaration with it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.kernels.gpu import add_norm, gpu_attention, keyed_dropout, shared_sums
from electra_trainer.kernels.native import layers as native
from electra_trainer.model.attention import Dropout, attend
from electra_trainer.model.exact_sums import sum_of_rows
from electra_trainer.settings.config import Model


def on_a_gpu(tensor: Tensor) -> bool:
    """True where the kernels for GPUs are asked for; tests have it say so of CPUs."""
    return tensor.is_cuda


class SharedTable(nn.Module):
    """Another network's table without its gradient, plus a trained difference that begins at 0: [rows, E] (DeBERTaV3's "gradient-disentangled
    embedding sharing", He et al., 2023). The other network owns `base`; a state_dict has the sum, as one table.
    """

    def __init__(self, base: "nn.Embedding | SharedTable") -> None:
        super().__init__()
        self.num_embeddings: int = base.num_embeddings
        self._base = (base,)  # in a tuple: not a part of this module
        self.delta = nn.Parameter(torch.zeros_like(base.weight))

    @property
    def base(self) -> "nn.Embedding | SharedTable":
        """The other network's table."""
        return self._base[0]

    @property
    def weight(self) -> Tensor:
        """The whole table."""
        return self.base.weight.detach() + self.delta

    def forward(self, ids_BT: Tensor) -> Tensor:
        return F.embedding(ids_BT, self.base.weight.detach()) + F.embedding(ids_BT, self.delta)

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight if keep_vars else self.weight.detach()


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
        words, positions, segments = self.word_embeddings, self.position_embeddings, self.token_type_embeddings
        if on_a_gpu(ids_BT):
            tables = [words.weight, positions.weight, segments.weight]
            sum_BTE = sum_of_rows(tables, [ids_BT, batch.position_BT, batch.segment_BT])
        else:
            sum_BTE = words(ids_BT) + positions(batch.position_BT) + segments(batch.segment_BT)
        embedded: Tensor = self.dropout(self.LayerNorm(sum_BTE))
        return embedded


class OnGpu(NamedTuple):
    """What the layers use on a GPU in one pass. It is decided before they run, for PyTorch's compiler does not look at tables."""

    bias_B1TT: Tensor | None
    """Added to the scores by PyTorch's attention."""
    piece_BT: Tensor | None
    """Int32: our kernel attends within pieces (kernels/gpu/gpu_attention.py), and there is no bias."""
    norm: bool
    """Our kernel drops, adds and normalises (kernels/gpu/add_norm.py)."""
    keys: Tensor
    """Of the dropout masks, int64 [.., 3, 2]: of each layer's attention, and of what follows attention and the feed-forward network."""
    all_packed: list[tuple[Tensor, Tensor]]
    """Weights and biases of queries, keys and values, of each layer; empty where each layer packs its own."""
    all_places: list[list[Tensor]]
    """Of each layer, where attention and both residual LayerNorms leave gradients to be summed (kernels/gpu/shared_sums.py), or none."""
    packed: tuple[Tensor, Tensor] | None = None
    """Those of this layer."""
    places: list[Tensor] | None = None
    """The same."""
    projected: Tensor | None = None
    """Queries, keys and values of this layer, where they are made already."""

    def of(self, layer: int) -> "OnGpu":
        """The same for one layer."""
        return self._replace(
            keys=self.keys[layer],
            all_packed=[], packed=self.all_packed[layer] if self.all_packed else None,
            all_places=[], places=self.all_places[layer] if self.all_places else None,
        )  # fmt: skip

    def place(self, number: int) -> Tensor | None:
        """Of attention (0), or of what follows it (1) or the feed-forward network (2)."""
        return self.places[number] if self.places else None


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

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | OnGpu | None) -> Tensor:
        rows, tokens, width = hidden_BTD.shape
        dropout = self.dropout if self.training else 0.0
        weight, bias = self.packed() if not isinstance(bias_B1TT, OnGpu) or not bias_B1TT.packed else bias_B1TT.packed
        shape = (rows, tokens, 3, self.heads, width // self.heads)
        if isinstance(bias_B1TT, OnGpu):
            if bias_B1TT.piece_BT is not None:
                made = bias_B1TT.projected
                packed = (F.linear(hidden_BTD, weight, bias.detach()) if made is None else made).view(shape)
                piece_BT, key, place = bias_B1TT.piece_BT, bias_B1TT.keys[0], bias_B1TT.place(0)
                return gpu_attention.attend(packed, bias, piece_BT, key, dropout=dropout, place=place).flatten(2)
            bias_B1TT = bias_B1TT.bias_B1TT
        packed = F.linear(hidden_BTD, weight, bias).view(shape)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each [B, H, T, D/H]
        mixed = attend(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout)
        return mixed.transpose(1, 2).reshape(rows, tokens, width)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Weight [3D, D] and bias [3D] of queries, keys and values: one product instead of three."""
        weight = torch.cat([self.query.weight, self.key.weight, self.value.weight])
        return weight, torch.cat([self.query.bias, self.key.bias, self.value.bias])


def _is_product(dense: nn.Linear) -> bool:
    """True where a product may stand for a call. FSDP2 gives the module another class, whose calls must not be left out."""
    return type(dense) is nn.Linear


class AddAndNorm(nn.Module):
    """Projection, dropout, residual, LayerNorm: what follows attention and the feed-forward network."""

    arithmetic: ClassVar[str] = "LayerNorm(dropout(projection) + residual)"

    def __init__(self, model: Model, inputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, model.hidden_size)
        self.LayerNorm = nn.LayerNorm(model.hidden_size, eps=model.layer_norm_eps)
        self.dropout = Dropout(model.hidden_dropout_prob)

    def forward(
        self, inner: Tensor, residual_BTD: Tensor, on_gpu: tuple[Tensor, Tensor | None] | None = None
    ) -> Tensor:
        if on_gpu is not None:  # our kernel, with its key and place
            dropout, shift = self.dropout.p * self.training, None
            if _is_product(self.dense):
                projected, shift = F.linear(inner, self.dense.weight), self.dense.bias
            else:
                projected = self.dense(inner)
            key, place = on_gpu
            return add_norm.add_norm(projected, shift, residual_BTD, self.LayerNorm, key, dropout=dropout, place=place)
        projected = self.dense(inner)
        normed: Tensor = self.LayerNorm(self.dropout(projected) + residual_BTD)
        return normed


class Attention(nn.Module):
    """Self-attention with its residual; `self` and `output` are transformers' names."""

    arithmetic: ClassVar[str] = "self-attention, then its output"

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.self = SelfAttention(model)
        self.output = AddAndNorm(model, model.hidden_size)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | OnGpu | None) -> Tensor:
        residual_BTD = hidden_BTD
        if isinstance(bias_B1TT, OnGpu) and bias_B1TT.packed and bias_B1TT.piece_BT is not None:
            weight, bias = bias_B1TT.packed
            if _residual_joins(bias_B1TT, hidden_BTD, weight):
                projected, residual_BTD = add_norm.project(hidden_BTD, weight, bias.detach())
                bias_B1TT = bias_B1TT._replace(projected=projected)
        attended: Tensor = self.output(self.self(hidden_BTD, bias_B1TT), residual_BTD, _of_norm(bias_B1TT, 1))
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

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | OnGpu | None) -> Tensor:
        attended_BTD = self.attention(hidden_BTD, bias_B1TT)
        first, residual_BTD = self.intermediate, attended_BTD
        if (
            type(first) is Intermediate
            and _is_product(first.dense)
            and _residual_joins(bias_B1TT, attended_BTD, first.dense.weight)
        ):
            projected, residual_BTD = add_norm.project(attended_BTD, first.dense.weight, first.dense.bias)
            inner = F.gelu(projected)
        else:
            inner = first(attended_BTD)
        out: Tensor = self.output(inner, residual_BTD, _of_norm(bias_B1TT, 2))
        return out


def _residual_joins(on_gpu: Tensor | OnGpu | None, hidden: Tensor, weight: Tensor) -> bool:
    """True where the product and the residual of `hidden` give it one gradient (add_norm.project): not where autocast changes its type."""
    return isinstance(on_gpu, OnGpu) and on_gpu.norm and on_gpu.packed is not None and hidden.dtype == weight.dtype


def _of_norm(bias_B1TT: Tensor | OnGpu | None, number: int) -> tuple[Tensor, Tensor | None] | None:
    if not isinstance(bias_B1TT, OnGpu) or not bias_B1TT.norm:
        return None
    return bias_B1TT.keys[number], bias_B1TT.place(number)


class Layers(nn.Module):
    """The stack of layers."""

    arithmetic: ClassVar[str] = "each layer in turn"

    def __init__(self, model: Model, layers: Iterable[nn.Module] | None = None) -> None:
        super().__init__()
        self.model = model
        self.layer = nn.ModuleList((Layer(model) for _ in range(model.num_hidden_layers)) if layers is None else layers)

    def forward(self, hidden_BTD: Tensor, bias_B1TT: Tensor | OnGpu | None) -> Tensor:
        for number, layer in enumerate(self.layer):
            hidden_BTD = layer(hidden_BTD, bias_B1TT.of(number) if isinstance(bias_B1TT, OnGpu) else bias_B1TT)
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
    ours = on_a_gpu(hidden) and not native.other_arithmetic(layers)
    bias_B1TT = on_gpu(layers, hidden, batch.piece_BT) if ours else attention_bias(batch.piece_BT, hidden.dtype)
    encoded: Tensor = layers(hidden, bias_B1TT)
    return encoded


def on_gpu(layers: Layers, hidden: Tensor, piece_BT: Tensor) -> OnGpu:
    """Which kernels the layers use in this pass over the hidden states [B, T, D]; all masks' keys are drawn here, at once."""
    model, device, back = layers.model, hidden.device, torch.is_grad_enabled()
    lower = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if lower else hidden.dtype
    dropped = [p > 0 and layers.training for p in (model.attention_probs_dropout_prob, model.hidden_dropout_prob)]
    heads, tokens = model.num_attention_heads, piece_BT.shape[1]
    attention = gpu_attention.Shape(dtype, heads, tokens, model.hidden_size // heads, drops=dropped[0], back=back)
    own = gpu_attention.usable(device, attention, instead=by_pytorch)
    keys, packed = (len(layers.layer), 3), _all_packed(layers)
    summed = shared_sums.usable(device, shared_sums.Shape(dtype, model.hidden_size)) if packed and back else False
    many = gpu_attention.parts(device, attention, len(piece_BT)), *(add_norm.parts(piece_BT.numel()),) * 2
    return OnGpu(
        bias_B1TT=None if own else attention_bias(piece_BT, hidden.dtype),
        piece_BT=piece_BT.to(torch.int32) if own else None,
        norm=add_norm.usable(device, add_norm.Shape(dtype, model.hidden_size, drops=dropped[1], back=back)),
        keys=keyed_dropout.draw_keys(device, *keys) if layers.training else keyed_dropout.no_keys(device, *keys),
        all_packed=packed,
        all_places=_all_places(layers, [bias for _, bias in packed], many) if summed else [],
    )


def _all_places(layers: Layers, biases: list[Tensor], parts: tuple[int, ...]) -> list[list[Tensor]]:
    """Of each layer, those of the biases of queries, keys and values, and of what its two residual LayerNorms add up."""
    norms = [
        [module.dense.bias if _is_product(module.dense) else None, module.LayerNorm.weight, module.LayerNorm.bias]
        for module in layers.modules() if isinstance(module, AddAndNorm)
    ]  # fmt: skip
    each = zip(biases, norms[::2], norms[1::2], strict=True)
    return [shared_sums.places([[bias], *both], parts) for bias, *both in each]


def _all_packed(layers: Layers) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases of queries, keys and values of each layer: two copies for all layers, and two back for their gradients."""
    modules = [module for module in layers.modules() if isinstance(module, SelfAttention)]
    if any(type(module) is not SelfAttention for module in modules):
        return []  # FSDP2 has these weights inside a call of the module only
    parts = [part for module in modules for part in (module.query, module.key, module.value)]
    weights = torch.cat([part.weight for part in parts]).view(len(modules), -1, layers.model.hidden_size).unbind()
    biases = torch.cat([part.bias for part in parts]).view(len(modules), -1).unbind()
    return list(zip(weights, biases, strict=True))


def by_pytorch(packed_BT3HD: Tensor, piece_BT: Tensor, dropout: float) -> Callable[[], Tensor]:
    """PyTorch's attention as the layers call it, [B, T, H, D/H], for the kernel to be timed against."""
    bias_B1TT = attention_bias(piece_BT, packed_BT3HD.dtype)
    query, key, value = packed_BT3HD.permute(2, 0, 3, 1, 4)
    return lambda: attend(query, key, value, bias_B1TT=bias_B1TT, dropout=dropout).transpose(1, 2)


def attention_bias(piece_BT: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Added to attention scores, [B, 1, T, T]: 0 between tokens of one piece (or both padding), -inf elsewhere.

    None where nothing is to be kept apart.
    """
    if whole_rows(piece_BT):
        return None
    same_BTT = piece_BT[:, :, None] == piece_BT[:, None, :]
    zeros = torch.zeros(same_BTT.shape, dtype=dtype, device=piece_BT.device)
    return zeros.masked_fill(~same_BTT, float("-inf"))[:, None]


def whole_rows(piece_BT: Tensor) -> bool:
    """True where every row is known to be one piece; nobody asks a GPU, since to ask is to wait."""
    return piece_BT.device.type == "cpu" and bool((piece_BT == piece_BT[:, :1]).all())
