"""Compile the kernels once, load them, and share their work out to threads."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch

_SOURCES = ("tiles.hpp", "layers.hpp", "softmax.hpp", "kernels.cpp")
_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512vbmi", "amx_tile", "amx_bf16", "vaes")
"""What the CPU must have, as Linux names it."""
_FLAGS = (
    *"-std=c++17 -O3 -fPIC -shared -fno-math-errno -mtune=sapphirerapids".split(),
    *"-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16 -maes -mvaes -mfma".split(),
)
_switched_off = False


class Unavailable(Exception):
    """Why the kernels cannot be used here, in a sentence."""


def kernels() -> ctypes.CDLL | None:
    """The loaded library; None where it cannot be used (`status` says why) or is switched off."""
    return None if _switched_off else _load()[0]


def status() -> str:
    """For `electra doctor`: in use, or why not."""
    return _load()[1]


@contextmanager
def switched_off() -> Iterator[None]:
    """Do without the kernels inside the block: for comparisons."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    try:
        _require_cpu()
        library = ctypes.CDLL(str(_built()))
        if not library.allow_tiles():
            raise Unavailable("the system does not let this process use AMX")
    except (Unavailable, OSError) as error:
        return None, f"not in use: {error}"
    library.operand_elements.restype = library.kept_bytes.restype = ctypes.c_int64
    return library, "in use (AMX, AVX-512)"


def _require_cpu() -> None:
    if os.environ.get("ELECTRA_NATIVE", "").lower() in ("off", "0", "no", "false"):
        raise Unavailable("ELECTRA_NATIVE=off")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise Unavailable("made for Linux on x86-64")
    flags = next((x.split() for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("flags")), [])
    missing = [name for name in _NEEDED if name not in flags]
    if missing:
        raise Unavailable(f"this CPU lacks {', '.join(missing)}")


def _built() -> Path:
    """The compiled library, from the cache or made now; the name says what it was made of."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if compiler is None:
        raise Unavailable("no C++ compiler; install g++ 11 or newer")
    here = Path(__file__).parent
    recipe = [compiler, *_FLAGS, *((here / name).read_text() for name in _SOURCES)]
    name = hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electra-trainer"
    target = cache / f"kernels-{name}.so"
    if not target.exists():
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fresh = Path(folder) / "kernels.so"
            _compile([compiler, *_FLAGS, str(here / "kernels.cpp"), "-o", str(fresh)])
            fresh.replace(target)
    if target.stat().st_uid != os.getuid():
        raise Unavailable(f"{target} belongs to another user")
    return target


def _compile(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise Unavailable(f"{command[0]} could not compile the kernels (g++ 11 or newer is needed): {first}")


# ---------------------------------------------------------------------------------------------------- threads


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="electra-native")


def share_out(count: int, work: Callable[[int, int, int], None]) -> None:
    """Call work(slice, first, last) for as many equal slices of range(count) as PyTorch has threads, all at once.

    ctypes lets go of the interpreter's lock, so that the slices run side by side.
    """
    slices = max(1, min(torch.get_num_threads(), count))
    bounds = [count * i // slices for i in range(slices + 1)]
    others = [_pool().submit(work, i, bounds[i], bounds[i + 1]) for i in range(1, slices)]
    work(0, bounds[0], bounds[1])
    for other in others:
        other.result()


def slices_of(count: int) -> int:
    """How many slices `share_out` makes of `count`."""
    return max(1, min(torch.get_num_threads(), count))


def address(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor's memory begins."""
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def addresses(tensors: list[torch.Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """A C array of `address`."""
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
