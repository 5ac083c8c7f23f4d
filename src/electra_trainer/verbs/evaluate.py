"""`electra evaluate RUN DATA`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Held-out metrics of a run, over all held-out rows of DATA, always with the same masks."""

    run: tyro.conf.Positional[Path]
    """Run folder."""
    data: tyro.conf.Positional[Path]
    """Prepared folder, with the tokenizer of the run."""
    json: bool = False
    """Print one JSON object."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


def run(arguments: Arguments) -> None:
    """Print the metrics."""
    from electra_trainer.evaluation import evaluate
    from electra_trainer.train.health import health_line

    result = evaluate(arguments.run, arguments.data, device=arguments.device)
    if arguments.json:
        print(json.dumps({"step": result.step, **result.metrics}))
        return
    print(f"step {result.step}, {result.rows:,} held-out rows")
    for name, value in result.metrics.items():
        print(f"  {name:<30} {value:.4f}")
    print(health_line(result.metrics, vocab_size=result.vocab_size))
