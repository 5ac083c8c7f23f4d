"""Dropout, residual and LayerNorm in one pass over memory each way.

LayerNorm(dropout(inner) + residual), in fp32 registers; what is written has the type of `inner`, so the hidden states
stay in 16 bits under autocast. Which elements are dropped follows from a key (keyed_dropout.py), and is worked out
again in the backward pass. To PyTorch's compiler both kernels are operators, as attention's are: what it makes itself
reads the inputs twice on the way back.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra_trainer.kernels.gpu import keyed_dropout, trust

NAME = "dropout + residual + LayerNorm"
_PROGRAMS = 1024
"""Most partial sums of the gradients of weight and bias."""
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
"""Relative, of results and gradients, against the plain way in fp32."""


@dataclass(frozen=True)
class Shape:
    """What kernels are compiled for."""

    dtype: torch.dtype
    width: int
    drops: bool
    back: bool
    """Whether gradients are needed."""


def usable(device: torch.device, shape: Shape) -> bool:
    """True where `add_norm` is to be called."""
    return shape.dtype in TOLERANCE and trust.trusted(NAME, device, shape)


def parts(many: int) -> int:
    """Partial sums of the gradients of shift, weight and bias over `many` rows."""
    return -(-many // _rows(many))


def _rows(many: int) -> int:
    """Rows of a program on the way back."""
    return max(1, -(-many // _PROGRAMS))


def add_norm(
    inner: Tensor, shift: Tensor, residual: Tensor, norm: nn.LayerNorm, key: Tensor, *, dropout: float
) -> Tensor:
    """LayerNorm(dropout(inner + shift) + residual): each [.., D], but the bias `shift` [D]; the result in the type of
    `inner`.

    The bias of the product is added here, since its gradient costs nothing here and two kernels elsewhere. `key` is the
    mask's, int64 [2]; it is not read where nothing is dropped.
    """
    out: Tensor = torch.ops.electra.add_norm(inner, shift, residual, norm.weight, norm.bias, key, norm.eps, dropout)[0]
    return out


def plain(inner: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The plain twin of what follows dropout, in fp32."""
    value = inner + residual
    return F.layer_norm(value.float(), (value.shape[-1],), weight, bias, eps)


def _forward(
    inner: Tensor,
    shift: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    kernels = trust.kernels()
    out, levels = _like_forward(inner, shift, residual, weight, bias, key, eps, dropout)
    many, width = levels.shape[1], inner.shape[-1]
    if many:
        with trust.on(inner.device):
            kernels.add_norm_forward[(many,)](
                inner.contiguous(), shift, residual.contiguous(), weight, bias, key, out, levels, many, width, eps,
                *keyed_dropout.numbers(dropout), **_constants(width, dropout),
            )  # fmt: skip
    return out, levels


def _backward(
    upstream: Tensor,
    inner: Tensor,
    shift: Tensor,
    residual: Tensor,
    weight: Tensor,
    key: Tensor,
    levels: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    kernels = trust.kernels()
    many, width = levels.shape[1], inner.shape[-1]
    found = _like_backward(upstream, inner, shift, residual, weight, key, levels, dropout)
    if many:
        with trust.on(inner.device):
            kernels.add_norm_backward[(parts(many),)](
                upstream.contiguous(), inner.contiguous(), shift, residual.contiguous(), weight, key, levels, *found, many, width,
                *keyed_dropout.numbers(dropout), ROWS=_rows(many), **_constants(width, dropout),
            )  # fmt: skip
    return found


def _constants(width: int, dropout: float) -> dict[str, Any]:
    """Compile-time constants of both kernels."""
    block = trust.kernels().triton.next_power_of_2(width)
    return {"DROP": dropout > 0, "BLOCK_D": block, "num_warps": _warps(width)}


def _like_forward(
    inner: Tensor,
    shift: Tensor,
    residual: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Result, and the numbers that the backward pass needs: mean and 1/deviation of each row, fp32 [2, N]."""
    many = inner.shape[:-1].numel()
    return inner.new_empty(inner.shape), inner.new_empty((2, many), dtype=torch.float32)


def _like_backward(
    upstream: Tensor,
    inner: Tensor,
    shift: Tensor,
    residual: Tensor,
    weight: Tensor,
    key: Tensor,
    levels: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of inner and residual; partial sums of those of shift, weight and bias, fp32 [parts, 3, D]."""
    partial = inner.new_empty((parts(levels.shape[1]), 3, inner.shape[-1]), dtype=torch.float32)
    return inner.new_empty(inner.shape), residual.new_empty(residual.shape), partial


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    inner, shift, residual, weight, bias, key, _, ctx.dropout = inputs
    ctx.kinds = shift.dtype, weight.dtype, bias.dtype
    ctx.save_for_backward(inner, shift, residual, weight, key, output[1])


def _gradients(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    found = torch.ops.electra.add_norm_backward(upstream, *ctx.saved_tensors, ctx.dropout)
    for_inner, for_residual, partial = found
    shift, weight, bias = (total.to(kind) for total, kind in zip(partial.sum(0), ctx.kinds, strict=True))
    return for_inner, shift, for_residual, weight, bias, None, None, None


_add_norm = torch.library.custom_op(
    "electra::add_norm",
    _forward,
    mutates_args=(),
    schema="(Tensor inner, Tensor shift, Tensor residual, Tensor weight, Tensor bias, Tensor key, float eps, float "
    "dropout)"
    " -> (Tensor, Tensor)",
)
_add_norm_backward = torch.library.custom_op(
    "electra::add_norm_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor upstream, Tensor inner, Tensor shift, Tensor residual, Tensor weight, Tensor key, Tensor levels, "
    "float dropout)"
    " -> (Tensor, Tensor, Tensor)",
)
_add_norm.register_fake(_like_forward)
_add_norm_backward.register_fake(_like_backward)
_add_norm.register_autograd(_gradients, setup_context=_keep)


def _warps(width: int) -> int:
    return 1 if width <= 256 else 4


def check(device: torch.device, shape: Shape, *, rows: int = 37) -> None:
    """Compare with the plain twin on some rows, 0.3 of the elements dropped where `shape` drops."""
    random, width, dropout = torch.Generator().manual_seed(6), shape.width, 0.3 * shape.drops
    norm = nn.LayerNorm(width, eps=1e-12, device=device)
    made = [torch.randn(size, generator=random).to(device) for size in ((rows, width),) * 3 + ((width,),) * 3]
    inner, residual, above = (tensor.to(shape.dtype) for tensor in made[:3])
    norm.weight.data, norm.bias.data, shift = made[3], made[4], made[5].to(shape.dtype).requires_grad_()
    key = torch.tensor([1234, 5678], device=device)
    places = (torch.arange(rows, device=device)[:, None], torch.arange(width, device=device))
    kept = keyed_dropout.kept(key, *places, dropout) / (1 - dropout)
    both = [
        [tensor.to(dtype).requires_grad_(shape.back) for tensor in (inner, residual)]
        for dtype in (torch.float32, shape.dtype)
    ]
    exact, given = both
    expected = plain((exact[0] + shift.float()) * kept, exact[1], norm.weight, norm.bias, norm.eps)
    found = add_norm(given[0], shift, given[1], norm, key, dropout=dropout)
    trust.close("the result", found, expected, TOLERANCE[shape.dtype])
    if shape.back:
        parameters = (norm.weight, norm.bias, shift)
        theirs = torch.autograd.grad(expected, [*exact, *parameters], above.float())
        ours = torch.autograd.grad(found, [*given, *parameters], above)
        for name, one, other in zip(("inner", "residual", "weight", "bias", "shift"), ours, theirs, strict=True):
            trust.close(f"the gradient of {name}", one, other, TOLERANCE[shape.dtype])


trust.register(NAME, check, usual=Shape(torch.bfloat16, width=256, drops=True, back=True))
