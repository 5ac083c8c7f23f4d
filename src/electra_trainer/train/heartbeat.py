"""A sign of life after each step, for whoever supervises the run; nothing without a supervisor."""

from __future__ import annotations

import os
from pathlib import Path

LAUNCH, FOLDER = "ELECTRA_LAUNCH", "ELECTRA_HEARTBEATS"
"""Variables that a supervisor sets: a name for this start of the run, and the folder of the signs of life."""


def beat() -> None:
    """Note that this process did a step: the file of its rank is written, its process id in it."""
    folder = os.environ.get(FOLDER)
    if folder:
        path = Path(folder) / os.environ.get("RANK", "0")
        try:
            path.write_text(str(os.getpid()))
        except OSError:
            return  # a full disk is told by what cannot do without it
