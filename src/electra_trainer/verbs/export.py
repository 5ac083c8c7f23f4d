"""`electra export RUN --out DIR`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write DIR/discriminator and DIR/generator: folders that `transformers` loads, with tokenizer and model card."""

    run: tyro.conf.Positional[Path]
    """Run folder."""
    out: Path
    """A new or empty folder."""


def run(arguments: Arguments) -> None:
    """Write, read back, and, where transformers is installed, compare logits."""
    from importlib.util import find_spec

    from electra_trainer.errors import CheckpointError
    from electra_trainer.hub import check_with_transformers
    from electra_trainer.score import export_run

    for folder in export_run(arguments.run, arguments.out):
        line = f"{folder}: written and read back bit for bit"
        if find_spec("transformers") is not None:
            difference = check_with_transformers(folder, ids=[list(range(5, 21))] * 2)
            if difference > 1e-4:
                raise CheckpointError(
                    f"{folder}: logits differ from transformers' by {difference:.1e}; please report this."
                )
            line += f"; transformers gives the same logits (largest difference {difference:.0e})"
        print(line)
