"""CPU time against size: does a function that reads a user's bytes stay linear?"""

import gc
import time
from collections.abc import Callable

SMALLEST, MEASURABLE, STEEPEST = 512, 0.02, 3.0
"""Bytes to begin with; seconds below which a time says nothing; most that a time may grow by where the input is twice
as long (linear 2, quadratic 4).
"""


def cpu(read: Callable[[], object]) -> float:
    """CPU seconds, without the collector of garbage, whose rare full passes depend on the rest of the process."""
    gc.disable()
    try:
        began = time.process_time()
        read()
        return time.process_time() - began
    finally:
        gc.enable()


def steepest(
    make: Callable[[int], Callable[[], object]], *, most: int, seconds: float = float("inf")
) -> tuple[float, int]:
    """The steepest growth for twice the size, up to `most`, and at which size: the first above `STEEPEST`.

    Args:
        make: size in bytes -> what is timed.
        seconds: CPU time of one reading after which no larger size is tried.
    """
    size, before, worst = SMALLEST, 0.0, (0.0, 0)
    while size <= most and before <= seconds:
        read = make(size)
        now = cpu(read)
        if before > MEASURABLE / 2 and now > MEASURABLE:
            smaller = make(size // 2)
            for _ in range(3):  # another program may take the cache, or the core's other thread, in one of them
                if now / before <= STEEPEST:
                    break
                before, now = max(before, cpu(smaller)), min(now, cpu(read))
            worst = max(worst, (now / before, size))
            if worst[0] > STEEPEST:
                break
        size, before = 2 * size, now
    return worst
