"""Work in a copy of this process: torch is imported once, and the copy may be killed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable


def in_a_child(work: Callable[[], int | None]) -> int:
    """Run it in a copy of this process.

    Returns:
        What it returned (None: 0), 1 after an exception, or minus the number of the signal that ended it.
    """
    import scipy.sparse  # noqa: F401 - loaded by the first evaluation: once here, not in each child

    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
