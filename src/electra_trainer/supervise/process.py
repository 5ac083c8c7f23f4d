"""Settings of the process that must stand before it starts: 10 to 20 % of a training step on a CPU each.

Tensors of many megabytes come and go in every step. By default glibc gives their memory back to the system each time and takes it
again page by page; told to keep it, and to use huge pages, it does neither. The variable is read once, at the start of a process,
so the command starts itself again with it, in the same process id. A GLIBC_TUNABLES of your own, even an empty one, is respected.

Between two parallel pieces of work OpenMP's threads by default spin for long, which costs a machine that does anything else up to
ten times the step; asleep at once, they take long to wake, which costs a small model a fifth. They spin for some 20 microseconds.
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
"""How OpenMP's threads wait; they are read when torch is loaded."""


def tuned() -> dict[str, str]:
    """The variables that a process which trains begins with: how threads wait and, where glibc is, its allocator."""
    settings = dict(THREADS)
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") if sys.platform.startswith("linux") else None
    except (OSError, ValueError):
        libc = None
    if (libc or "").startswith("glibc"):
        settings["GLIBC_TUNABLES"] = _TUNABLES
    return settings


def restart_tuned() -> None:
    """Start this command again with the allocator tuned; returns where that is done already or is of no use."""
    settings = tuned()
    if "GLIBC_TUNABLES" in os.environ or "GLIBC_TUNABLES" not in settings or not sys.orig_argv:
        return
    with signals_held():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**settings, **os.environ})
