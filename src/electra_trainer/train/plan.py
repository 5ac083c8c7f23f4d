"""Plan a run before any work: its length, and what it will cost."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from electra_trainer.cost import returns
from electra_trainer.cost.flops import run_flops, steps_for_flops
from electra_trainer.cost.parameters import guesser_of, learned_generator, memory_bytes, parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError
from electra_trainer.files.wording import duration
from electra_trainer.presets import arms, models
from electra_trainer.settings.config import Config, changed, with_steps

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHARE_OF_BUDGET = 0.95
"""The rest is for saving, start-up and slower moments."""
_LAYER_LAUNCHES = 66 * 2.6e-6
"""Seconds that the GPU takes to start the kernels of a layer's step, however few rows it has: 1,575 kernels for Small's
24 layers, 2.6 µs each (records/2026-11-26-h100).
"""
_MESSAGE, _LINK = 3e-6, 380e9
"""An all-reduce by NVLink: seconds of a message, bytes a second. Assumed, not measured."""
_GPUS, _SCALES = (2, 4, 8), 0.5
"""Numbers of GPUs whose efficiency is estimated; half of it at the largest is worth the GPUs."""
_SLACK = 1.1
"""A step that is estimated to need a tenth more than a GPU has is tried: the estimate is no better."""


@dataclass(frozen=True, kw_only=True)
class Length:
    """The length of a run: at most one of the four; none keeps the preset's steps."""

    steps: int | None = None
    budget: str | None = None
    """Wall-clock time: 90s, 20m, 4h, 2d."""
    flops: float | None = None
    """Operations as the paper counts them (Appendix E), so that 1.3e18 is ELECTRA-Small's whole run."""
    flops_real: float | None = None
    """Operations as matrix products, backward twice forward."""
    keep: Collection[str] = ()
    """Dotted names of settings that are not fitted to it (`with_steps`), since a person or a sweep chose them."""

    def __post_init__(self) -> None:
        amounts = {name: value for name, value in vars(self).items() if name != "keep"}
        given = {f"--{name.replace('_', '-')}": value for name, value in amounts.items() if value is not None}
        if len(given) > 1:
            raise ConfigError(f"{' and '.join([*given][:2])} both set the length of the run: give one.")
        for flag, value in given.items():
            if flag.startswith("--flops") and not 0 < value < math.inf:
                raise ConfigError(f"{flag} {value:g}: expected a number above 0, for example 1e15.")
            if flag == "--steps" and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"{flag} {value}: expected a whole number, at least 1.")
        if self.budget is not None:
            seconds(self.budget)


def passes(config: Config, store: Store, steps: int) -> float:
    """How often a run reads its training rows."""
    return steps * config.batch.size / max(1, len(store.rows("train")))


def seconds(budget: str) -> float:
    """`"20m"` -> 1200.0."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", str(budget).strip())
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--budget {budget!r}: expected a number and a unit, for example 90s, 20m, 4h or 2d.")
    return float(match[1]) * _UNITS[match[2]]


def fit_to_data(config: Config, store: Store) -> Config:
    """Take vocabulary size and row length from the prepared data."""
    if store.sequence_length > config.model.max_position_embeddings:
        raise ConfigError(
            f"rows have {store.sequence_length} tokens, the model takes {config.model.max_position_embeddings} at "
            f"most. Prepare with --seq-len {config.model.max_position_embeddings} or set "
            f"--model.max-position-embeddings {store.sequence_length}; with --init new position embeddings begin as "
            "copies of the trained ones."
        )
    if len(store.rows("train")) < config.objective.rows_together:
        raise ConfigError("neighbour_weight: the text has one training row, so no row has a neighbour. Give more text.")
    return changed(config, model={"vocab_size": store.vocab_size}, batch={"sequence_length": store.sequence_length})


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Measured on this machine, in seconds."""

    step: float
    evaluation: float

    def total(self, config: Config) -> float:
        """Seconds of the whole run."""
        evaluations = 1 + config.schedule.steps // config.evaluation.every
        return config.schedule.steps * self.step + evaluations * self.evaluation


def steps_for(length: Length, config: Config, timing: Timing | None) -> Config:
    """`config` with the number of steps that `length` asks for; a time budget needs a `timing`.

    Settings that are still the preset's are fitted to the new length, but for those that it keeps (see `with_steps`).

    Raises:
        ConfigError: fewer FLOPs than one step has.
    """
    defaults = models.PRESETS[config.preset]() if config.preset in models.PRESETS else config
    steps = length.steps
    if (spent := length.flops or length.flops_real) is not None:
        steps = steps_for_flops(config, flops=spent, counting="paper" if length.flops else "real")
        if not steps:
            flag = "--flops" if length.flops else "--flops-real"
            raise ConfigError(f"{flag} {spent:g}: less than one step of {config.preset}. Give more, for example 1e15.")
    elif length.budget is not None:
        assert timing is not None
        available = seconds(length.budget) * _SHARE_OF_BUDGET
        guess = with_steps(config, max(1, int(available / timing.step)), defaults=defaults, keep=length.keep)
        steps = max(1, int(guess.schedule.steps * available / timing.total(guess)))
    return config if steps is None else with_steps(config, steps, defaults=defaults, keep=length.keep)


def efficiency(config: Config, step: float, gpus: int) -> float:
    """Expected speed of a run on several GPUs, as a share of `gpus` times that of one.

    The batch is divided, the time to start kernels is not, and a ring's all-reduce of the gradients comes on top (an
    α-β model; gradients are fp32).

    Args:
        config: the run.
        step: seconds of a step on one GPU.
        gpus: how many; each computes a lane at least.
    """
    networks = [m for m in (config.model, learned_generator(config), guesser_of(config)) if m is not None]
    launches = _LAYER_LAUNCHES * sum(m.num_hidden_layers for m in networks)
    lanes = config.batch.lanes
    rows = max(0.0, step - lanes * launches)
    exchange = 2 * (gpus - 1) * (_MESSAGE + 4 * parameters(config).joint / gpus / _LINK)
    return step / (gpus * (max(1, lanes / gpus) * launches + rows / gpus + exchange))


def does_not_fit(config: Config, free: int, *, gpu: int = 0) -> str | None:
    """Remedy if a run needs more memory than the `free` bytes of a device; None if it fits.

    Args:
        gpu: bytes of an activation where the device is a GPU, else 0.
    """
    limit = _SLACK * free if gpu else free

    if (needed := memory_bytes(config, gpu=gpu)) <= limit:
        return None
    message = f"it needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free here. "
    for lanes in range(2 * config.batch.lanes, config.batch.size + 1, config.batch.lanes):
        if config.batch.size % lanes == 0 and memory_bytes(changed(config, batch={"lanes": lanes}), gpu=gpu) <= limit:
            return f"{message}Set --batch.lanes {lanes}: the same step in {lanes} parts"
    return f"{message}Take a smaller model, or larger devices"


def describe(
    config: Config, store: Store | None = None, timing: Timing | None = None, *, gpu: int = 0
) -> list[tuple[str, str]]:
    """The lines of `--dry-run`: name and value; `gpu` is as in `does_not_fit`."""
    count, cost, steps = parameters(config), run_flops(config), config.schedule.steps
    lines = {"objective": arms.objective_title(config)}
    if config.model.block == "modern":
        lines["layers"] = "ModernBERT's, rotary positions"
    if count.generator:
        lines[f"parameters, {config.objective.keeps}"] = f"{count.kept:,}"
        lines["parameters, generator"] = f"{count.generator:,}"
    lines["parameters, joint"] = f"{count.joint:,}"
    lines["steps"] = f"{steps:,} of {config.batch.size} rows x {config.batch.sequence_length} tokens"
    lines["tokens"] = f"{steps * config.tokens_per_step:,}"
    if store is not None:
        read = passes(config, store, steps)
        many = f" (more than {returns.PASSES} were not tried)" if read > returns.PASSES else ""
        lines["passes over the text"] = f"{read:.2f}{many}"
    lines["FLOPs, as the paper counts"] = f"{cost.paper:.3g}"
    lines["FLOPs, matrix products"] = f"{cost.real:.3g}"
    if config.preset == "mini":
        lines["as many products"] = returns.about(cost.real, of="products")
    lines["memory, estimate"] = f"{memory_bytes(config, gpu=gpu) / 1e9:.2f} GB"
    if timing is not None:
        lines["speed here"] = f"{config.tokens_per_step / timing.step:,.0f} tokens/s"
        lines["time here"] = duration(timing.total(config))
    if timing is not None and gpu:
        shares = [efficiency(config, timing.step, gpus) for gpus in _GPUS]
        several = ", ".join(f"{gpus} GPUs: {share:.0%}" for gpus, share in zip(_GPUS, shares, strict=True))
        advice = "" if shares[-1] > _SCALES else "; it does not scale: give each GPU a seed, or raise --batch.size"
        lines["efficiency, estimate"] = several + advice
    return list(lines.items())
