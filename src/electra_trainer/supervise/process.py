"""Environment variables that must be set before the process starts: 10 to 20 % of a training step on a CPU each.

Each step allocates and frees tensors of many megabytes. By default glibc returns their memory to the system each time and takes it
back page by page; these settings make it keep the memory and use huge pages. The variable is read once, at the start of a process,
so the command starts itself again with it, in the same process id. If you set GLIBC_TUNABLES, even to nothing, it is respected.

By default OpenMP's threads spin for long between two parallel regions, which makes a step up to ten times slower on a busy machine; if
they sleep at once they take long to wake, which costs a small model a fifth. Here they spin for some 20 microseconds.
"""

import os
import sys

from electra_trainer.runs.signals import signals_held

_KEEP = 1 << 34  # bytes: never by mmap, never trimmed
_TUNABLES = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        f"glibc.malloc.mmap_threshold={_KEEP}",
        f"glibc.malloc.trim_threshold={_KEEP}",
        f"glibc.malloc.top_pad={1 << 28}",
    )
)


THREADS = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
"""How OpenMP's threads wait; read when torch is loaded."""


def tuned() -> dict[str, str]:
    """The variables of a training process: how threads wait and, with glibc, its allocator."""
    settings = dict(THREADS)
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform.startswith("linux") else None
    except (OSError, ValueError):
        libc = None
    if (libc or "").startswith("glibc"):
        settings["GLIBC_TUNABLES"] = _TUNABLES
    return settings


def restart_tuned() -> None:
    """Replace this process by itself with the allocator tuned; return where that is done already or has no use."""
    settings = tuned()
    if "GLIBC_TUNABLES" in os.environ or "GLIBC_TUNABLES" not in settings or not sys.orig_argv:
        return
    with signals_held():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**settings, **os.environ})
