"""A safetensors file in pieces, without a second copy of the tensors and without a pause.

For tensors of one type these are the bytes of `safetensors.torch.save`. But the library makes one block of everything while it holds
Python's lock, so a thread that saves stops all others. Here only the header is built, and a tensor's bytes are yielded from where they
are, a few megabytes at a time: hashing and writing release the lock.
"""

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32",
    torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Number types that a checkpoint may hold, by their safetensors names."""
PIECE = 1 << 22
"""Approximate bytes of a piece."""


class TensorFile:
    """The bytes of a file of these tensors, as often as it is iterated; the tensors must not change before it is written."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        order = sorted(
            tensors, key=lambda name: (-tensors[name].element_size(), name)
        )  # each lies at a multiple of its size
        self._tensors = [tensors[name].detach().cpu().contiguous() for name in order]
        table, at = {}, 0
        for name, tensor in zip(order, self._tensors, strict=True):
            table[name] = {
                "dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]
            }  # fmt: skip
            at += tensor.nbytes
        header = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        header += b" " * (-len(header) % 8)
        self._header = len(header).to_bytes(8, "little") + header

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """The bytes; small tensors together, large ones in pieces."""
        small: list[bytes | memoryview] = [self._header]
        waiting = len(self._header)
        for tensor in self._tensors:
            view = tensor.reshape(-1).view(torch.uint8).numpy().data
            if waiting + len(view) <= PIECE:
                small.append(view)
                waiting += len(view)
                continue
            yield b"".join(small)
            small, waiting = [], 0
            for at in range(0, len(view), PIECE):
                yield view[at : at + PIECE]
        yield b"".join(small)
