"""Gradients of what all tokens share, a bias or the weights of a LayerNorm: one kernel adds up those of a whole layer.

Each program of a backward kernel (add_norm.py, gpu_attention.py) writes one partial sum of such gradients. An operator returns them as the
gradient of its `place`, a tensor without memory that stands for the parameters: what made the places of a layer gets all their gradients at
once, and finishes the sums in a fixed order. An operator that is given no place makes one for itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from electra_trainer.kernels.gpu import trust

NAME = "sums of a layer's gradients"
_LOADED = 128
"""Partial sums that a program reads at once."""


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for, in a layer."""

    dtype: torch.dtype
    """Of the biases; those of a LayerNorm are fp32."""
    width: int


def usable(device: torch.device, shape: Shape) -> bool:
    """True where the places of a layer are to be made together."""
    return trust.trusted(NAME, device, shape)


def places(shared: Sequence[Sequence[Tensor | None]], parts: Sequence[int]) -> list[Tensor]:
    """A place for each operator: never read, its gradient is the operator's partial sums.

    Args:
        shared: of each operator what gets the gradients, in the order of its sums: one tensor of 3D numbers, or three of D, of which the
            first may be None.
        parts: how many partial sums each operator writes.

    Returns:
        Each fp32 [parts, 3, D].
    """
    tensors = [tensor for group in shared for tensor in group]
    made: tuple[Tensor, ...] = _Places.apply([len(group) for group in shared], parts, *tensors)  # type: ignore[no-untyped-call]
    return list(made)


class _Places(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sizes: list[int], parts: Sequence[int], *tensors: Tensor | None) -> tuple[Tensor, ...]:
        last = tensors[-1]
        assert last is not None
        width = last.numel() * sizes[-1] // 3
        ctx.set_materialize_grads(False)
        ctx.sizes, ctx.like = sizes, [last if tensor is None else tensor.detach() for tensor in tensors]
        return tuple(last.new_empty((), dtype=torch.float32).expand(many, 3, width) for many in parts)

    @staticmethod
    def backward(ctx: Any, *partials: Tensor | None) -> tuple[Tensor | None, ...]:
        given, found, wanted = iter(ctx.like), [], []
        for size, partial in zip(ctx.sizes, partials, strict=True):
            like = [next(given) for _ in range(size)]
            made = [None if partial is None else torch.empty_like(one) for one in like]
            found += made
            wanted += [] if partial is None else [(partial, [one for one in made if one is not None])]
        if wanted:
            finish(*zip(*wanted, strict=True))
        needed = zip(found, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(one if need else None for one, need in needed)


def finish(partials: Sequence[Tensor], sums: Sequence[Sequence[Tensor]]) -> None:
    """Add up each of `partials`, [parts, 3, D], into its `sums`: one tensor of 3D numbers, or three of D."""
    kernels, width = trust.kernels(), partials[0].shape[2]
    rows = [row for group in sums for one in group for row in one.view(-1, width)]
    many = tuple(len(one) for one in partials)
    sizes = {"LOOPS": -(-max(many) // _LOADED), "BLOCK_P": _LOADED, "BLOCK_D": 16, "num_warps": 4}
    with trust.on(rows[0].device):
        kernels.finish[(-(-width // 16), len(rows))](
            tuple(one.contiguous() for one in partials), many, tuple(rows), width, **sizes
        )


def check(device: torch.device, shape: Shape) -> None:
    """Three operators of a layer against PyTorch's sums."""
    random = torch.Generator().manual_seed(9)
    partials = [torch.randn((parts, 3, shape.width), generator=random).to(device) for parts in (70, 200, 129)]
    found = [torch.empty(3 * shape.width, dtype=shape.dtype, device=device)]
    kinds = (shape.dtype, torch.float32, torch.float32)
    norms = [[torch.empty(shape.width, dtype=kind, device=device) for kind in kinds] for _ in range(2)]
    finish(partials, [found, *norms])
    for number, (partial, sums) in enumerate(zip(partials, [[*found[0].view(3, -1)], *norms], strict=True)):
        for one, expected in zip(sums, partial.sum(0).unbind(), strict=True):
            trust.close(f"a sum of operator {number}", one, expected, 1e-5 if one.dtype == torch.float32 else 1e-2)


trust.register(NAME, check, usual=Shape(torch.bfloat16, 256))
