"""The verbs from Python: `from electra_trainer import pretrain, load; load("RUN").score("…")`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from electra_trainer.config import Config
from electra_trainer.evaluation import Evaluated, evaluate
from electra_trainer.presets import preset as preset_named
from electra_trainer.report import write_report as report
from electra_trainer.score import Candidate, Pretrained, Scored, export_run, load
from electra_trainer.train.loop import pretrain as run_config
from electra_trainer.train.plan import Length

__all__ = ["Candidate", "Evaluated", "Pretrained", "Scored", "evaluate", "export", "load", "pretrain", "report"]

export = export_run


def pretrain(
    data: str | Path,
    *,
    out: str | Path,
    preset: str | Config = "small",
    steps: int | None = None,
    budget: str | None = None,
    flops: float | None = None,
    seed: int | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Pretrained:
    """Pre-train on prepared data, or go on where the run in `out` stopped.

    Args:
        data: a folder that `electra prepare` made.
        out: the run folder.
        preset: a preset's name, or a whole Config.
        steps, budget, flops: how long, at most one of them; `budget` is a time such as "20m".
        seed: of weights, order, masks, samples and dropout; None keeps the preset's.
        device: auto, cpu, cuda or cuda:N.
        quiet: show nothing.

    Returns:
        The trained networks, ready to score, fill and export.

    Raises:
        ElectraError: see errors.py.
    """
    config = preset_named(preset) if isinstance(preset, str) else preset
    if seed is not None:
        config = replace(config, seed=seed)
    length = Length(steps=steps, budget=budget, flops=flops)
    run_config(config, Path(data), out=Path(out), length=length, device=device, quiet=quiet)
    return load(out)
