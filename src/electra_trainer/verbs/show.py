"""`electra show small`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import tyro

from electra_trainer.config import Config
from electra_trainer.config_io import to_dict
from electra_trainer.model.cost import parameters, step_flops
from electra_trainer.presets import preset


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Show a preset: its whole configuration, its parameters and its FLOPs."""

    preset: tyro.conf.Positional[str]
    """tiny, small, small_plus_plus, base, large, bert_small, bert_base or bert_large."""
    json: bool = False
    """Print one JSON object."""


def run(arguments: Arguments) -> None:
    """Print it."""
    config = preset(arguments.preset)
    facts = _facts(config)
    if arguments.json:
        print(json.dumps(facts))
        return
    for title, table in facts.items():
        print(title)
        for name, value in _flat(table):
            print(f"  {name:<38} {value:,}" if isinstance(value, int) and value > 9999 else f"  {name:<38} {value}")


def _facts(config: Config) -> dict[str, Any]:
    count, cost, steps = parameters(config), step_flops(config), config.schedule.steps
    return {
        "config": to_dict(config),
        "parameters": {
            "discriminator" if count.generator else "encoder": count.kept,
            "generator": count.generator,
            "joint": count.joint,
            **asdict(count),
        },
        "flops": {"train_paper": float(steps * cost.paper), "train_real": float(steps * cost.real)},
    }


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows
