"""A run whose supervisor or launcher was killed is told to stop, as if by SIGTERM: it saves, and the same command goes on.

On Linux alone, where a process can ask for a signal at the end of the one that started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

STARTED_BY = "ELECTRA_STARTED_BY"
"""Variable with the id of the process that starts runs and must not be outlived by them."""
_UNDER_TORCHRUN = "TORCHELASTIC_RUN_ID"
_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """From here on the end of the process that started this one is a SIGTERM; nothing where neither a supervisor nor torchrun did."""
    starter = os.environ.get(STARTED_BY, "")
    if not sys.platform.startswith("linux") or not (starter.isdigit() or _UNDER_TORCHRUN in os.environ):
        return
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if starter.isdigit() and _is_gone(int(starter)):  # before this was asked for
        os.kill(os.getpid(), signal.SIGTERM)


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return False
