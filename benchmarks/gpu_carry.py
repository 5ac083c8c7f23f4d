"""A run in few bytes, for machines that give little back: `python -m benchmarks.gpu_carry pack RUN OUT`, `unpack OUT RUN`.

Of the newest checkpoint, weights keep some bits of their mantissas, second moments fewer, and first moments, which ten steps make again,
none. The bytes of equal significance stand together and are compressed; the parts OUT/carried.00, .01, ... are small enough for one file
each. What `unpack` makes is a run folder to continue from.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from electra_trainer.runs import checkpoint
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Saved

PART, MOST = 15 << 20, 45 << 20
"""Most bytes of a part, and of all."""
MANTISSA = 23
"""Bits of a float32's mantissa."""
Bits = tuple[int, int, int]
"""Mantissa bits that are kept of weights, first and second moments; -1: zeros instead."""
CARRIED: Bits = (15, -1, 2)
COARSER: tuple[Bits, ...] = ((7, -1, 2), (7, -1, -1))
"""For networks that do not fit otherwise."""


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """To the nearest number with `bits` bits of mantissa; zeros for -1; what is not float32 stays."""
    if bits < 0:
        return torch.zeros_like(tensor)
    if tensor.dtype != torch.float32 or bits >= MANTISSA:
        return tensor
    whole, unit = tensor.contiguous().view(torch.int32), 1 << (MANTISSA - bits)
    return ((whole + unit // 2) & -unit).view(torch.float32)


def coarse(saved: Saved, bits: Bits) -> Saved:
    """The state with fewer bits; step counts stay."""

    def kept(name: str, tensor: Tensor) -> Tensor:
        kind = name.rpartition("/")[2]
        return rounded(tensor, {"exp_avg": bits[1], "exp_avg_sq": bits[2]}.get(kind, MANTISSA))

    return Saved(
        step=saved.step,
        weights={name: rounded(tensor, bits[0]) for name, tensor in saved.weights.items()},
        optimizer={name: kept(name, tensor) for name, tensor in saved.optimizer.items()},
        state=saved.state,
    )


def planes(tensor: Tensor) -> list[bytes]:
    """The first bytes of all numbers, compressed, then the second ones, ..."""
    whole = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    found = []
    for plane in whole.reshape(-1, tensor.element_size()).T:
        packer = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
        found.append(packer.compress(plane.tobytes()) + packer.flush())
    return found


def joined(parts: list[bytes], dtype: torch.dtype, shape: list[int]) -> Tensor:
    """What `planes` took apart."""
    columns = [np.frombuffer(zlib.decompress(part), np.uint8) for part in parts]
    return torch.from_numpy(np.stack(columns, 1).copy()).reshape(-1).view(dtype).reshape(shape)


def packed(run: Path, bits: Bits) -> bytes:
    """The run: a line of JSON that says what follows, then that."""
    folder = RunFolder(run)
    saved = coarse(checkpoint.of_step(folder.checkpoints, origin=folder.origin, timed=True), bits)
    files = [run / "config.json", run / "environment.json", *sorted((run / "tokenizer").iterdir())]
    contents = {str(path.relative_to(run)): zlib.compress(path.read_bytes()) for path in files}
    tensors = [
        (kind, name, tensor, planes(tensor))
        for kind, group in (("weights", saved.weights), ("optimizer", saved.optimizer))
        for name, tensor in group.items()
    ]
    head = {
        "step": saved.step,
        "state": saved.state,
        "files": [(name, len(content)) for name, content in contents.items()],
        "tensors": [
            (kind, name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), [len(part) for part in parts])
            for kind, name, tensor, parts in tensors
        ],
    }
    body = [*contents.values(), *(part for *_, parts in tensors for part in parts)]
    return json.dumps(head).encode() + b"\n" + b"".join(body)


def unpacked(content: bytes, run: Path) -> Path:
    """Make the run folder; returns it."""
    line, _, body = content.partition(b"\n")
    head, place = json.loads(line), 0

    def take(count: int) -> bytes:
        nonlocal place
        place += count
        return body[place - count : place]

    for name, size in head["files"]:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(zlib.decompress(take(size)))
    groups: dict[str, dict[str, Tensor]] = {"weights": {}, "optimizer": {}}
    for kind, name, dtype, shape, sizes in head["tensors"]:
        groups[kind][name] = joined([take(size) for size in sizes], getattr(torch, dtype), shape)
    folder = RunFolder(run)
    saved = Saved(step=head["step"], state=head["state"], **groups)
    checkpoint.save(folder.checkpoints, saved, origin=folder.origin, keep=1)
    return run


def main() -> None:
    """Pack or unpack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    given = parser.parse_args()
    if given.what == "pack":
        for bits in (CARRIED, *COARSER):
            content = packed(given.source, bits)
            if len(content) <= MOST:
                break
        else:
            raise SystemExit(f"{given.source}: {len(content):,} bytes, {MOST:,} can be carried.")
        for number, start in enumerate(range(0, len(content), PART)):
            (given.target / f"carried.{number:02}").write_bytes(content[start : start + PART])
        print(json.dumps({"bytes": len(content), "bits": bits}))
    else:
        parts = sorted(given.source.glob("carried.[0-9][0-9]"))
        unpacked(b"".join(part.read_bytes() for part in parts), given.target)


if __name__ == "__main__":
    main()
