"""`electra flops small`: operations of training and inference; `electra doctor`: this machine; `electra show
small`: a preset.
"""

import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import tyro

from electra_trainer.cli.shown import Shown
from electra_trainer.cost import flops, parameters
from electra_trainer.errors import install
from electra_trainer.files.wording import Table
from electra_trainer.presets import models
from electra_trainer.settings.records import flat, to_dict
from electra_trainer.settings.request import Request


@dataclass(frozen=True, kw_only=True)
class Show(Request):
    """Show a preset: its whole configuration, its parameters and its FLOPs.

    A file with what --json prints is read by --config.
    """

    name: tyro.conf.Positional[str]
    """demo, tiny, mini, small, small_plus_plus, base, large, bert_small, bert_base, bert_large; or `all`, which lists
    these and a preset for every other published row, one line each."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> Shown:
        """Facts of a preset."""
        if self.name == "all":
            return Shown(models.SUMMARIES, [f"{preset:<24} {what}" for preset, what in models.SUMMARIES.items()])
        config = models.preset(self.name)
        count, cost = parameters.parameters(config), flops.run_flops(config)
        paper = flops.infer_flops(config).paper
        facts: dict[str, Any] = {
            "config": to_dict(config),
            "parameters": {"joint": count.joint, "kept": count.kept, **asdict(count)},
            "flops": {"train_paper": cost.paper, "train_real": cost.real, "infer_paper": paper},
        }
        lines = []
        for title, table in facts.items():
            rows = {key: f"{value:,}" if type(value) is int else value for key, value in flat(table).items()}
            lines += [title, *(f"  {key:<38} {value}" for key, value in rows.items())]
        return Shown(facts, lines)


@dataclass(frozen=True, kw_only=True)
class Flops(Request):
    """Operations of training and inference (Appendix E): as the paper counts them, and the matrix products that are
    needed.

    The paper counts backward = forward, look-ups as products with one-hot vectors, and pointwise operations.
    """

    name: tyro.conf.Positional[str]
    """A preset, a row of the paper's script (elmo, xlnet, gpt, bert_small, bert_base, bert_large, electra_small,
    electra_base, electra_400k, electra_1.75M, roberta, albert, t5_11b), or `all` of both. `bert_large` is the original;
    the paper's own: bert_large_ours."""
    json: bool = False
    """Print one JSON object: name, then train_paper, train_real and infer_paper."""

    def run(self) -> Shown:
        """Costs, one line a name."""
        from electra_trainer.paper.published import PUBLISHED, cost_of

        names = list(dict.fromkeys([*PUBLISHED, *models.PRESETS])) if self.name == "all" else [self.name]
        costs = {name: cost_of(name) for name in names}
        kinds = ("train_paper", "train_real", "infer_paper")
        rows = [(name, *(f"{getattr(cost, kind):.4g}" for kind in kinds)) for name, cost in costs.items()]
        lines = [Table(head=("", *(kind.replace("_", ", ") for kind in kinds)), rows=rows).text()]
        return Shown({name: asdict(cost) for name, cost in costs.items()}, lines)


_NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "rich", "tyro", "matplotlib", "scikit-learn")
_PACKAGES = {**dict.fromkeys(_NEEDED, ""), "transformers": "hub", "datasets": "hub", "onnxruntime": "onnx"}
"""Packages with the extra that installs them."""


@dataclass(frozen=True, kw_only=True)
class Doctor(Request):
    """Show what this machine has: device, arithmetic, threads, disk, packages; and what is missing."""

    json: bool = False
    """Print one JSON object."""

    def run(self) -> Shown:
        """Findings, one line each."""
        findings = _findings()
        return Shown({"findings": findings}, [f"{label:<16} {value}" for label, value in findings.items()])


def _findings() -> dict[str, str]:
    import torch

    from electra_trainer.kernels.native import library as native
    from electra_trainer.train.device import choose_device, choose_precision, describe, use_threads
    from electra_trainer.version import __version__

    device = choose_device("auto")
    name = describe(device) or torch.backends.cpu.get_cpu_capability()
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    versions = {str(one.name).lower(): one.version for one in metadata.distributions()}
    lines = [
        ("electra-trainer", __version__),
        ("python", f"{sys.version.split()[0]} ({sys.executable})"),
        ("device", f"{device.type}: {name}"),
        ("precision", f"{choose_precision('auto', device)} (--precision auto)"),
        ("native kernels", native.status() if device.type == "cpu" else "for CPUs only"),
        ("threads", str(use_threads())),
        ("disk here", f"{free:.1f} GB free"),
        *((name, versions.get(name) or f"not installed: {install(extra)}") for name, extra in _PACKAGES.items()),
    ]
    return dict(lines)
