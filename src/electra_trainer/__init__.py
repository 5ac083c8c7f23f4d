"""Give it text; it gives you a small text encoder, pre-trained by replaced token detection (ELECTRA)."""

import importlib
import sys
from typing import TYPE_CHECKING

from electra_trainer.version import __version__

if TYPE_CHECKING:
    from electra_trainer.api import *  # noqa: F403

if sys.platform == "win32":
    raise SystemExit(
        "electra-trainer does not run on Windows itself. Use it under WSL: type `wsl --install`, and install it in the "
        "Linux there."
    )

__all__ = [  # noqa: F405
    "Config", "Finetuned", "OwnTask", "Pretrained", "__version__", "cloze", "compare", "evaluate", "export", "finetune",
    "load", "load_finetuned", "minimal_pairs", "prepare", "preset", "pretrain", "replay", "report", "train_tokenizer",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: the command's help does not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("electra_trainer.api"), name)


def __dir__() -> list[str]:
    """Names of the API, also before they are imported."""
    return __all__
