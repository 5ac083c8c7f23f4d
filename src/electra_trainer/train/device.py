"""Choose the device, and the precision in which it computes fastest."""

import os
from contextlib import AbstractContextManager

import torch

from electra_trainer.errors import ConfigError
from electra_trainer.files.processes import cores
from electra_trainer.kernels.native import library


def choose_device(name: str) -> torch.device:
    """The device called `auto` (CUDA's GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`; a GPU that has a number
    becomes the current one.

    `mps`, the GPU of a Mac, has not been tried, so only asking for it by name gives it.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"--device {name!r}: expected auto, cpu, cuda, cuda:N or mps.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: PyTorch {torch.__version__} finds no GPU here. Use --device cpu.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"--device {name}: PyTorch {torch.__version__} finds no GPU of a Mac here. Use --device cpu.")
    if device.type == "cuda" and device.index is not None:
        count = torch.cuda.device_count()
        if device.index >= count:
            raise ConfigError(f"--device {name}: GPUs are counted from 0, and PyTorch finds {count} here.")
        torch.cuda.set_device(device)  # libraries, and calls without a device, take the current one
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """`fp32` or `bf16`; `auto` takes bf16 where the hardware multiplies it faster than fp32."""
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if device.type == "mps":
        return "fp32"
    if library.kernels("bf16") is None and library.kernels("fp32") is not None:
        return "fp32"
    probes = (getattr(torch.cpu, f"_is_{name}_supported", lambda: False) for name in ("amx_tile", "avx512_bf16"))
    return "bf16" if any(probe() for probe in probes) else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Arithmetic of the forward pass; weights stay fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def arithmetic(precision: str, device: torch.device) -> str:
    """The arithmetic, in words: `fp32`, `bf16`, `bf16 with native kernels (amx)`."""
    library_of, name = library.load(precision) if device.type == "cpu" else (None, "")
    return precision if library_of is None else f"{precision} with native kernels ({name})"


def use_threads() -> int:
    """Use the cores that this process may run on; OMP_NUM_THREADS decides if it is set."""
    if "OMP_NUM_THREADS" not in os.environ and hasattr(os, "sched_getaffinity"):
        torch.set_num_threads(cores())
    return torch.get_num_threads()


def set_threads(count: int) -> None:
    """Compute with `count` threads from now on; another number sums in another order."""
    torch.set_num_threads(count)
