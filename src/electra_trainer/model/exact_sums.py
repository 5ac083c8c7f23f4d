"""Gradients of embedding tables on a GPU that are the same each time: sums of integers, which no order of additions
changes.

PyTorch adds up the rows of a small table with float atomics, in whatever order they come, and sorts the ids of a large
one: 60 kernels for
the three tables of a network, and no two runs alike. Here the gradient becomes 64-bit integers, scaled by a power of
two so that the largest sum there can be fits; a gradient of 16,384 tokens keeps 48 bits below its largest number, where
fp32 has 24.
"""

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

_AT_ONCE = 1 << 24
"""Numbers that are in memory as integers together: 128 MB."""


class Table(Protocol):
    """A table of embeddings, [rows, E]: a module that looks up its rows."""

    @property
    def weight(self) -> Tensor: ...
    def __call__(self, ids: Tensor, /) -> Tensor: ...


def sum_of_rows(tables: Sequence[Table], ids: Sequence[Tensor]) -> Tensor:
    """Sum over the tables of their rows at `ids`, each int64 [B, T]: [B, T, E]."""
    if on_a_gpu(ids[0]):
        return exact_sum_of_rows([table.weight for table in tables], ids)
    return functools.reduce(operator.add, (table(places) for table, places in zip(tables, ids, strict=True)))


def exact_sum_of_rows(tables: Sequence[Tensor], ids: Sequence[Tensor]) -> Tensor:
    """`sum_of_rows` of tables [rows, E], whose gradients are sums of integers."""
    summed: Tensor = _SumOfRows.apply(len(tables), *tables, *ids)  # type: ignore[no-untyped-call]
    return summed


def on_a_gpu(tensor: Tensor) -> bool:
    """True where sums are to be exact; tests have it say so of CPUs."""
    return tensor.is_cuda


class _SumOfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        tables, ids = tensors[:count], tensors[count:]
        ctx.save_for_backward(*ids)
        ctx.rows = [len(table) for table in tables]
        summed = F.embedding(ids[0], tables[0])
        for table, places in zip(tables[1:], ids[1:], strict=True):
            summed = summed + F.embedding(places, table)
        return summed

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        ids = ctx.saved_tensors
        return (
            None,
            *exact_sums(upstream[0].flatten(0, 1).float(), [i.flatten() for i in ids], ctx.rows),
            *(None for _ in ids),
        )


def exact_sums(values_NE: Tensor, ids: list[Tensor], rows: list[int]) -> list[Tensor]:
    """For each table, of that many rows, the sum of the values whose id is a row's: fp32 [rows, E].

    NaN everywhere if a value is NaN or infinite.

    Args:
        values_NE: fp32.
        ids: of each table, int64 [N].
        rows: of each table.
    """
    largest = torch.linalg.vector_norm(values_NE, math.inf) if len(values_NE) else values_NE.new_zeros(())
    # powers of two by the exponent's bits in fp32, to the last digit: `up` brings a sum of all to below 2^62, and is at
    # most 2^126
    exponent = largest.view(torch.int32) & (255 << 23)
    up = ((253 << 23) - (exponent - (62 - len(values_NE).bit_length() << 23)).clamp(min=0)).view(torch.float32)
    total = torch.zeros((sum(rows), values_NE.shape[1]), dtype=torch.int64, device=values_NE.device)
    tables = torch.split(total, rows)
    step = max(1, _AT_ONCE // values_NE.shape[1])
    with _in_any_order():
        for first in range(0, len(values_NE), step):
            part = slice(first, first + step)
            whole_nE = (values_NE[part] * up).to(torch.int64)
            for table, places in zip(tables, ids, strict=True):
                table.index_add_(0, places[part], whole_nE)
    back = 1 / up + (largest - largest)  # NaN where the largest is none or infinite
    return list(torch.split(total * back, rows))


@contextmanager
def _in_any_order() -> Iterator[None]:
    """Atomic additions, also where PyTorch is asked for deterministic algorithms: it would sort, which integers do not
    need.
    """
    asked, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=warns)
