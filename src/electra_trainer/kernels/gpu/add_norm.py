"""Dropout, residual and LayerNorm in one pass over memory each way.

LayerNorm(dropout(inner) + residual), in fp32 registers; what is written has the type of `inner`, so the hidden states stay in 16 bits
under autocast. Which elements are dropped follows from a key (keyed_dropout.py), and is worked out again in the backward pass.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.kernels.gpu import keyed_dropout, trust

NAME = "dropout + residual + LayerNorm"
_PROGRAMS = 1024
"""Most partial sums of the gradients of weight and bias."""
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""Relative, of results and gradients, against the plain way in fp32."""


def usable(inner: Tensor) -> bool:
    """True where `add_norm` is to be called."""
    return inner.is_cuda and (torch.compiler.is_compiling() or trust.trusted(NAME, inner.device))


def add_norm(inner: Tensor, residual: Tensor, norm: nn.LayerNorm, *, dropout: float) -> Tensor:
    """LayerNorm(dropout(inner) + residual): each [.., D], the result in the type of `inner`."""
    if torch.compiler.is_compiling():  # the compiler fuses the plain way itself
        return plain(inner, residual, norm.weight, norm.bias, norm.eps, dropout=dropout).to(inner.dtype)
    out: Tensor = AddNorm.apply(inner, residual, norm.weight, norm.bias, norm.eps, dropout)  # type: ignore[no-untyped-call]
    return out


def plain(inner: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, *, dropout: float = 0.0) -> Tensor:
    """The plain twin, in fp32."""
    value = F.dropout(inner, dropout, training=dropout > 0) + residual
    return F.layer_norm(value.float(), (value.shape[-1],), weight, bias, eps)


class AddNorm(torch.autograd.Function):
    """One kernel each way; see `add_norm`."""

    @staticmethod
    def forward(
        ctx: Any, inner: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float, dropout: float
    ) -> Tensor:
        key = keyed_dropout.draw_key(inner.device, dropout)
        out, *saved = forward(inner, residual, weight, bias, key, eps=eps, dropout=dropout)
        ctx.save_for_backward(*saved, weight, key)
        ctx.dropout, ctx.shape = dropout, inner.shape
        return out.view(inner.shape)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        inner, residual, mean, spread, weight, key = ctx.saved_tensors
        found = backward(upstream[0], inner, residual, mean, spread, weight, key, dropout=ctx.dropout)
        return found[0].view(ctx.shape), found[1].view(ctx.shape), found[2], found[3], None, None


def forward(
    inner: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, key: Tensor, *, eps: float, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The result as [N, D], and what the backward pass needs: both inputs as [N, D], mean and 1/deviation of each row."""
    kernels = trust.kernels()
    width = inner.shape[-1]
    rows_ND, added_ND = inner.contiguous().view(-1, width), residual.contiguous().view(-1, width)
    out = torch.empty_like(rows_ND)
    mean, spread = (torch.empty(len(rows_ND), device=inner.device) for _ in range(2))
    if len(rows_ND):
        with trust.on(inner.device):
            kernels.add_norm_forward[(len(rows_ND),)](
                rows_ND, added_ND, weight, bias, key, out, mean, spread, width, eps, *keyed_dropout.numbers(dropout),
                DROP=dropout > 0, BLOCK_D=kernels.triton.next_power_of_2(width), num_warps=_warps(width),
            )  # fmt: skip
    return out, rows_ND, added_ND, mean, spread


def backward(
    upstream: Tensor, inner: Tensor, residual: Tensor, mean: Tensor, spread: Tensor, weight: Tensor, key: Tensor, *, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of inner and residual, [N, D], and of weight and bias, [D]."""
    kernels = trust.kernels()
    many, width = inner.shape
    above = upstream.contiguous().view(-1, width)
    for_inner, for_residual = torch.empty_like(inner), torch.empty_like(residual)
    rows = max(1, kernels.triton.cdiv(many, _PROGRAMS))
    programs = kernels.triton.cdiv(many, rows)
    partial = torch.zeros((2, programs, width), device=inner.device)
    if many:
        with trust.on(inner.device):
            kernels.add_norm_backward[(programs,)](
                above, inner, residual, weight, key, mean, spread, for_inner, for_residual, partial[0], partial[1],
                many, width, *keyed_dropout.numbers(dropout), ROWS=rows, DROP=dropout > 0, BLOCK_D=kernels.triton.next_power_of_2(width),
                num_warps=_warps(width),
            )  # fmt: skip
    for_weight, for_bias = partial.sum(1)
    return for_inner, for_residual, for_weight.to(weight.dtype), for_bias.to(weight.dtype)


def _warps(width: int) -> int:
    return 1 if width <= 256 else 4


def check(device: torch.device, *, shape: tuple[int, int] = (37, 256)) -> None:
    """Compare with the plain twin, with a share of 0 and of 0.3 dropped, in fp32 and bf16."""
    random, width = torch.Generator().manual_seed(6), shape[1]
    made = [torch.randn(size, generator=random) for size in (shape, shape, (width,), (width,), shape)]
    for dtype, tolerance in TOLERANCE.items():
        tensors = [tensor.to(dtype).float().to(device).requires_grad_() for tensor in made]
        inner, residual, weight, bias, above = tensors
        for dropout in (0.0, 0.3):
            key = torch.tensor([1234, 5678], device=device)
            rows, columns = (torch.arange(many, device=device) for many in shape)
            kept = keyed_dropout.kept(key, rows[:, None], columns, dropout)
            expected = plain(inner * kept / (1 - dropout), residual, weight, bias, 1e-12)
            gradients = torch.autograd.grad(expected, tensors[:4], above.detach())
            with torch.no_grad():
                out, *saved = forward(
                    inner.to(dtype), residual.to(dtype), weight, bias, key, eps=1e-12, dropout=dropout
                )
                found = backward(above.to(dtype), *saved, weight, key, dropout=dropout)
            trust.close(f"the result ({dtype})", out, expected, tolerance)
            for name, mine, theirs in zip(("inner", "residual", "weight", "bias"), found, gradients, strict=True):
                trust.close(f"the gradient of {name} ({dtype}, dropout {dropout})", mine, theirs, tolerance)


trust.register(NAME, check)
