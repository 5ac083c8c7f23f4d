"""Settings of the process that must stand before it starts: 10 to 20 % of a training step on a CPU.

Tensors of many megabytes come and go in every step. By default glibc gives their memory back to the system each time and takes it
again page by page; told to keep it, and to use huge pages, it does neither. The variable is read once, at the start of a process,
so the command starts itself again with it, in the same process id. A GLIBC_TUNABLES of your own, even an empty one, is respected.
"""

from __future__ import annotations

import os
import sys

_KEEP = 1 << 34  # bytes: never by mmap, never trimmed
_TUNABLES = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        f"glibc.malloc.mmap_threshold={_KEEP}",
        f"glibc.malloc.trim_threshold={_KEEP}",
        f"glibc.malloc.top_pad={1 << 28}",
    )
)


def restart_tuned() -> None:
    """Start this command again with the allocator tuned; returns where that is done already or is of no use."""
    if "GLIBC_TUNABLES" in os.environ or not sys.platform.startswith("linux"):
        return
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return
    if libc.startswith("glibc") and sys.orig_argv:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "GLIBC_TUNABLES": _TUNABLES})
