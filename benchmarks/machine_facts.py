"""Where a measurement was made: processor and versions, for its JSON.

`python -m benchmarks.machine_facts --device cuda` prints what a record needs to be believed: date, revision, machine, versions, and what
the device can do. REVISION says which source this is where there is no .git.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("electra-trainer", "torch", "triton", "transformers", "numpy", "tokenizers", "safetensors")


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


def said_by(*command: str) -> str:
    """What a program prints; empty where it is not there."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    import torch

    from benchmarks.forecast import copy_rate, matrix_rate
    from electra_trainer.train.timing import DTYPES

    device = torch.device(parser.parse_args().device)
    found: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": os.environ.get("REVISION") or said_by("git", "describe", "--always", "--dirty"),
        "hardware": hardware(),
        "versions": versions(),
        "device": str(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "driver": said_by(
                "nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"
            ),
        }
    found["matrix_flops_per_second"] = {name: matrix_rate(device, dtype) for name, dtype in DTYPES.items()}
    found["copy_bytes_per_second"] = copy_rate(device)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
