"""A fast path is used on a device, for a shape, only after it agreed with its plain twin there.

The first use of a shape runs a check on small random inputs of that shape: the very kernels that the run will launch.
Where it raises (a
kernel that asks for more than this card has, say), or differs by more than its tolerance, the plain path is taken for
that shape for the rest of the process, and one line says why. `ELECTRA_GPU_KERNELS=off` takes the plain paths from the
start, `ELECTRA_GPU_KERNELS=vocabulary,attention` all but those whose names have one of these words.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from electra_trainer.errors import ElectraError, Interrupted

SWITCH = "ELECTRA_GPU_KERNELS"
Check = Callable[[torch.device, Any], None]
"""Compares a fast path with its plain twin on a device, for a shape; raises where they differ."""

_checks: dict[str, tuple[Check, Any]] = {}
_found: dict[tuple[str, str, Any], str] = {}
"""Why a fast path cannot be used, by name, device and shape; empty where it can."""


class Mismatch(Exception):
    """A fast path and its plain twin differ by more than the tolerance."""


def register(name: str, check: Check, *, usual: Any) -> None:
    """Say how the fast path `name` is checked, and a shape that is checked where none is asked for: ELECTRA-Small's."""
    _checks[name] = check, usual


@cache
def has_triton() -> bool:
    """True where Triton can be imported; it comes with PyTorch's builds for GPUs."""
    return find_spec("triton") is not None


def interpreted() -> bool:
    """True where Triton runs its kernels on the CPU, one program after the other: how the tests run them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def kernels() -> Any:
    """The module of our Triton kernels for layers; importing it needs Triton."""
    from electra_trainer.kernels.gpu import layer_kernels

    return layer_kernels


def softmax_kernels() -> Any:
    """Those for the softmax over the vocabulary."""
    from electra_trainer.kernels.gpu import softmax_kernels

    return softmax_kernels


def on(device: torch.device) -> AbstractContextManager[object]:
    """Makes `device` the current one: Triton launches its kernels there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def wanted(name: str) -> bool:
    """False where the switch leaves `name` out: it is `off`, or lists words none of which is in the name."""
    value = os.environ.get(SWITCH, "").lower()
    return value in ("", "on") or (value != "off" and any(word.strip() in name for word in value.split(",")))


def trusted(name: str, device: torch.device, shape: Any) -> bool:
    """True where the fast path `name` may be used on `device` for `shape`, which is hashable; the first call checks it.

    Raises:
        ElectraError: the check left the device unusable, as an access to memory that is not there does.
    """
    if device.type != "cuda" or not has_triton() or not wanted(name):
        return False
    place = (name, str(device), shape)
    if place not in _found:
        if torch.cuda.is_current_stream_capturing():  # a check synchronizes; the warm-up before a capture makes it
            return False
        _found[place] = _check(name, device, shape)
        if _found[place]:
            warnings.warn(
                f"{name}: the plain path is used on {device} for {shape}, because {_found[place]}", stacklevel=2
            )
    return not _found[place]


def _check(name: str, device: torch.device, shape: Any) -> str:
    """Why the fast path cannot be used; empty where it can."""
    found = ""
    try:
        with undisturbed(device):
            try:
                _checks[name][0](device, shape)
            except Interrupted:
                raise
            except Exception as error:
                found = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    except RuntimeError as error:  # of the generator's state, which is put back on the device
        raise ElectraError(
            f"The check of the kernel '{name}' for {shape} left {device} unusable ({found or error}). "
            f"Start again without it: {SWITCH}=off"
        ) from error
    return found


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Work on the side: with gradients, without autocast and TF32, and the generators are afterwards as they were."""
    state = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    products = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 differs from fp32 by more than its tolerance
    try:
        with torch.autocast(device.type, enabled=False), torch.enable_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1], device)


def close(what: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Raise Mismatch unless |found - expected| <= tolerance * |expected|, as norms over the whole tensor."""
    found, expected = found.detach().float(), expected.detach().float()
    distance, size = float((found - expected).norm()), float(expected.norm())
    if not distance <= tolerance * size + 1e-30:
        raise Mismatch(f"{what} differs by {distance / max(size, 1e-30):.2g} (relative), more than {tolerance:g}")


def report(device: torch.device) -> list[tuple[str, str]]:
    """Each registered fast path and whether it is used on `device`, for the shapes met so far, or a usual one.

    Importing the module of a fast path registers it.
    """
    lines = []
    for name, (_, usual) in _checks.items():
        met = [shape for other, where, shape in _found if (other, where) == (name, str(device))]
        used = [trusted(name, device, shape) for shape in met or [usual]]
        refused = [
            reason for (other, where, _), reason in _found.items() if (other, where) == (name, str(device)) and reason
        ]
        if all(used):
            said = "in use, checked against the plain path"
        elif refused:
            said = f"plain path{' for some shapes' if any(used) else ''}: {refused[0]}"
        else:
            said = f"plain path: {f'{SWITCH}={os.environ.get(SWITCH)}' if has_triton() else 'no Triton here'}"
        lines.append((name, said))
    return lines
