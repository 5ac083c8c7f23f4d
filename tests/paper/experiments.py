"""Experiment folders for tests, written as JSON: nothing is trained."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra_trainer.cost.flops import step_flops
from electra_trainer.experiments.cell import FACTS, Declared, DeclaredRow, environment_of, write_declared
from electra_trainer.presets.arms import arm as make_arm
from electra_trainer.presets.models import preset as make_preset
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import to_dict

METRICS = {"held-out/discriminator_auc": 0.7, "pos/accuracy": 0.8}


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_experiment(
    path: Path,
    *,
    preset: str = "tiny",
    arms: Sequence[str] = ("electra", "mlm"),
    configs: Mapping[str, Config] | None = None,
    seeds: Sequence[int] = (1, 2, 3),
) -> Path:
    """experiment.json alone: no cell is done."""
    made = {name: make_arm(name, make_preset(preset)) for name in arms} | dict(configs or {})
    first = next(iter(made))
    declared = Declared(
        verb="compare",
        facts={"preset": preset, "match": "paper-flops", "amount": 1e12, "metrics": [], "choose": None},
        rows={
            name: DeclaredRow(
                settings=to_dict(config), metrics=("pos/accuracy",), reference=None if name == first else first
            )
            for name, config in made.items()
        },
        seeds=tuple(seeds),
        about={"data": "data"},
    )
    path.mkdir(parents=True, exist_ok=True)
    write_declared(path, declared)
    return path


def write_cell(
    path: Path,
    arm: str,
    seed: int,
    metrics: Mapping[str, float | None] | None = None,
    *,
    flops: float = 1e12,
    seconds: float = 90.0,
    curve: Sequence[tuple[float, float]] = (),
    **changes: Any,
) -> Path:
    """A finished cell with its run folder; `curve` holds (share of the FLOPs, held-out AUC)."""
    run = path / "cells" / arm / f"seed-{seed}" / "run"
    run.mkdir(parents=True)
    write(run / "environment.json", {"gpu": None, "threads": 2, "cpu_capability": "AVX512"})
    rows = [
        {"step": 10 * index + 10, "split": "valid", "flops": share * flops, "discriminator_auc": auc}
        for index, (share, auc) in enumerate(curve)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = dict(zip(FACTS, (100, 1000, flops, 2 * flops, seconds, 123), strict=True))
    result = {
        "key": arm, "seed": seed, "facts": facts, "scores": dict(METRICS if metrics is None else metrics), "failed": None,
        "doubts": [], "environment": environment_of(run),
    }  # fmt: skip
    write(run.parent / "result.json", result | changes)
    return run


def full_flops(preset: str) -> float:
    config = make_preset(preset)
    return config.schedule.steps * step_flops(config).paper


def with_width(width: float) -> Config:
    config = make_preset("tiny")
    return replace(config, generator=replace(config.generator, width=width))  # type: ignore[type-var]
