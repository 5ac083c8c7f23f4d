"""Muon's step through the kernels: what train/optim.py computes for matrices of one shape."""

import ctypes
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from electra_trainer.kernels.native.library import as_c, call, kernels, share_out


class _Step(ctypes.Structure):
    """`MuonStep` in muon.hpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "columns", "parts")),
        *((name, ctypes.c_double) for name in ("momentum", "rate", "kept", "a", "b", "c")),
        *((name, ctypes.POINTER(ctypes.c_void_p)) for name in ("gradients", "means", "weights")),
    )


def fits(weights: Sequence[Tensor], means: Sequence[Tensor], parts: int, *, precision: str) -> bool:
    """True where the kernels can do it: fp32 on a CPU, contiguous, sides of each matrix in multiples of 32."""
    rows, columns = weights[0].shape
    tensors = [*weights, *means, *(one.grad for one in weights)]
    return rows % (32 * parts) == columns % 32 == 0 and all(map(_is_plain, tensors)) and kernels(precision) is not None


def _is_plain(tensor: Tensor | None) -> bool:
    return (
        tensor is not None
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
    )


def move(
    weights: Sequence[Tensor],
    means: Sequence[Tensor],
    parts: int,
    *,
    precision: str,
    momentum: float,
    rate: float,
    decay: float,
    quintic: tuple[float, float, float],
) -> None:
    """Average the gradients into `means` and move the weights, both in place, each matrix by one thread.

    Args:
        weights: of one shape, [parts * R, C], with gradients; `fits` is true of them.
        rate: factor of the orthogonal direction. decay: share of the weight that is taken off.
        quintic: coefficients of a Newton-Schulz step.
    """
    library = kernels(precision)
    assert library is not None
    gradients = [one.grad for one in weights]
    pointers = [as_c(list(tensors)) for tensors in (gradients, means, weights)]
    rows, columns = weights[0].shape
    request = _Step(rows // parts, columns, parts, momentum, rate, 1 - decay, *quintic, *pointers)
    step = partial(call, library.muon_step, request)
    share_out(len(weights) * parts, lambda _, first, last: step(first, last))
