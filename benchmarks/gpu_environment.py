"""Facts that a record needs to be believed: date, revision, machine, versions, and what the device can do.

`python -m benchmarks.gpu_environment --device cuda` prints one JSON object. REVISION says which
source this is where there is no .git.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess

import torch

from benchmarks.forecast import copy_rate, matrix_rate
from benchmarks.machine_facts import version
from electra_trainer.train.timing import DTYPES

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "tokenizers",
    "safetensors",
    "transformers",
    "scikit-learn",
    "matplotlib",
    "rich",
    "tyro",
)


def said_by(*command: str) -> str:
    """What a program prints; empty where it is not there."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    device = torch.device(parser.parse_args().device)
    found: dict[str, object] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": os.environ.get("REVISION") or said_by("git", "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "packages": {name: version(name) or "not installed" for name in PACKAGES},
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
