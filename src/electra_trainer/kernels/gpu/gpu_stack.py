"""The twin of BERT's layers (model/encoder.py) on a GPU: the same function, with own kernels for attention and for the
residual LayerNorm.

Which kernels a pass uses is decided before its layers run, since PyTorch's compiler does not look at tables.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.kernels.declared import Stack, other_class
from electra_trainer.kernels.gpu import add_norm, gpu_attention, keyed_dropout


class Used(NamedTuple):
    """Own kernels that a pass uses."""

    attention: bool
    norm: bool


def choose(layers: Stack, hidden_BTD: Tensor) -> Used:
    """Own kernels that are usable for these layers; none where they are not BERT's, or their parameters are divided
    among processes.
    """
    if other_class(layers, "bert") or any(type(p) is not nn.Parameter for p in layers.parameters()):
        return Used(attention=False, norm=False)
    model, device, back = layers.model, hidden_BTD.device, torch.is_grad_enabled()
    lower = torch.is_autocast_enabled(device.type)
    dtype = torch.get_autocast_dtype(device.type) if lower else hidden_BTD.dtype
    attends, drops = (
        p > 0 and layers.training for p in (model.attention_probs_dropout_prob, model.hidden_dropout_prob)
    )
    heads, width = model.num_attention_heads, model.hidden_size
    attention = gpu_attention.Shape(dtype, heads, hidden_BTD.shape[1], width // heads, drops=attends, back=back)
    norm = add_norm.Shape(dtype, width, drops=drops, back=back)
    return Used(attention=gpu_attention.usable(device, attention), norm=add_norm.usable(device, norm))


def run_layers(layers: Stack, hidden_BTD: Tensor, piece_BT: Tensor, used: Used) -> Tensor:
    """Output of `layers`, [B, T, D]; all masks' keys are drawn here, at once."""
    draw = keyed_dropout.draw_keys if layers.training else keyed_dropout.no_keys
    keys = draw(hidden_BTD.device, len(layers.layer), 3)
    bias_B1TT = None if used.attention else layers.bias(piece_BT, hidden_BTD.dtype)
    piece_BT = piece_BT.to(torch.int32)
    for layer, of_layer in zip(layers.layer, keys, strict=True):
        hidden_BTD = _latest[0](layer, hidden_BTD, bias_B1TT, piece_BT, of_layer, used)
    return hidden_BTD


def run_layer(
    layer: Any, hidden_BTD: Tensor, bias_B1TT: Tensor | None, piece_BT: Tensor, keys: Tensor, used: Used
) -> Tensor:
    """Output of one layer. `keys`: of the masks of attention, of what follows it and of the feed-forward network, int64
    [3, 2].
    """
    attention = layer.attention
    if used.attention:
        weight, bias = attention.self.packed()
        shape = (*hidden_BTD.shape[:2], 3, attention.self.heads, -1)
        packed = F.linear(hidden_BTD, weight, bias.detach()).view(shape)
        dropout = attention.self.dropout * layer.training
        mixed = gpu_attention.attend(packed, bias, piece_BT, keys[0], dropout=dropout).flatten(2)
    else:
        mixed = attention.self(hidden_BTD, bias_B1TT)
    attended_BTD = _add_and_norm(attention.output, mixed, hidden_BTD, keys[1], used)
    return _add_and_norm(layer.output, layer.intermediate(attended_BTD), attended_BTD, keys[2], used)


def _add_and_norm(module: Any, inner: Tensor, residual_BTD: Tensor, key: Tensor, used: Used) -> Tensor:
    if not used.norm:
        normed: Tensor = module(inner, residual_BTD)
        return normed
    projected, dropout = F.linear(inner, module.dense.weight), module.dropout.p * module.training
    return add_norm.add_norm(projected, module.dense.bias, residual_BTD, module.LayerNorm, key, dropout=dropout)


_latest: list[Callable[..., Tensor]] = [run_layer]


@contextmanager
def layers_run_by(function: Callable[..., Tensor]) -> Iterator[None]:
    """Within it each layer runs by `function`, a compiled `run_layer`."""
    before, _latest[0] = _latest[0], function
    try:
        yield
    finally:
        _latest[0] = before
