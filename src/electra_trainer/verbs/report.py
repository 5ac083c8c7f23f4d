"""`electra report RUN [RUN …]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One page with pictures: losses, AUC, rates, and sentences with masked, sampled and detected tokens."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders; several are laid over one another."""
    out: Path | None = None
    """Where the page goes; default: report.html in the first run."""


def run(arguments: Arguments) -> None:
    """Write it and say where."""
    from electra_trainer.errors import ConfigError
    from electra_trainer.report import write_report

    if not arguments.runs:
        raise ConfigError("report: give at least one run folder.")
    print(write_report(list(dict.fromkeys(arguments.runs)), out=arguments.out))
