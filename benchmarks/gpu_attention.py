"""Attention over packed rows on a GPU, four ways in turn, forward and backward: `python -m benchmarks.gpu_attention`.

A row has two pieces and a padded end. Ours gets the pieces; SDPA a mask of booleans, once with its memory-efficient kernel and once with
what it chooses; FlashAttention the limits of all pieces (varlen) and no mask. One JSON line a shape, dropout and way: median milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from electra_trainer.kernels.gpu import gpu_attention, keyed_dropout

SHAPES = ((128, 4, 128, 64), (256, 12, 128, 64), (128, 12, 256, 64), (64, 12, 512, 64))
"""Rows, heads, tokens and size of a head: Small, and Base at three lengths."""
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def pieces(rows: int, tokens: int, device: torch.device) -> Tensor:
    """Pieces 1 and 2, then padding (0): int32 [B, T]."""
    random = torch.Generator().manual_seed(1)
    turn = torch.randint(tokens // 4, 3 * tokens // 4, (rows, 1), generator=random)
    place = torch.arange(tokens)
    return torch.where(place >= tokens - tokens // 16, 0, 1 + (place >= turn)).to(torch.int32).to(device)


def ours(query: Tensor, key: Tensor, value: Tensor, piece_BT: Tensor, dropout: float) -> Tensor:
    """With a copy that a run does not make: its queries, keys and values come packed."""
    packed = torch.stack([one.transpose(1, 2) for one in (query, key, value)], 2)
    bias = packed.new_zeros(packed.shape[2:].numel(), requires_grad=True)
    mask_key = keyed_dropout.draw_keys(packed.device)
    return gpu_attention.attend(packed, bias, piece_BT, mask_key, dropout=dropout).transpose(1, 2)


def masked(backends: list[SDPBackend]) -> Attend:
    """SDPA with a mask, restricted to some of its kernels; to none: as it chooses."""

    def attend(query: Tensor, key: Tensor, value: Tensor, piece_BT: Tensor, dropout: float) -> Tensor:
        same = (piece_BT[:, :, None] == piece_BT[:, None, :])[:, None]
        with sdpa_kernel(backends) if backends else nullcontext():
            return F.scaled_dot_product_attention(query, key, value, attn_mask=same, dropout_p=dropout)

    return attend


def flash(query: Tensor, key: Tensor, value: Tensor, piece_BT: Tensor, dropout: float) -> Tensor:
    """FlashAttention over pieces as rows of their own; limits are found on the device, three a row whatever is in it."""
    rows, heads, tokens, size = query.shape
    lengths = torch.stack([(piece_BT == number).sum(1) for number in (1, 2, 0)], 1).reshape(-1)
    limits = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    flat = (one.transpose(1, 2).reshape(rows * tokens, heads, size) for one in (query, key, value))
    out: Tensor = torch.ops.aten._flash_attention_forward(*flat, limits, limits, tokens, tokens, dropout, False, False)[
        0
    ]
    return out.view(rows, tokens, heads, size).transpose(1, 2)


WAYS: dict[str, Attend] = {
    "ours": ours,
    "SDPA, memory-efficient": masked([SDPBackend.EFFICIENT_ATTENTION]),
    "SDPA, its choice": masked([]),
    "FlashAttention, varlen": flash,
}


def milliseconds(attend: Attend, given: list[Tensor], piece_BT: Tensor, dropout: float, repeats: int) -> list[float]:
    """Median time of a forward and a backward pass; the first calls compile."""
    device, upstream = piece_BT.device, torch.randn_like(given[0])
    events = device.type == "cuda"
    times: list[tuple[float, float]] = []
    for _ in range(repeats + 2):
        marks: list[torch.cuda.Event | float] = []
        for work in ("start", "forward", "backward"):
            if work == "forward":
                out = attend(*given, piece_BT, dropout)
            elif work == "backward":
                torch.autograd.grad(out, given, upstream)
            mark = torch.cuda.Event(enable_timing=True) if events else 1e3 * time.perf_counter()
            if events:
                mark.record()
            marks.append(mark)
        if events:
            torch.cuda.synchronize(device)
            times.append((marks[0].elapsed_time(marks[1]), marks[1].elapsed_time(marks[2])))
        else:
            times.append((marks[1] - marks[0], marks[2] - marks[1]))
    return [float(f"{statistics.median(column):.4g}") for column in zip(*times[2:], strict=True)]


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    for rows, heads, tokens, size in SHAPES if on_gpu else ((4, 2, 32, 32),):
        inputs = [
            torch.randn(rows, tokens, heads, size, device=device, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
            for _ in range(3)
        ]
        piece_BT = pieces(rows, tokens, device)
        for dropout in (0.0, 0.1):
            for name, attend in WAYS.items():
                line = {"rows": rows, "heads": heads, "tokens": tokens, "size": size, "dropout": dropout, "way": name}
                try:
                    forward, backward = milliseconds(attend, inputs, piece_BT, dropout, given.repeats)
                    line |= {"forward": forward, "backward": backward}
                except Exception as error:  # a way that cannot compute this is a result too
                    line["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
