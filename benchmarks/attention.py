"""Forward and backward of attention on this CPU, SDPA against two batched products: `python -m benchmarks.attention`.

Both run in turn in one process, without and with dropout; the table gives medians in milliseconds and their ratio.
model/attention.py follows it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.model import attention
from electra_trainer.supervise.launcher import restart_tuned

SHAPES = ((128, 2, 32, 64), (32, 4, 128, 64), (8, 12, 512, 64))  # rows, heads, tokens, size of a head
REPEATS = 15


def sdpa(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor, dropout: float) -> Tensor:
    """PyTorch's own."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def two_products(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Tensor, dropout: float) -> Tensor:
    """Ours."""
    mixed: Tensor = attention._TwoProducts.apply(query, key, value, bias_B1TT, dropout)  # type: ignore[no-untyped-call]
    return mixed


def milliseconds(attend: Callable[..., Tensor], inputs: list[Tensor], bias: Tensor, dropout: float) -> float:
    """One forward and backward pass."""
    start = time.perf_counter()
    attend(*inputs, bias_B1TT=bias, dropout=dropout).sum().backward()  # type: ignore[no-untyped-call]
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Print the table."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("rows heads tokens size  dtype     dropout   SDPA ms  products ms  SDPA / products")
    for (rows, heads, tokens, size), dtype, dropout in itertools.product(
        SHAPES, (torch.float32, torch.bfloat16), (0.0, 0.1)
    ):
        inputs = [torch.randn(rows, heads, tokens, size, dtype=dtype, requires_grad=True) for _ in range(3)]
        bias = torch.zeros(rows, 1, tokens, tokens, dtype=dtype)
        times: dict[str, list[float]] = {"sdpa": [], "products": []}
        for _ in range(REPEATS):
            times["sdpa"].append(milliseconds(sdpa, inputs, bias, dropout))
            times["products"].append(milliseconds(two_products, inputs, bias, dropout))
        one, two = (statistics.median(values) for values in times.values())
        name = str(dtype).removeprefix("torch.")
        print(
            f"{rows:4} {heads:5} {tokens:6} {size:4}  {name:<9} {dropout:6}  {one:8.2f}  {two:11.2f}  {one / two:15.2f}"
        )


if __name__ == "__main__":
    restart_tuned()
    main()
