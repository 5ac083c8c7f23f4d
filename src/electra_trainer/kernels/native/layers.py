"""The encoder's layers through the kernels: one call forward, one backward."""

import ctypes
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra_trainer.kernels.declared import other_class
from electra_trainer.kernels.native.library import call, cpu_precision, kernels, share_out, slices_of
from electra_trainer.kernels.vmapped import batched
from electra_trainer.settings.config import MODERN_NORM_EPS

_LINE = 32
"""Widths must be multiples of this; rows are padded to a multiple."""
_FEW = 256
"""Tokens below which packing the weights in fp32 costs as much as the kernels gain in a forward pass alone."""


class _Shape(ctypes.Structure):
    """`Shape` in layers.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "hidden", "inner", "heads", "tokens")),
        *((name, ctypes.c_double) for name in ("eps", "hidden_dropout", "attention_dropout")),
        ("key", ctypes.c_int64),
        ("angles", ctypes.c_void_p),
        ("angle_rows", ctypes.c_int64),
        ("local_angles", ctypes.c_void_p),
        ("every", ctypes.c_int64),
        ("reach", ctypes.c_int64),
        ("read", ctypes.c_void_p),
        ("reads", ctypes.c_int64),
    )


def fits(layers: Any, hidden_BTD: Tensor) -> bool:
    """True if the kernels can replace these layers, and pay."""
    return not why_not(layers, hidden_BTD)


def why_not(layers: Any, hidden_BTD: Tensor) -> str:
    """Reason why the kernels cannot replace these layers, or do not pay; empty if they do both."""
    if hidden_BTD.device.type != "cpu":
        return "the hidden states are not on a CPU"
    if kernels(cpu_precision()) is None:
        return f"there are no {cpu_precision()} kernels here"
    model = layers.model
    widths = (model.hidden_size, model.inner_size, model.hidden_size // model.num_attention_heads)
    few = not torch.is_grad_enabled() and cpu_precision() == "fp32" and hidden_BTD.shape[:2].numel() < _FEW
    all_dropped = layers.training and max(model.hidden_dropout_prob, model.attention_probs_dropout_prob) >= 1
    hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in layers.modules())
    reasons = {
        f"a width is not a multiple of {_LINE}": any(width % _LINE for width in widths),
        "there are no tokens": hidden_BTD.numel() == 0,
        f"a forward pass of fewer than {_FEW} tokens is faster without": few,
        "PyTorch's compiler traces the layers": torch.compiler.is_compiling(),
        "torch.vmap computes several runs at once": batched(hidden_BTD),
        "everything is dropped": all_dropped,
        "a module has hooks": hooked,
    }
    reason = next((reason for reason, holds in reasons.items() if holds), "")
    if not reason and (odd := other_class(layers, model.block)):
        reason = f"{odd} is not declared to be a part of the block {model.block!r}"
    return reason or ("" if _plain(layers) else "the parameters are not those of a plain fp32 stack")


def _plain(layers: Any) -> bool:
    """True if the parameters are exactly those of a stack of layers, and a pointer can read each of them."""
    width, inner, count = layers.model.hidden_size, layers.model.inner_size, layers.model.num_hidden_layers
    expected: list[tuple[int, ...]]
    if layers.model.block == "modern":
        layer = [(width,), (3 * width, width), (width, width), (width,), (2 * inner, width), (width, inner)]
        expected = [*(layer * count)[1:], (width,)]
    else:
        attention = [(width, width), (width,)] * 4 + [(width,)] * 2
        expected = (attention + [(inner, width), (inner,), (width, inner), (width,)] + [(width,)] * 2) * count
    found = list(layers.parameters())
    return [tuple(p.shape) for p in found] == expected and all(
        p.dtype == torch.float32 and p.device.type == "cpu" and p.is_contiguous() for p in found
    )


def run_layers(layers: Any, hidden_BTD: Tensor, places: Any, slots_K: Tensor | None = None) -> Tensor:
    """Output of `layers`, fp32 [B, T, D], or of their last layer at the flat positions `slots_K` alone, [K, D]; a token
    attends to its piece.

    Dropout's numbers follow from one draw of PyTorch's own generator.

    Args:
        places: what the stack itself takes: the pieces [B, T], or `Places` of model/modern.py.
    """
    model, training, modern = layers.model, layers.training, layers.model.block == "modern"
    tokens = hidden_BTD.shape[1]
    pad = -tokens % _LINE
    dropout = (model.hidden_dropout_prob, model.attention_probs_dropout_prob) if training else (0.0, 0.0)
    shape = _Shape(
        layers=model.num_hidden_layers,
        hidden=model.hidden_size,
        inner=model.inner_size,
        heads=model.num_attention_heads,
        tokens=tokens + pad,
        eps=MODERN_NORM_EPS if modern else model.layer_norm_eps,
        hidden_dropout=dropout[0],
        attention_dropout=dropout[1],
        key=int(torch.randint(2**63 - 1, ())) if any(dropout) else 0,
    )
    parameters = list(layers.parameters())
    keep = torch.is_grad_enabled() and (hidden_BTD.requires_grad or any(p.requires_grad for p in parameters))
    hidden, piece = hidden_BTD.float().contiguous(), (places.piece_BT if modern else places).int().contiguous()
    if slots_K is not None:
        slots_K = slots_K.clamp(min=0)
        used_U, slots_K = torch.unique(slots_K + slots_K // tokens * pad, return_inverse=True)
        used_U = used_U.int()
        shape.read, shape.reads, shape.used = used_U.data_ptr(), len(used_U), used_U
    if pad:
        hidden, piece = F.pad(hidden, (0, 0, 0, pad)), F.pad(piece, (0, pad), value=-1)
    if modern:
        angles, near = _turns(places.angle_BTF, pad), places.local_angle_BTF is not None
        local = _turns(places.local_angle_BTF, pad) if near else angles
        shape.angles, shape.angle_rows, shape.kept = angles.data_ptr(), len(angles), (angles, local)
        shape.local_angles = local.data_ptr() if near else None
        shape.every, shape.reach = model.global_attn_every_n_layers, model.local_attention // 2
    library = kernels(cpu_precision())
    out: Tensor = _Layers.apply(library, hidden, piece, shape, keep, *parameters)  # type: ignore[no-untyped-call]
    if slots_K is not None:
        return out.index_select(0, slots_K)
    return out[:, :tokens] if pad else out


def _turns(angle_BTF: Tensor, pad: int) -> Tensor:
    """Cosines, then sines of angles, of rows that are `pad` tokens longer."""
    return F.pad(torch.cat([angle_BTF.cos(), angle_BTF.sin()], -1), (0, 0, 0, pad)).contiguous()


_spare: list[Tensor] = []
"""Memory of finished calls: hundreds of megabytes that would else be asked for, cleared and given back in every
step.
"""
_spare_lock = threading.Lock()


def _take(size: int) -> Tensor:
    """At least `size` bytes, used before if there are any that fit."""
    with _spare_lock:
        fitting = [number for number, spare in enumerate(_spare) if size <= len(spare) <= 2 * size]
        if fitting:
            return _spare.pop(min(fitting, key=lambda number: len(_spare[number])))
    return torch.empty(size, dtype=torch.uint8, device="cpu")


def _give_back(*memory: Tensor) -> None:
    with _spare_lock:
        _spare.extend(memory)
        del _spare[:-8]  # weights and activations of two networks, in training and in evaluation


def forget() -> None:
    """Give the memory of finished calls back to the system."""
    with _spare_lock:
        _spare.clear()


def _pointed(shape: _Shape, parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """The parameters that the kernels are given pointers to; the first modern layer has no norm."""
    return [None, *parameters] if shape.angles else [*parameters]


class _Layers(torch.autograd.Function):
    """Weights are packed in every call: nothing tells reliably that one has changed (a fused optimizer leaves
    `_version` as it is).
    """

    @staticmethod
    def forward(
        ctx: Any, library: ctypes.CDLL, hidden: Tensor, piece: Tensor, shape: _Shape, keep: bool, *parameters: Tensor
    ) -> Tensor:
        rows, tokens, _ = hidden.shape
        out = hidden.new_empty(shape.reads, shape.hidden) if shape.read else torch.empty_like(hidden)
        weights = _pointed(shape, parameters)
        memory = _take(call(library.kept_bytes, shape, rows * tokens, keep))
        operands = _take(call(library.operand_bytes, shape))
        share_out(shape.layers, lambda _, a, b: call(library.pack_layers, shape, weights, a, b, keep, operands))
        forward = partial(call, library.layers_forward, shape, operands, weights, piece, hidden, rows * tokens)
        share_out(rows, lambda _, a, b: forward(a * tokens, (b - a) * tokens, keep, memory, out))
        if keep:
            ctx.library, ctx.shape, ctx.memory, ctx.rows = library, shape, (operands, memory), rows
            ctx.save_for_backward(piece, *parameters)
        else:
            _give_back(operands, memory)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        piece, *parameters = ctx.saved_tensors
        library, shape = ctx.library, ctx.shape
        if ctx.memory is None:
            raise RuntimeError(
                "a second backward pass through the native layers: what they kept is gone after the first. Set "
                "ELECTRA_NATIVE=off to do without them."
            )
        (operands, memory), ctx.memory = ctx.memory, None
        d_out = upstream[0].float().contiguous()
        rows, tokens = ctx.rows, shape.tokens
        d_in = d_out.new_empty(rows, tokens, shape.hidden)
        sizes = [p.numel() for p in parameters]
        sums = torch.empty(slices_of(rows), sum(sizes), dtype=torch.float32, device="cpu")  # of each slice
        grads = [_pointed(shape, part.split(sizes)) for part in sums]
        weights = _pointed(shape, parameters)
        backward = partial(call, library.layers_backward, shape, operands, weights, piece, d_out, rows * tokens)
        share_out(rows, lambda i, a, b: backward(a * tokens, (b - a) * tokens, memory, d_in, grads[i]))
        _give_back(operands, memory)
        total = sums[0]
        for other in sums[1:]:
            total += other
        found = [part.view_as(p) for part, p in zip(torch.split(total, sizes), parameters, strict=True)]
        return None, d_in, None, None, None, *found
