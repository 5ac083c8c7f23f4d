"""`electra flops small`: operations of training and inference; `electra doctor`: this machine, and a forecast of its
speed with each model; `electra show small`: a preset.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from electra_trainer.cli.shown import Shown
from electra_trainer.cost import flops, parameters
from electra_trainer.errors import ConfigError, install
from electra_trainer.presets import models
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import flat, to_dict, to_toml

if TYPE_CHECKING:
    from electra_trainer.train.timing import Forecast


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show a preset: its whole configuration, its parameters and its FLOPs.

    A file with what --toml or --json prints is read by --config.
    """

    name: tyro.conf.Positional[str]
    """demo, tiny, mini, small, small_plus_plus, base, large, bert_small, bert_base, bert_large; or `all`, which lists
    these and a preset for every other published row, one line each."""
    toml: bool = False
    """Print TOML, a preset without its parameters and FLOPs."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> Shown:
        """Facts of a preset."""
        if self.toml and self.json:
            raise ConfigError("--toml and --json: give one of them.")
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
        if self.toml:
            return Shown(None, [to_toml(facts["config"])])
        lines = []
        for title, table in facts.items():
            long = {key: f"{value:,}" for key, value in flat(table).items() if isinstance(value, int) and value > 9999}
            lines += [title, *(f"  {key:<38} {long.get(key, value)}" for key, value in flat(table).items())]
        return Shown(facts, lines)


@dataclass(frozen=True, kw_only=True)
class Flops:
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
        width = max(map(len, names))
        lines = [f"{'':<{width}}  {'train, paper':>12}  {'train, real':>11}  {'infer, paper':>12}"]
        for name, cost in costs.items():
            numbers = f"{cost.train_paper:>12.4g}  {cost.train_real:>11.4g}  {cost.infer_paper:>12.4g}"
            lines.append(f"{name:<{width}}  {numbers}")
        return Shown({name: asdict(cost) for name, cost in costs.items()}, lines)


_NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "rich", "tyro", "matplotlib", "scikit-learn")
_PACKAGES = {**dict.fromkeys(_NEEDED, ""), "transformers": "hub", "datasets": "hub", "onnxruntime": "onnx"}
"""Packages with the extra that installs them."""
_SECONDS = {"cpu": 80.0, "cuda": 480.0}
"""For all presets together; the one being timed is finished. A GPU compiles and records the step of each."""
_DERIVED = ("tokens_per_second", "run_seconds", "extrapolated", "limit")
_HOW = """\
arithmetic: the share of the step that its matrix products take at the matrix rate above.
memory: the share that the bytes it must move take at the rate of a copy, pointwise work fused, nothing in a cache.
limited by: the larger of both if it explains half of a step, else overhead (pointwise work, small products, launches).
Rows are made up, and full. paper's run: the preset's own steps and batch; `pretrain --budget 4h` trains for less."""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Show what this machine has: device, arithmetic, threads, disk, packages; and what is missing."""

    bench: bool = False
    """Also measure each model: speed, time of the paper's run, and what limits it. Under two minutes; on a GPU, which
    compiles the layers of each model first, under ten."""
    presets: tuple[str, ...] = ()
    """Presets to measure with --bench; by default the models that the paper compares, mini, tiny and demo."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Print one line a finding, and the table of --bench."""
        # a wrong name is an error before anything else
        configs = [models.preset(name) for name in self.presets or models.MODELS]
        show: Callable[[str], None] = (lambda line: None) if self.json else partial(print, flush=True)
        facts: dict[str, Any] = {"findings": _findings()}
        for label, value in facts["findings"].items():
            show(f"{label:<16} {value}")
        if self.bench:
            facts |= _bench(configs, show)
        if self.json:
            print(json.dumps(facts))


def _bench(configs: Sequence[Config], show: Callable[[str], None]) -> dict[str, Any]:
    """Rates of this machine, and for each model its speed and what limits it."""
    from electra_trainer.cost.flops import step_flops
    from electra_trainer.train import device, timing

    machine = timing.measure_machine(device.choose_device("auto"))
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in machine.matrix_flops.items())
    free = "" if machine.free_bytes is None else f", {machine.free_bytes / 1e9:.1f} GB free"
    show(f"{'matrix products':<16} {rates}")
    show(f"{'memory':<16} {machine.copy_bytes / 1e9:,.0f} GB/s read and written{free}")
    show(f"\n{'preset':<16}{'tokens/s':>12}{'paper run':>14}{'arithmetic':>12}{'memory':>8}  {'limited by':<12}timed")
    presets: dict[str, Any] = {}
    end = time.monotonic() + _SECONDS[machine.device.type]
    for done, config in enumerate(sorted(configs, key=lambda config: step_flops(config).real / config.batch.size)):
        limit = (end - time.monotonic()) / (len(configs) - done)
        found = timing.forecast(config, machine, limit=max(2.0, min(8.0, limit))) if limit > 0 else "no time was left"
        show(_forecast_line(config.preset, found))
        if isinstance(found, str):
            presets[config.preset] = {"skipped": found}
        else:
            presets[config.preset] = asdict(found) | {name: getattr(found, name) for name in _DERIVED}
    show(f"\n{_HOW}")
    return {
        "device": machine.device.type,
        "precision": machine.precision,
        "matrix_flops_per_second": machine.matrix_flops,
        "copy_bytes_per_second": machine.copy_bytes,
        "presets": presets,
    }


def _findings() -> dict[str, str]:
    import torch

    from electra_trainer.kernels.native import library as native
    from electra_trainer.train.device import choose_device, choose_precision, describe, use_threads
    from electra_trainer.version import __version__

    device = choose_device("auto")
    name = describe(device) or torch.backends.cpu.get_cpu_capability()
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    lines = [
        ("electra-trainer", __version__),
        ("python", f"{sys.version.split()[0]} ({sys.executable})"),
        ("device", f"{device.type}: {name}"),
        ("precision", f"{choose_precision('auto', device)} (--precision auto)"),
        ("native kernels", native.status() if device.type == "cpu" else "for CPUs only"),
        ("threads", str(use_threads())),
        ("disk here", f"{free:.1f} GB free"),
        *((name, _version(name) or f"not installed: {install(extra)}") for name, extra in _PACKAGES.items()),
    ]
    return dict(lines)


def _forecast_line(name: str, forecast: "Forecast | str") -> str:
    from electra_trainer.files.wording import duration

    if isinstance(forecast, str):
        return f"{name:<16}skipped: {forecast}"
    arithmetic, memory = (
        f"{seconds / forecast.seconds_per_step:.0%}"
        for seconds in (forecast.arithmetic_seconds, forecast.memory_seconds)
    )
    how = "whole steps"
    if forecast.extrapolated:
        how = f"{forecast.rows_timed} of {forecast.rows} rows: an upper bound of the time"
    speed, time_of_run = f"{forecast.tokens_per_second:,.0f}", duration(forecast.run_seconds)
    note = f"\n{'':<16}{forecast.step}" if forecast.step else ""
    return f"{name:<16}{speed:>12}{time_of_run:>14}{arithmetic:>12}{memory:>8}  {forecast.limit:<12}{how}{note}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
