"""`electra table 4 EXP [EXP …]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """A table of the paper with the cells of your experiments under the paper's."""

    number: tyro.conf.Positional[int]
    """1, 2, 3, 4 or 7."""
    experiments: tyro.conf.Positional[tuple[Path, ...]]
    """Experiment folders, as electra compare makes them."""
    format: Literal["md", "tex", "csv"] | None = None
    """Markdown, LaTeX (booktabs) or CSV; default: as the ending of --out says, else md."""
    metrics: tuple[str, ...] = ()
    """Metrics in the columns that the paper does not have, for example pos/accuracy "held-out/*"; default: all of two levels."""
    out: Path | None = None
    """File to write; links are relative to its folder. Default: the terminal, links relative to this folder."""


def run(arguments: Arguments) -> None:
    """Write it and say where, or print it."""
    from electra_trainer.analysis.read_experiment import read_experiment
    from electra_trainer.analysis.table_text import write
    from electra_trainer.analysis.tables import build_table
    from electra_trainer.durable import write_output
    from electra_trainer.errors import ConfigError

    if not arguments.experiments:
        raise ConfigError("table: give at least one experiment folder, for example: electra table 4 experiments/tiny")
    experiments = [read_experiment(path) for path in dict.fromkeys(arguments.experiments)]
    table = build_table(arguments.number, experiments, metrics=arguments.metrics)
    out = arguments.out
    endings: dict[str, Literal["md", "tex", "csv"]] = {".md": "md", ".tex": "tex", ".csv": "csv"}
    if out is not None and arguments.format is None and out.suffix not in endings:
        raise ConfigError(f"--out {out}: expected a name that ends in {', '.join(endings)}, or --format.")
    form = arguments.format or endings.get(out.suffix if out else "", "md")
    text = write(table, form, base=out.parent if out else Path())
    if out is None:
        print(text, end="")
        return
    write_output(out, text.encode())
    print(out)
