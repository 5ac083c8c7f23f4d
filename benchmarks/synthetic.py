"""A preset on made-up rows of another size, and a throw-away run of it, for measurements that need no text."""

from __future__ import annotations

import torch

from electra_trainer.presets.models import preset
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.device import choose_precision
from electra_trainer.train.timing import Trial, made_up_feed


def sized(name: str, *, batch: int | None = None, lanes: int | None = None) -> Config:
    """A preset with another batch or number of lanes; another batch has one lane."""
    config = preset(name)
    shape = config.batch
    lanes = lanes or (shape.lanes if batch is None else 1)
    return changed(config, batch={"size": batch or shape.size, "lanes": lanes})


def make(config: Config, device: torch.device, *, precision: str = "auto") -> Trial:
    """Networks, optimizer and feed of `config` over made-up rows."""
    return Trial(config, made_up_feed(config, device=device, precision=choose_precision(precision, device)))
