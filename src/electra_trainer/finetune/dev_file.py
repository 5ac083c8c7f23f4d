"""A development file is another one than the training file, by whatever name."""

from __future__ import annotations

import filecmp
from pathlib import Path

from electra_trainer.errors import ConfigError


def require_other_file(
    train: Path, dev: Path, *, instead: str = "Leave --dev out, and a tenth of it is held out."
) -> None:
    """See that `dev` is neither `train` nor a copy of it. What cannot be read is left to whoever reads it.

    Args:
        instead: what to do, a sentence.

    Raises:
        ConfigError: it is.
    """
    try:
        same = train.is_file() and dev.is_file() and (train.samefile(dev) or filecmp.cmp(train, dev, shallow=False))
    except OSError:
        return
    if same:
        raise ConfigError(
            f"--dev {dev}: is the training file {train}; its scores would say what was learned by heart. {instead}"
        )
