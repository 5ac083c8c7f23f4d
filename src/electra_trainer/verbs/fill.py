"""`electra fill RUN "the [MASK] cooked the meal"`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The generator's most probable words for each [MASK] of a text."""

    run: tyro.conf.Positional[Path]
    """Run folder, exported folder or its generator."""
    text: tyro.conf.Positional[str]
    """A text with at least one [MASK]."""
    top: int = 5
    """Words a gap."""
    json: bool = False
    """Print a JSON list: for each [MASK] its words with probabilities."""


def run(arguments: Arguments) -> None:
    """Print the words."""
    from electra_trainer.score import load

    gaps = load(arguments.run).fill(arguments.text, top=arguments.top)
    if arguments.json:
        print(json.dumps([[asdict(candidate) for candidate in gap] for gap in gaps]))
        return
    for number, gap in enumerate(gaps, 1):
        print(f"[MASK] {number}: " + "  ".join(f"{c.token} {c.probability:.3f}" for c in gap))
