"""Compile the kernels once, load them, and share their work out to threads."""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from electra_trainer.errors import ConfigError, tell
from electra_trainer.files.durable import scratch

_HERE = Path(__file__).parent
_FLAGS = (
    "-std=c++17 -O3 -fPIC -shared -fno-math-errno -ffp-contract=fast -Wno-psabi -static-libstdc++ -static-libgcc"
).split()


Variant = dict[str, str]
"""The kernels for one kind of processor: their precision, what the CPU needs as Linux names it, the compiler's
flags.
"""
VARIANTS: dict[str, Variant] = tomllib.loads((_HERE / "variants.toml").read_text())
"""The best first: the first of a precision that the CPU can run is used."""
_KEPT = 30 * 86400.0
"""Seconds that libraries of other versions stay in the cache."""


class Unavailable(Exception):
    """Why the kernels cannot be used here, in a sentence."""


def kernels(precision: str) -> ctypes.CDLL | None:
    """The loaded library for `bf16` or `fp32`; None where there is none to use: `status` says why."""
    return load(precision)[0]


def cpu_precision() -> str:
    """Precision of a forward pass on a CPU now: `bf16` under autocast, else `fp32`; empty for another
    autocast.
    """
    if not torch.is_autocast_enabled("cpu"):
        return "fp32"
    return "bf16" if torch.get_autocast_dtype("cpu") == torch.bfloat16 else ""


def status() -> str:
    """For `electra doctor`: which are in use for each precision, or why none is."""
    return "; ".join(f"{precision}: {load(precision)[1]}" for precision in ("bf16", "fp32"))


@functools.cache
def load(precision: str) -> tuple[ctypes.CDLL | None, str]:
    """`kernels`, and the name of the variant or why there is none."""
    try:
        chosen = _chosen(precision)
        return opened(chosen, VARIANTS[chosen]), chosen
    except (Unavailable, OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home folder
        return None, f"not in use: {error}"


def opened(name: str, variant: Variant) -> ctypes.CDLL:
    """The library, compiled if need be. Raises: Unavailable."""
    library = ctypes.CDLL(str(_built(name, variant)))
    if not library.allowed():
        raise Unavailable("the system does not let this process use AMX")
    library.operand_bytes.restype = library.kept_bytes.restype = ctypes.c_int64
    return library


def _chosen(precision: str) -> str:
    forced = os.environ.get("ELECTRA_NATIVE", "").lower()
    if forced in ("off", "0", "no", "false"):
        raise Unavailable("ELECTRA_NATIVE=off")
    if forced and (forced not in VARIANTS or missing(VARIANTS[forced])):
        here = [name for name, variant in VARIANTS.items() if not missing(variant)]
        raise ConfigError(f"ELECTRA_NATIVE={forced}: expected off, or one that this CPU can run: {', '.join(here)}.")
    known = [n for n, v in VARIANTS.items() if v["precision"] == precision and (n == forced if forced else v["needs"])]
    if not known:
        raise Unavailable(f"ELECTRA_NATIVE={forced} computes in {VARIANTS[forced]['precision']}")
    able = [name for name in known if not missing(VARIANTS[name])]
    if not able:
        raise Unavailable(f"this CPU lacks {missing(VARIANTS[known[-1]])}")
    return able[0]


def missing(variant: Variant) -> str:
    """Instructions of a variant that this CPU lacks; empty if none."""
    return ", ".join(name for name in variant["needs"].split() if name not in cpu_instructions())


def cpu_instructions() -> list[str]:
    """The instructions that this CPU has; none where the system does not tell."""
    return cpu_field("flags").split()


@functools.cache
def cpu_field(name: str) -> str:
    """A field of /proc/cpuinfo, such as `flags`, of the first core; empty where the system does not tell."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _built(variant_name: str, variant: Variant) -> Path:
    """The compiled library, from the cache or made now; the name says what it was made of."""
    named = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
    if named is None:
        raise Unavailable("no C++ compiler; install g++ 12 or newer")
    compiler = shlex.split(named)
    # elsewhere a compiler's default has vectors, and a CPU another name
    left_out = () if platform.machine() == "x86_64" else ("-march=native",)
    flags = [flag for flag in [*_FLAGS, *variant["flags"].split()] if flag not in left_out]
    recipe = [*compiler, *flags, *cpu_instructions(), *(source.read_text() for source in sorted(_HERE.glob("*.?pp")))]
    name = f"kernels-{variant_name}-{hashlib.sha256(chr(10).join(recipe).encode()).hexdigest()[:16]}.so"
    cache = cache_folder()
    target = cache / name
    if not target.exists() or target.stat().st_size == 0:
        with scratch(cache) as folder:
            fresh = folder / "kernels.so"
            _compile([*compiler, *flags, str(_HERE / "kernels.cpp"), "-o", str(fresh)])
            fresh.replace(target)
        for other in cache.glob("kernels-*.so"):
            if other != target and time.time() - other.stat().st_mtime > _KEPT:
                other.unlink(missing_ok=True)
    return target


def cache_folder() -> Path:
    """The user's cache folder, which nobody else may write to."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "electra-trainer"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = cache.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise Unavailable(f"others may write to {cache}; type: chmod go-w {cache}")
    if not os.access(cache, os.W_OK):
        raise Unavailable(f"{cache} cannot be written; name another folder in XDG_CACHE_HOME")
    return cache


def _compile(command: list[str]) -> None:
    tell("compiling the native kernels, once on this machine")
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise Unavailable(f"{command[0]} could not compile the kernels (g++ 12 or newer is needed): {first}")


# ---------------------------------------------------------------------------------------------------- threads


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(os.cpu_count() or 1, 64), thread_name_prefix="electra-native")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _pool.cache_clear())  # its threads stay with the parent


def slices_of(count: int) -> int:
    """Into how many slices `count` rows are best cut: one for each of PyTorch's threads."""
    return max(1, min(torch.get_num_threads(), count))


def share_out(count: int, work: Callable[[int, int, int], object]) -> None:
    """Call work(slice, first, last) for `slices_of(count)` equal slices of range(count), all at once.

    ctypes lets go of the interpreter's lock, so that the slices run side by side.

    Raises:
        MemoryError: one of them returned something else than 0.
    """
    slices = slices_of(count)
    bounds = [count * i // slices for i in range(slices + 1)]
    others = [_pool().submit(work, i, bounds[i], bounds[i + 1]) for i in range(1, slices)]
    try:
        failed = work(0, bounds[0], bounds[1])
    finally:
        wait(others)  # they write through bare pointers
    failures = [failed, *(other.result() for other in others)]
    if any(failures):
        raise MemoryError("can't allocate memory for the native kernels")


def call(function: Callable[..., int], *arguments: object) -> int:
    """Call a kernel with its arguments as C takes them."""
    return function(*map(as_c, arguments))


def as_c(value: Any) -> object:
    """Numbers become int64, a tensor or a structure a pointer, a list of tensors an array of pointers."""
    if isinstance(value, int):
        return ctypes.c_int64(value)
    if isinstance(value, list):
        return (ctypes.c_void_p * len(value))(*(None if tensor is None else tensor.data_ptr() for tensor in value))
    return ctypes.c_void_p(value.data_ptr()) if isinstance(value, torch.Tensor) else ctypes.byref(value)
