"""A fast path is used on a device only after it agreed with its plain twin there.

The first use on a device runs a check on small random inputs. Where it raises, or differs by more than its tolerance, the plain path
is taken for the rest of the process and one line says why. `ELECTRA_GPU_KERNELS=off` takes the plain paths from the start,
`ELECTRA_GPU_KERNELS=vocabulary,attention` all but those whose names have one of these words.
"""

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

SWITCH = "ELECTRA_GPU_KERNELS"
Check = Callable[[torch.device], None]
"""Compares a fast path with its plain twin on a device; raises where they differ."""

_checks: dict[str, Check] = {}
_found: dict[tuple[str, str], str] = {}


class Mismatch(Exception):
    """A fast path and its plain twin differ by more than the tolerance."""


def register(name: str, check: Check) -> None:
    """Say how the fast path `name` is checked."""
    _checks[name] = check


@cache
def has_triton() -> bool:
    """True where Triton can be imported; it comes with PyTorch's builds for GPUs."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """True where Triton runs its kernels on the CPU, one program after the other: how the tests run them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def kernels() -> Any:
    """The module of our Triton kernels; importing it needs Triton."""
    from electra_trainer.kernels.gpu import triton_kernels

    return triton_kernels


def on(device: torch.device) -> AbstractContextManager[object]:
    """Makes `device` the current one: Triton launches its kernels there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def wanted(name: str) -> bool:
    """False where the switch leaves `name` out: it is `off`, or lists words none of which is in the name."""
    value = os.environ.get(SWITCH, "").lower()
    return value in ("", "on") or (value != "off" and any(word.strip() in name for word in value.split(",")))


def trusted(name: str, device: torch.device) -> bool:
    """True where the fast path `name` may be used on `device`; the first call there checks it."""
    if device.type != "cuda" or not has_triton() or not wanted(name):
        return False
    place = (name, str(device))
    if place not in _found:
        if torch.cuda.is_current_stream_capturing():  # a check synchronizes; the warm-up before a capture makes it
            return False
        _found[place] = _check(name, device)
        if _found[place]:
            warnings.warn(f"{name}: the plain path is used on {device}, because {_found[place]}", stacklevel=2)
    return not _found[place]


def _check(name: str, device: torch.device) -> str:
    """Why the fast path cannot be used; empty where it can."""
    state = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        with torch.autocast(device.type, enabled=False), torch.enable_grad():
            _checks[name](device)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return f"{type(error).__name__}: {first}"
    finally:
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1], device)
    return ""


def close(what: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Raise Mismatch unless |found - expected| <= tolerance * |expected|, as norms over the whole tensor."""
    found, expected = found.detach().float(), expected.detach().float()
    distance, size = float((found - expected).norm()), float(expected.norm())
    if not distance <= tolerance * size + 1e-30:
        raise Mismatch(f"{what} differs by {distance / max(size, 1e-30):.2g} (relative), more than {tolerance:g}")


def report(device: torch.device) -> list[tuple[str, str]]:
    """Each registered fast path and whether it is used on `device`. Importing the module of a fast path registers it."""
    lines = []
    for name in _checks:
        said = "in use, checked against the plain path"
        if not trusted(name, device):
            switch = f"{SWITCH}={os.environ.get(SWITCH)}" if has_triton() else "no Triton here"
            said = f"plain path: {_found.get((name, str(device))) or switch}"
        lines.append((name, said))
    return lines
