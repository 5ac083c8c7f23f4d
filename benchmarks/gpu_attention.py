"""Attention alone, with dropout, forward and backward, by each kernel that PyTorch has for it: `python -m benchmarks.gpu_attention`.

One JSON line for each length and kernel. `mean` is the output for equal scores and values of 1: a kernel whose dropout keeps the share that
it divides by has 1 there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from electra_trainer.train.timing import timed

TOKENS, HEADS, WIDTH, DROPPED = 16384, 4, 64, 0.1
"""ELECTRA-Small's step of 128 rows; other lengths have as many tokens."""
LENGTHS = (128, 256, 512)
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values [B, T, H, D] to the output, of the same shape."""


def of_rows(backend: SDPBackend, *, bias: Tensor | None) -> Attend:
    """PyTorch's attention by one of its kernels."""

    def attend(*qkv: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            heads = [one.transpose(1, 2) for one in qkv]
            return F.scaled_dot_product_attention(*heads, attn_mask=bias, dropout_p=DROPPED).transpose(1, 2)

    return attend


def of_pieces(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """FlashAttention over one long sequence of pieces, here the rows."""
    rows, length = query.shape[:2]
    starts = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=query.device)
    flat = [one.flatten(0, 1) for one in (query, key, value)]
    found = torch.ops.aten._flash_attention_forward(*flat, starts, starts, length, length, DROPPED, False, False)
    output: Tensor = found[0]
    return output.view_as(query)


def measured(attend: Attend, shape: tuple[int, ...], device: torch.device) -> dict[str, object]:
    """Seconds of both passes, on a GPU recorded in a CUDA graph as a step is; and the mean."""
    qkv = [torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    gradient = torch.randn_like(qkv[0])

    def both() -> None:
        torch.autograd.grad(attend(*qkv), qkv, gradient)

    try:
        both()
        if device.type == "cuda":
            from triton.testing import do_bench_cudagraph

            seconds = do_bench_cudagraph(both, rep=200, return_mode="median") / 1e3
        else:
            seconds = timed(both, device)
        with torch.no_grad():
            query, key, value = (torch.full_like(one, number) for one, number in zip(qkv, (0, 0, 1), strict=True))
            return {"seconds": seconds, "mean": float(attend(query, key, value).float().mean())}
    except RuntimeError as error:
        return {"error": str(error).strip().splitlines()[0][:200]}


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    given = parser.parse_args()
    device = torch.device(given.device)
    for length in LENGTHS:
        rows = given.tokens // length
        bias = torch.zeros(rows, 1, length, length, device=device, dtype=torch.bfloat16)
        kernels = {
            "math, bias": of_rows(SDPBackend.MATH, bias=bias),
            "efficient, bias": of_rows(SDPBackend.EFFICIENT_ATTENTION, bias=bias),
            "flash, dense": of_rows(SDPBackend.FLASH_ATTENTION, bias=None),
            "flash, pieces": of_pieces,
        }
        for name, attend in kernels.items():
            found = measured(attend, (rows, length, HEADS, WIDTH), device)
            print(json.dumps({"length": length, "rows": rows, "kernel": name, **found}), flush=True)


if __name__ == "__main__":
    main()
