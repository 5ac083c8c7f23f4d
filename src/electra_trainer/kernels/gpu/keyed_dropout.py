"""Which elements dropout keeps on a GPU: a 32-bit mix of a key and of an element's place.

A key is 64 random bits, drawn from PyTorch's generator on the device, with a number that tells masks of the same key
apart. The mask is computed again in the backward pass instead of being kept. An element costs two products and a few
integer operations, a sixth of the ten rounds of Philox that `torch.nn.functional.dropout` and `tl.rand` spend on it,
and these rounds were half of the attention kernels' work. The rounds of the mix are of the kind that Chris Wellons'
hash-prospector found to spread every bit; the second word of the key enters between them, so that no mask is a shifted
copy of another one. tests/kernels/gpu/test_keyed_dropout.py has the statistics. layer_kernels.py has the same
arithmetic, bit for bit.
"""

import torch
from torch import Tensor

WORDS = 2
"""Numbers in a key, int64."""
# as int32 counts, which wrap around
_SPREAD, _FIRST, _SECOND = 0x9E3779B1 - 2**32, 0x21F0AAAD, 0x735A2D97


def draw_keys(device: torch.device, *shape: int) -> Tensor:
    """Keys from the device's generator, all in one draw, int64 [*shape, 2].

    They follow `Rng.seed_dropout`, in a CUDA graph too: the generator is read when the graph is replayed.
    """
    return torch.randint(0, 2**32, (*shape, WORDS), device=device)


def no_keys(device: torch.device, *shape: int) -> Tensor:
    """In place of keys where nothing is dropped, and no kernel reads them."""
    return torch.empty((*shape, WORDS), dtype=torch.int64, device=device)


def kept(key: Tensor, number: int | Tensor, columns: Tensor, p: float) -> Tensor:
    """True where an element is kept, with probability 1 - p: what the kernels compute, in PyTorch's operations.

    Args:
        key: int64 [2].
        number: tells masks of one key apart; a tensor is broadcast against `columns`.
        columns: places in the mask, below 2^32, int64.
        p: the share that is dropped, to 2^-32.
    """
    first, second = (word.to(torch.int32) for word in key)
    counted = torch.as_tensor(number, device=key.device).to(torch.int32)
    low = _mixed(counted * _SPREAD + first)
    high = _mixed(low ^ second)
    x = columns.to(torch.int32) * _SPREAD + low
    x = (x ^ _right(x, 16)) * _FIRST
    x = (x ^ _right(x, 15) ^ high) * _SECOND
    return x >= numbers(p)[0]


def numbers(p: float) -> tuple[int, float]:
    """What a kernel needs of p: the limit in the range of int32 below which an element is dropped, and the factor of
    the others.
    """
    return min(int(p * 2**32), 2**32 - 1) - 2**31, 1 / (1 - p)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _right(x, 16)) * _FIRST
    x = (x ^ _right(x, 15)) * _SECOND
    return x ^ _right(x, 15)


def _right(x: Tensor, bits: int) -> Tensor:
    """Shift to the right, filling with zeros."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)
