"""Where a measurement was made: processor and versions, for its JSON."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("electra-trainer", "torch", "transformers", "numpy")


def versions() -> dict[str, str | None]:
    """Of Python and the packages that are timed; None where one is missing."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def hardware() -> dict[str, str | int | bool]:
    """The processor, as Linux names it, how many of it there are, and whether it multiplies bf16 by tiles (AMX)."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    return {
        "processor": fields.get("model name", platform.processor()),
        "cores": os.cpu_count() or 1,
        "avx512": "avx512f" in flags,
        "amx": "amx_bf16" in flags,
        "system": platform.platform(),
    }


def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
