"""`electra score RUN "the chef flew the meal"`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Say of each token of a text how likely it was replaced."""

    run: tyro.conf.Positional[Path]
    """Run folder or exported folder."""
    text: tyro.conf.Positional[str]
    """The text."""
    json: bool = False
    """Print one JSON object: tokens, replaced_probability."""


def run(arguments: Arguments) -> None:
    """Print the tokens with their probabilities."""
    from electra_trainer.score import load

    scored = load(arguments.run).score(arguments.text)
    if arguments.json:
        print(json.dumps(asdict(scored)))
        return
    from electra_trainer.terminal import print_scored

    print_scored(scored)
