"""Compile the kernels once, load them, and share their work out to threads."""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import torch

_SOURCES = ("tiles.hpp", "layers.hpp", "softmax.hpp", "kernels.cpp")
_NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "avx512vbmi", "amx_tile", "amx_bf16", "vaes")
"""What the CPU must have, as Linux names it."""
_FLAGS = (
    *"-std=c++17 -O3 -fPIC -shared -fno-math-errno -mtune=sapphirerapids -static-libstdc++ -static-libgcc".split(),
    *"-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16 -maes -mvaes -mfma".split(),
)
_KEPT = 30 * 86400.0
"""Seconds that libraries of other versions stay in the cache."""


class Unavailable(Exception):
    """Why the kernels cannot be used here, in a sentence."""


def kernels() -> ctypes.CDLL | None:
    """The loaded library; None where it cannot be used: `status` says why."""
    return _load()[0]


def status() -> str:
    """For `electra doctor`: in use, or why not."""
    return _load()[1]


@functools.cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    try:
        _require_cpu()
        library = ctypes.CDLL(str(_built()))
        if not library.allow_tiles():
            raise Unavailable("the system does not let this process use AMX")
    except (Unavailable, OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home folder
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
    named = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if named is None:
        raise Unavailable("no C++ compiler; install g++ 11 or newer")
    compiler, here = shlex.split(named), Path(__file__).parent
    recipe = [*compiler, *_FLAGS, *((here / name).read_text() for name in _SOURCES)]
    name = f"kernels-{hashlib.sha256(chr(10).join(recipe).encode()).hexdigest()[:16]}.so"
    try:
        cache = _cache()
    except (OSError, RuntimeError):  # no home, or none that can be written: for this process only
        cache = Path(tempfile.mkdtemp(prefix="electra-trainer-"))
        atexit.register(shutil.rmtree, cache, ignore_errors=True)
    target = cache / name
    if not target.exists() or target.stat().st_size == 0:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            fresh = Path(folder) / "kernels.so"
            _compile([*compiler, *_FLAGS, str(here / "kernels.cpp"), "-o", str(fresh)])
            fresh.replace(target)
        for other in cache.glob("kernels-*.so"):
            if other != target and time.time() - other.stat().st_mtime > _KEPT:
                other.unlink(missing_ok=True)
    return target


def _cache() -> Path:
    """The user's cache folder, which nobody else may write to."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electra-trainer"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = cache.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise Unavailable(f"others may write to {cache}; type: chmod go-w {cache}")
    if not os.access(cache, os.W_OK):
        raise PermissionError(f"{cache} cannot be written")
    return cache


def _compile(command: list[str]) -> None:
    print("electra: compiling the native kernels, once on this machine", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise Unavailable(f"{command[0]} could not compile the kernels (g++ 11 or newer is needed): {first}")


# ---------------------------------------------------------------------------------------------------- threads


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(os.cpu_count() or 1, 64), thread_name_prefix="electra-native")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _pool.cache_clear())  # its threads stay with the parent


def slices_of(count: int) -> int:
    """Into how many slices `count` rows are best cut: one for each of PyTorch's threads."""
    return max(1, min(torch.get_num_threads(), count))


def share_out(count: int, slices: int, work: Callable[[int, int, int], object]) -> None:
    """Call work(slice, first, last) for so many equal slices of range(count), all at once.

    ctypes lets go of the interpreter's lock, so that the slices run side by side.

    Raises:
        MemoryError: one of them returned something else than 0.
    """
    bounds = [count * i // slices for i in range(slices + 1)]
    others = [_pool().submit(work, i, bounds[i], bounds[i + 1]) for i in range(1, slices)]
    try:
        failed = work(0, bounds[0], bounds[1])
    finally:
        wait(others)  # they write through bare pointers
    failures = [failed, *(other.result() for other in others)]
    if any(failures):
        raise MemoryError("can't allocate memory for the native kernels")


def address(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Where a contiguous tensor's memory begins."""
    assert tensor.is_contiguous()
    return ctypes.c_void_p(tensor.data_ptr())


def addresses(tensors: list[torch.Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """A C array of `address`."""
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))
