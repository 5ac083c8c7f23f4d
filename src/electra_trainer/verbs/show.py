"""`electra show small`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import tyro

from electra_trainer.config import Config
from electra_trainer.config_io import to_dict
from electra_trainer.cost.flops import infer_flops, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.presets import preset
from electra_trainer.presets_published import SUMMARIES


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Show a preset: its whole configuration, its parameters and its FLOPs."""

    preset: tyro.conf.Positional[str]
    """tiny, small, small_plus_plus, base, large, bert_small, bert_base, bert_large; or `all`, which lists these and a preset for
    every other published row, one line each."""
    json: bool = False
    """Print one JSON object."""


def run(arguments: Arguments) -> None:
    """Print it."""
    if arguments.preset == "all":
        _list(as_json=arguments.json)
        return
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
    count, cost = parameters(config), run_flops(config)
    return {
        "config": to_dict(config),
        "parameters": {
            "joint": count.joint,
            "kept": count.kept,
            **asdict(count),
        },
        "flops": {"train_paper": cost.paper, "train_real": cost.real, "infer_paper": infer_flops(config).paper},
    }


def _list(*, as_json: bool) -> None:
    if as_json:
        print(json.dumps(SUMMARIES))
        return
    for name, summary in SUMMARIES.items():
        print(f"{name:<24} {summary}")


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in table.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows
