"""`electra doctor`."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_EXTRAS = {"transformers": "hub", "datasets": "hub"}
_NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "rich", "tyro", "matplotlib", "scikit-learn")


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What this machine has: device, arithmetic, threads, disk, packages; and what is missing."""


def run(arguments: Arguments) -> None:
    """Print one line a finding."""
    import torch

    from electra_trainer import __version__
    from electra_trainer.gpu import trust
    from electra_trainer.train.device import choose_device, choose_precision, cpu_has_amx, use_threads

    device = choose_device("auto")
    name = torch.cuda.get_device_name() if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    amx = ", AMX" if cpu_has_amx() else ""
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    lines = [
        ("electra-trainer", __version__),
        ("python", f"{sys.version.split()[0]} ({sys.executable})"),
        ("device", f"{device.type}: {name}{amx if device.type == 'cpu' else ''}"),
        ("precision", f"{choose_precision('auto', device)} (--precision auto)"),
        ("threads", str(use_threads())),
        *(trust.report(device) if device.type == "cuda" else []),
        ("disk here", f"{free:.1f} GB free"),
        *((package, _version(package) or "MISSING: pip install electra-trainer") for package in _NEEDED),
        *(
            (package, _version(package) or f'not installed; optional: pip install "electra-trainer[{extra}]"')
            for package, extra in _EXTRAS.items()
        ),
    ]
    for label, value in lines:
        print(f"{label:<16} {value}")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
