"""Give it text; it gives you a strong small text encoder, pre-trained by replaced token detection (ELECTRA)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from electra_trainer.api import (
        Pretrained,
        cloze,
        compare,
        evaluate,
        export,
        load,
        minimal_pairs,
        pretrain,
        report,
    )
    from electra_trainer.config import Config
    from electra_trainer.presets import preset

__all__ = [
    "Config",
    "Pretrained",
    "__version__",
    "cloze",
    "compare",
    "evaluate",
    "export",
    "load",
    "minimal_pairs",
    "preset",
    "pretrain",
    "report",
]

_HOMES = {"Config": "electra_trainer.config", "preset": "electra_trainer.presets"}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: the command's help does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "electra_trainer.api")), name)
