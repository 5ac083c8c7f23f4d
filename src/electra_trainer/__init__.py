"""Give it text; it gives you a strong small text encoder, pre-trained by replaced token detection (ELECTRA)."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from electra_trainer.api import (
        Finetuned,
        OwnTask,
        Pretrained,
        cloze,
        compare,
        evaluate,
        export,
        finetune,
        load,
        load_finetuned,
        minimal_pairs,
        pretrain,
        replay,
        report,
    )
    from electra_trainer.config import Config
    from electra_trainer.presets import preset

__all__ = [
    "Config",
    "Finetuned",
    "OwnTask",
    "Pretrained",
    "__version__",
    "cloze",
    "compare",
    "evaluate",
    "export",
    "finetune",
    "load",
    "load_finetuned",
    "minimal_pairs",
    "preset",
    "pretrain",
    "replay",
    "report",
]

_HOMES = {"Config": "electra_trainer.config", "preset": "electra_trainer.presets"}


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: the command's help does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "electra_trainer.api")), name)


class _Called(ModuleType):
    """A part of the package that has the name of a function of the API, and can be called as that function."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        return getattr(importlib.import_module("electra_trainer.api"), self.__name__.rpartition(".")[2])(
            *args, **kwargs
        )


class _Package(ModuleType):
    """`electra_trainer.finetune`, `.replay` and `.report` stay callable once Python has bound the folder and the file of that name there."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
