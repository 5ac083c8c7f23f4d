"""`electra flops small`: operations of training and inference; `electra doctor`: this machine, and a forecast of its
speed with each model; and what `electra show` shows.
"""

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from electra_trainer.cli.flags import settings_of
from electra_trainer.cli.shown import Shown
from electra_trainer.cost import flops, parameters
from electra_trainer.errors import install
from electra_trainer.presets import models
from electra_trainer.settings.records import flat, to_dict, to_toml

if TYPE_CHECKING:
    from electra_trainer.train.timing import Forecast, Machine


def shown_preset(name: str) -> Shown:
    """The whole configuration of a preset, its parameters and its FLOPs; `all`: one line for each preset."""
    if name == "all":
        return Shown(models.SUMMARIES, [f"{preset:<24} {what}" for preset, what in models.SUMMARIES.items()])
    config = models.preset(name)
    count, cost = parameters.parameters(config), flops.run_flops(config)
    paper = flops.infer_flops(config).paper
    facts: dict[str, Any] = {
        "config": to_dict(config),
        "parameters": {"joint": count.joint, "kept": count.kept, **asdict(count)},
        "flops": {"train_paper": cost.paper, "train_real": cost.real, "infer_paper": paper},
    }
    lines = []
    for title, table in facts.items():
        long = {key: f"{value:,}" for key, value in flat(table).items() if isinstance(value, int) and value > 9999}
        lines += [title, *(f"  {key:<38} {long.get(key, value)}" for key, value in flat(table).items())]
    return Shown(facts, lines)


def shown_flags(request: Any, verb: str) -> Shown:
    """Flags as `electra VERB --config` reads them: those with defaults as TOML, and as comments those without."""
    chosen, open_ = settings_of(request)
    lines = [f"# electra {verb} --config FILE; flags override the file", to_toml(chosen)]
    if open_:
        lines += ["", "# these have no value unless you give one, or follow from the model and the data:"]
    return Shown(chosen, [*lines, *(f"# {name} = " for name in open_)])


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
    mend_norm: bool = False
    """Count the LayerNorm after attention at every channel; the paper's script counts it once a token (up to 0.05 %
    less).
    """

    def run(self) -> Shown:
        """Costs, one line a name."""
        from electra_trainer.paper.published import PUBLISHED, cost_of

        names = list(dict.fromkeys([*PUBLISHED, *models.PRESETS])) if self.name == "all" else [self.name]
        costs = {name: cost_of(name, norm_slip=not self.mend_norm) for name in names}
        width = max(map(len, names))
        lines = [f"{'':<{width}}  {'train, paper':>12}  {'train, real':>11}  {'infer, paper':>12}"]
        for name, cost in costs.items():
            numbers = f"{cost.train_paper:>12.4g}  {cost.train_real:>11.4g}  {cost.infer_paper:>12.4g}"
            lines.append(f"{name:<{width}}  {numbers}")
        if "bert_large" in names and not self.json:
            lines.append("bert_large: the original, 1M steps of 256 rows. The preset of that name: bert_large_ours.")
        return Shown({name: asdict(cost) for name, cost in costs.items()}, lines)


_EXTRAS = {"transformers": "hub", "datasets": "hub", "onnxruntime": "onnx"}
_NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "rich", "tyro", "matplotlib", "scikit-learn")
_SECONDS = {"cpu": 80.0, "cuda": 480.0}
"""For all presets together; the one being timed is finished. A GPU compiles and records the step of each."""
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
    """Presets to measure with --bench; by default the models that the paper compares, mini and tiny."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        """Print one line a finding, and the table of --bench."""
        # a wrong name is an error before anything else
        configs = [models.preset(name) for name in self.presets or models.MODELS]
        findings = _findings()
        if not self.json:
            for label, value in findings.items():
                print(f"{label:<16} {value}", flush=True)
        if not self.bench:
            if self.json:
                print(json.dumps({"findings": findings}))
            return

        from electra_trainer.cost.flops import step_flops
        from electra_trainer.train import device, timing

        machine = timing.measure_machine(device.choose_device("auto"))
        if not self.json:
            _print_machine(machine)
        forecasts: dict[str, Forecast | str] = {}
        end = time.monotonic() + _SECONDS[machine.device.type]
        for done, config in enumerate(sorted(configs, key=lambda config: step_flops(config).real / config.batch.size)):
            left = end - time.monotonic()
            forecasts[config.preset] = (
                timing.forecast(config, machine, limit=max(2.0, min(8.0, left / (len(configs) - done))))
                if left > 0
                else f"no time was left; alone: electra doctor --bench --presets {config.preset}"
            )
            if not self.json:
                _print_forecast(config.preset, forecasts[config.preset])
        print(json.dumps(_doctor_facts(findings, machine, forecasts)) if self.json else f"\n{_HOW}")


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
        *((package, _version(package) or f"MISSING: {install()}") for package in _NEEDED),
        *(
            (package, _version(package) or f"not installed; optional: {install(extra)}")
            for package, extra in _EXTRAS.items()
        ),
    ]
    return dict(lines)


def _print_machine(machine: "Machine") -> None:
    rates = ", ".join(f"{name} {rate / 1e9:,.0f} GFLOP/s" for name, rate in machine.matrix_flops.items())
    free = "" if machine.free_bytes is None else f", {machine.free_bytes / 1e9:.1f} GB free"
    print(f"{'matrix products':<16} {rates}")
    print(f"{'memory':<16} {machine.copy_bytes / 1e9:,.0f} GB/s read and written{free}")
    print(f"\n{'preset':<16}{'tokens/s':>12}{'paper run':>14}{'arithmetic':>12}{'memory':>8}  {'limited by':<12}timed")


def _print_forecast(name: str, forecast: "Forecast | str") -> None:
    from electra_trainer.train.plan import duration

    if isinstance(forecast, str):
        print(f"{name:<16}skipped: {forecast}", flush=True)
        return
    arithmetic, memory = (
        f"{seconds / forecast.seconds_per_step:.0%}"
        for seconds in (forecast.arithmetic_seconds, forecast.memory_seconds)
    )
    how = "whole steps"
    if forecast.extrapolated:
        how = f"{forecast.rows_timed} of {forecast.rows} rows: an upper bound of the time"
    speed, time_of_run = f"{forecast.tokens_per_second:,.0f}", duration(forecast.run_seconds)
    note = f"\n{'':<16}{forecast.step}" if forecast.step else ""
    shares = f"{arithmetic:>12}{memory:>8}  {forecast.limit:<12}"
    print(f"{name:<16}{speed:>12}{time_of_run:>14}{shares}{how}{note}", flush=True)


def _doctor_facts(
    findings: dict[str, str], machine: "Machine", forecasts: "dict[str, Forecast | str]"
) -> dict[str, Any]:
    extra = ("tokens_per_second", "run_seconds", "extrapolated", "limit")
    presets = {
        name: {"skipped": found}
        if isinstance(found, str)
        else asdict(found) | {field: getattr(found, field) for field in extra}
        for name, found in forecasts.items()
    }
    return {
        "findings": findings,
        "device": machine.device.type,
        "precision": machine.precision,
        "matrix_flops_per_second": machine.matrix_flops,
        "copy_bytes_per_second": machine.copy_bytes,
        "presets": presets,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
