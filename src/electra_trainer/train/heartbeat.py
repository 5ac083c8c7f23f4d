"""Signs of life of each rank, and the code that it ended with, for whoever supervises the run; nothing without a supervisor."""

from __future__ import annotations

import os
from pathlib import Path

LAUNCH, FOLDER = "ELECTRA_LAUNCH", "ELECTRA_HEARTBEATS"
"""Variables that a supervisor sets: a name for this start of the run, and the folder of the signs of life."""
ENDED = ".ended"
"""What the name of a file ends in that holds an exit code."""


def beat() -> None:
    """Note that this process began, or did a step: the file of its rank is written, its process id in it."""
    _note("", os.getpid())


def ended(code: int) -> None:
    """Note what this process is about to end with: launchers hide it."""
    _note(ENDED, code)


def _note(suffix: str, number: int) -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        path = Path(folder) / (os.environ.get("RANK", "0") + suffix)
        try:
            path.write_text(str(number))
        except OSError:
            return  # a full disk is told by what cannot do without it
