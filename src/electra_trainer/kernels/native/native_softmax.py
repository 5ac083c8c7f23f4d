"""The vocabulary's softmax through the kernels: what objectives/vocabulary_softmax.py computes, without writing the logits."""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra_trainer.kernels.native.library import address, kernels, share_out, slices_of

_SPAN = 256
"""Words, and positions, in a block."""
_POINTERS = (
    *"hidden table bias labels draws rows operand table_forward table_backward padded_bias log_z sampled loss entropy".split(),
    *"correct d_table d_bias".split(),
)


class _Softmax(ctypes.Structure):
    """`Softmax` in softmax.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("positions", "words", "width")),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


def fits(projected_KE: Tensor) -> bool:
    """True where the kernels can do it: CPU, bf16, a width in multiples of 32."""
    if projected_KE.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or kernels() is None:
        return False
    return torch.get_autocast_dtype("cpu") == torch.bfloat16 and projected_KE.shape[1] % 32 == 0


def run_softmax(
    projected_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, draws_K: Tensor | None
) -> tuple[Tensor, ...]:
    """Loss (a sum, with gradient), samples (zeros without draws), whether the label was the most probable word, entropy [K]."""
    wants = torch.is_grad_enabled() and any(t.requires_grad for t in (projected_KE, words_VE, bias_V))
    found: tuple[Tensor, ...] = _Function.apply(projected_KE, words_VE, bias_V, labels_K, draws_K, wants)  # type: ignore[no-untyped-call]
    return found


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor, labels: Tensor, draws: Tensor | None, wants: bool
    ) -> tuple[Tensor, ...]:
        (positions, width), words = hidden.shape, len(table)
        rows, lines = -(-positions // 32) * 32, -(-words // 32) * 32
        plain: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}  # whatever the program's defaults are
        half = {"rows": rows, "operand": rows, "table_forward": lines, "table_backward": lines}
        t = {
            "hidden": hidden.detach().float().contiguous(),
            "table": table.detach().float().contiguous(),
            "bias": bias.detach().float().contiguous(),
            "labels": labels.long().contiguous(),
            **{name: torch.empty(count, width, dtype=torch.bfloat16, device="cpu") for name, count in half.items()},
            "padded_bias": torch.empty(lines, **plain),
            **{name: torch.empty(positions, **plain) for name in ("log_z", "loss", "entropy")},
            "sampled": torch.zeros(positions, dtype=torch.int64, device="cpu"),
            "correct": torch.zeros(positions, dtype=torch.bool, device="cpu"),
        }
        if draws is not None:
            t["draws"] = draws.float().contiguous()
        if wants:
            t |= {"d_table": torch.zeros(lines, width, **plain), "d_bias": torch.zeros(lines, **plain)}
        call = _Softmax(positions=positions, words=words, width=width, **{k: v.data_ptr() for k, v in t.items()})
        hidden_grad = _compute(call, wants, rows, width)
        if wants:
            ctx.save_for_backward(hidden_grad[:positions], t["d_table"][:words], t["d_bias"][:words])
        ctx.mark_non_differentiable(t["sampled"], t["correct"], t["entropy"])
        return t["loss"].sum(), t["sampled"], t["correct"], t["entropy"]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return *(grad * upstream[0] for grad in ctx.saved_tensors), None, None, None


def _compute(call: _Softmax, wants: bool, rows: int, width: int) -> Tensor:
    """Both looks; returns the gradient of the hidden states, [rows, E], zeros unless wanted."""
    library = kernels()
    assert library is not None
    this, number = ctypes.byref(call), ctypes.c_int64
    blocks, spans = -(-call.words // _SPAN), -(-call.positions // _SPAN)
    slices = slices_of(blocks)
    share_out(blocks, slices, lambda _, a, b: library.vocabulary_pack(this, number(a), number(b)))
    library.positions_pack(this)
    share_out(
        spans,
        slices_of(spans),
        lambda _, a, b: library.vocabulary_look(this, number(a * _SPAN), number(min(b * _SPAN, call.positions))),
    )
    if not wants:
        return torch.zeros(0, width, dtype=torch.float32, device="cpu")
    sums = torch.zeros(slices, rows, width, dtype=torch.float32, device="cpu")
    share_out(blocks, slices, lambda i, a, b: library.vocabulary_gradient(this, number(a), number(b), address(sums[i])))
    return sums.sum(0) if slices > 1 else sums[0]
