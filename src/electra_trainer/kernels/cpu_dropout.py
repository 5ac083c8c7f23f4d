"""Dropout with cheap random bits on a CPU.

PyTorch draws dropout's Bernoulli numbers one by one there: 0.15 G elements/s a core, a fifth of a training step. Here
16 random bits an element come from NumPy's PCG64 in one sweep and become a mask by integer arithmetic.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.kernels.vmapped import next_seed

_LEVELS = 1 << 15
"""Probabilities are rounded to a multiple of 1/32,768; what is kept is scaled by the rounded one, so that means are
exact.
"""
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout of `x`; its numbers follow from one draw of PyTorch's own generator."""
    if p <= 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    dropped: Tensor = _Drop.apply(x, p, next_seed())  # type: ignore[no-untyped-call]
    return dropped


def kept_bits(shape: torch.Size, p: float, seed: int) -> Tensor:
    """int16 of that shape: all bits set where an element is kept (with probability 1 - p), none where it is dropped.

    The same seed gives the same bits, so that a backward pass makes them again instead of keeping them.
    """
    count = shape.numel()
    words = np.random.PCG64DXSM(seed).random_raw(-(-count // 4))
    bits = torch.from_numpy(words.view(np.int16))[:count].view(shape)
    # 15 random bits less the threshold: the sign says whether it is below; spread over the element and turned round
    return bits.bitwise_and_(_LEVELS - 1).sub_(_threshold(p)).bitwise_right_shift_(15).bitwise_not_()


def kept_scale(p: float) -> float:
    """Factor of the elements that are kept."""
    return _LEVELS / max(1, _LEVELS - _threshold(p))


def keep(x: Tensor, bits: Tensor) -> Tensor:
    """`x` where `bits` are set, 0 elsewhere."""
    integer = _INTEGERS[x.element_size()]
    if integer == bits.dtype:
        return (x.view(integer) & bits).view(x.dtype)
    mask = bits.to(integer)  # becomes the result, to save a pass through fresh memory
    return torch.bitwise_and(x.view(integer), mask, out=mask).view(x.dtype)


def _threshold(p: float) -> int:
    return min(_LEVELS, round(p * _LEVELS))


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, p: float, seed: int) -> Tensor:
        return keep(x.contiguous(), kept_bits(x.shape, p, seed)).mul_(kept_scale(p))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.p, ctx.seed = inputs

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradient = upstream[0].contiguous()
        return keep(gradient, kept_bits(gradient.shape, ctx.p, ctx.seed)).mul_(kept_scale(ctx.p)), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, p: float, seed_R: Tensor) -> tuple[Tensor, int]:
        """Each of R runs by its own seed."""
        parts = torch.unbind(x, in_dims[0]) if in_dims[0] is not None else [x] * info.batch_size
        each = zip(parts, seed_R.tolist(), strict=True)
        return torch.stack([_Drop.apply(part, p, seed) for part, seed in each]), 0  # type: ignore[no-untyped-call]
