"""Checkpoints of a few kilobytes that can be told apart bit for bit, and the naive ways of writing one."""

from __future__ import annotations

import io
import os
from pathlib import Path

import safetensors.torch
import torch

from electra_trainer.runs.checkpoint import save
from electra_trainer.runs.verified import Origin, Saved

RUN = Origin(run_id="run", config_sha256="1" * 64, data_sha256="2" * 64)
PIECES = 4
"""Writes that a naive file is made of, as torch.save's archive is."""


def made(step: int, *, numbers: int = 64) -> Saved:
    """Tensors saved at a step; other steps have other numbers."""
    random = torch.Generator().manual_seed(step)
    weight = torch.randn(numbers, 4, generator=random)
    return Saved(
        step=step,
        weights={"a.weight": weight, "b.bias": torch.tensor([float(step)])},
        optimizer={"a.weight/exp_avg": weight / 3, "a.weight/step": torch.tensor(float(step))},
        state={"seconds": step + 0.25},
    )


def write(folder: Path, step: int, *, keep: int = 1, numbers: int = 64) -> None:
    """As a run does it."""
    save(folder, made(step, numbers=numbers), origin=RUN, keep=keep)


def same(found: Saved | None, expected: Saved) -> bool:
    """Whether it is that checkpoint, to the bit."""
    return (
        found is not None
        and (found.step, found.state) == (expected.step, expected.state)
        and same_tensors(found.weights, expected.weights)
        and same_tensors(found.optimizer, expected.optimizer)
    )


def same_tensors(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


def naive(step: int, *, numbers: int = 64) -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint in one table."""
    saved = made(step, numbers=numbers)
    return {**saved.weights, **saved.optimizer}


def pickled(step: int) -> bytes:
    """Bytes that torch.save writes."""
    buffer = io.BytesIO()
    torch.save(naive(step), buffer)
    return buffer.getvalue()


def write_in_place(path: Path, step: int) -> None:
    """Control: torch.save over the file of the step before."""
    _write(path, pickled(step))


def write_and_rename(path: Path, step: int) -> None:
    """Control: a temporary file that is renamed, and nothing that waits for the disk."""
    temporary = path.with_suffix(".tmp")
    _write(temporary, safetensors.torch.save(naive(step)))
    temporary.replace(path)


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    size = -(-len(content) // PIECES)
    for first in range(0, len(content), size):
        os.write(descriptor, content[first : first + size])
    os.close(descriptor)


def naive_step(path: Path, steps: range) -> int | None:
    """Step whose tensors a naive file holds, to the bit; None: it does not load, or holds something else."""
    try:
        content = path.read_bytes()
        if content.startswith(b"PK"):
            found = torch.load(io.BytesIO(content), weights_only=True)
        else:
            found = safetensors.torch.load(content)
        return next((step for step in steps if same_tensors(found, naive(step))), None)
    except Exception:
        return None
