"""Choose the device, and the precision in which it computes fastest."""

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
from torch import nn

from electra_trainer.errors import ConfigError
from electra_trainer.files.processes import cores
from electra_trainer.kernels.native import library


def choose_device(name: str) -> torch.device:
    """The device called `auto` (CUDA's GPU if there is one), `cpu`, `cuda`, `cuda:1` or `mps`; a GPU that has a number
    becomes the current one. The GPU of a Mac, `mps`, has not been tried, so `auto` does not take it.

    Raises:
        ConfigError: PyTorch cannot use the device, or finds none where there is one.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?|mps", name):
        raise ConfigError(f"--device {name!r}: expected auto, cpu, cuda, cuda:N or mps.")
    device = torch.device("cuda" if name == "auto" else name)
    found = torch.cuda.is_available()
    if name == "auto" and not found and not _unused_driver():
        return torch.device("cpu")
    if reason := _unusable(device, found=found):
        raise ConfigError(f"--device {name}: {reason}")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # libraries, and calls without a device, take the current one
    return device


def _unusable(device: torch.device, *, found: bool) -> str:
    """Why PyTorch cannot compute on the device, and what to do; empty if it can. `found`: it finds a GPU of CUDA's."""
    this = f"PyTorch {torch.__version__}"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return f"{this} finds no GPU of a Mac here. Use --device cpu."
    if device.type != "cuda":
        return ""
    if not found and (old := _unused_driver()):
        return (
            f"{this} (CUDA {torch.version.cuda}) cannot use the NVIDIA driver {old} of this machine. Update the driver "
            "(CUDA 13 needs 580 or newer), or install a PyTorch for an older CUDA from pytorch.org; --device cpu does "
            "without the GPU."
        )
    if not found:
        return f"{this} finds no GPU here. Use --device cpu."
    count = torch.cuda.device_count()
    if str(device) != "cuda" and device.index >= count:
        return f"GPUs are counted from 0, and PyTorch finds {count} here."
    (major, minor), known = torch.cuda.get_device_capability(device), torch.cuda.get_arch_list()
    if not _covered(10 * major + minor, known):
        return (
            f"{this} has no code for {torch.cuda.get_device_name(device)} (sm_{major}{minor}); it was built for "
            f"{', '.join(known)}. Install a PyTorch that has (pytorch.org lists them by CUDA; builds for CUDA 12.6 "
            "have code for older GPUs), or use --device cpu."
        )
    return ""


def _unused_driver() -> str:
    """Version of an NVIDIA driver where a PyTorch that was built for it finds no GPU; empty where all is as it should
    be.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return "" if hidden or torch.version.cuda is None or not any(path.exists() for path in _CONTROL) else driver()


_CONTROL = (Path("/dev/nvidiactl"), Path("/usr/lib/wsl/lib/libcuda.so.1"))
"""Files of NVIDIA's driver, under Linux and under WSL 2; in a container only where it was given a GPU."""


def driver() -> str:
    """Version of the NVIDIA driver; "unknown" where the system does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    return next((word for word in text.split() if re.fullmatch(r"\d+\.\d+(\.\d+)?", word)), "unknown")


def _covered(wanted: int, known: list[str]) -> bool:
    """Whether a build with code for `known` runs on a GPU: code of the same major version, or any older `compute_`."""
    built = [(kind, int(number)) for kind, number in re.findall(r"(sm|compute)_(\d+)", " ".join(known))]
    return not built or any(n <= wanted and (kind == "compute" or n // 10 == wanted // 10) for kind, n in built)


def describe(device: torch.device) -> str:
    """Name, memory and driver of a GPU, and the number of others that this run leaves unused; empty for a CPU."""
    if device.type != "cuda":
        return ""
    properties = torch.cuda.get_device_properties(device)
    others = torch.cuda.device_count() - int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    unused = f"; {others} more GPU{'s' * (others > 1)} unused: --processes {others + 1} takes all" if others > 0 else ""
    return f"{properties.name} ({properties.total_memory / 1e9:.0f} GB, driver {driver()}{unused})"


def need_memory(error: Exception, device: torch.device, lanes: int) -> ConfigError:
    """The error for a GPU that has run out of memory: how much is missing, and what to set."""
    asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
    free, total = torch.cuda.mem_get_info(device) if device.type == "cuda" else (0, 0)
    size = f"{asked[1]} more are needed" if asked else "more is needed"
    return ConfigError(
        f"{device} has not enough memory for a step: {size}, {free / 2**30:.2f} GiB of {total / 2**30:.2f} GiB are "
        f"free. Set --batch.lanes {2 * lanes}, or more: the same step in smaller parts."
    )


@contextmanager
def placed(network: nn.Module, name: str | None) -> Iterator[torch.device]:
    """A network on the device of that name, and back where it was afterwards; None leaves it where it is."""
    before = next(network.parameters()).device
    where = before if name is None else choose_device(name)
    network.to(where)
    try:
        yield where
    finally:
        network.to(before)


def choose_precision(name: str, device: torch.device) -> str:
    """`fp32` or `bf16`; `auto` takes bf16 where the hardware multiplies it faster than fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise ConfigError(f"precision {name!r}: expected auto, fp32 or bf16.")
    if name != "auto":
        return name
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if device.type == "mps":
        return "fp32"
    probes = (getattr(torch.cpu, f"_is_{name}_supported", lambda: False) for name in ("amx_tile", "avx512_bf16"))
    tiles, vectors = (probe() for probe in probes)
    halved = library.cpu_field("vendor_id") == "GenuineIntel"  # vdpbf16ps has half of fp32's rate; AMD's is quick
    quick, other = ("bf16", "fp32") if tiles or (vectors and not halved) else ("fp32", "bf16")
    return other if library.kernels(quick) is None and library.kernels(other) is not None else quick


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Arithmetic of the forward pass; weights stay fp32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def arithmetic(precision: str, device: torch.device) -> str:
    """The arithmetic in words: `fp32`, `bf16`, `bf16 with native kernels (amx)`."""
    if device.type == "cuda" and precision == "fp32" and choose_precision("auto", device) == "fp32":
        return "fp32, since this GPU is slow in bf16"
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
