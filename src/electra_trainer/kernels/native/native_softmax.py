"""The vocabulary's softmax through the kernels: what kernels/vocabulary_softmax.py computes, without writing the
logits.
"""

import ctypes
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra_trainer.kernels.native.library import call, cpu_precision, kernels, share_out, slices_of
from electra_trainer.kernels.vmapped import batched

_SPAN = 256
"""Words in a block."""
_POINTERS = (
    *"hidden table bias labels draws rows operand table_forward table_backward padded_bias log_z sampled loss "
    "entropy".split(),
    *"correct d_table d_bias".split(),
)


class _Softmax(ctypes.Structure):
    """`Softmax` in softmax.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("positions", "words", "width")),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


def fits(projected_KE: Tensor) -> bool:
    """True where the kernels can do it: on a CPU, a width in multiples of 32."""
    if projected_KE.device.type != "cpu" or projected_KE.shape[1] % 32 or batched(projected_KE):
        return False
    return kernels(cpu_precision()) is not None


def run_softmax(
    projected_KE: Tensor, words_VE: Tensor, bias_V: Tensor, labels_K: Tensor, draws_K: Tensor | None
) -> tuple[Tensor, ...]:
    """Loss (a sum, with gradient), samples (zeros without draws), whether the label was the most probable word, entropy
    [K].
    """
    wants = torch.is_grad_enabled() and any(t.requires_grad for t in (projected_KE, words_VE, bias_V))
    inputs = projected_KE, words_VE, bias_V, labels_K, draws_K
    return _Function.apply(kernels(cpu_precision()), *inputs, wants)  # type: ignore[no-any-return, no-untyped-call]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor,
        labels: Tensor,
        draws: Tensor | None,
        wants: bool,
    ) -> tuple[Tensor, ...]:
        (positions, width), words = hidden.shape, len(table)
        rows, lines = -(-positions // 32) * 32, -(-words // 32) * 32
        plain: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}  # whatever the program's defaults are
        number = torch.bfloat16 if cpu_precision() == "bf16" else torch.float32
        layouts = {"rows": rows, "operand": rows, "table_forward": lines, "table_backward": lines}
        t = {
            "hidden": hidden.detach().float().contiguous(),
            "table": table.detach().float().contiguous(),
            "bias": bias.detach().float().contiguous(),
            "labels": labels.long().contiguous(),
            **{name: torch.empty(count, width, dtype=number, device="cpu") for name, count in layouts.items()},
            "padded_bias": torch.empty(lines, **plain),
            **{name: torch.empty(positions, **plain) for name in ("log_z", "loss", "entropy")},
            "sampled": torch.zeros(positions, dtype=torch.int64, device="cpu"),
            "correct": torch.zeros(positions, dtype=torch.bool, device="cpu"),
        }
        if draws is not None:
            t["draws"] = draws.float().contiguous()
        if wants:
            t |= {"d_table": torch.empty(lines, width, **plain), "d_bias": torch.zeros(lines, **plain)}
        request = _Softmax(positions=positions, words=words, width=width, **{k: v.data_ptr() for k, v in t.items()})
        hidden_grad = _compute(library, request, wants, rows, width)
        if wants:
            ctx.save_for_backward(hidden_grad[:positions], t["d_table"][:words], t["d_bias"][:words])
        ctx.mark_non_differentiable(t["sampled"], t["correct"], t["entropy"])
        return t["loss"].sum(), t["sampled"], t["correct"], t["entropy"]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(grad * upstream[0] for grad in ctx.saved_tensors), None, None, None


def _compute(library: ctypes.CDLL, request: _Softmax, wants: bool, rows: int, width: int) -> Tensor:
    """Both looks; returns the gradient of the hidden states, [rows, E], zeros unless wanted."""
    blocks = -(-request.words // _SPAN)
    share_out(blocks, lambda _, a, b: call(library.vocabulary_pack, request, a, b))
    call(library.positions_pack, request)
    look = partial(call, library.vocabulary_look, request)
    share_out(rows // 32, lambda _, a, b: look(32 * a, min(32 * b, request.positions)))
    if not wants:
        return torch.zeros(0, width, dtype=torch.float32, device="cpu")
    sums = torch.zeros(slices_of(blocks), rows, width, dtype=torch.float32, device="cpu")
    share_out(blocks, lambda i, a, b: call(library.vocabulary_gradient, request, a, b, sums[i]))
    return sums.sum(0) if len(sums) > 1 else sums[0]
