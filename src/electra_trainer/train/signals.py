"""SIGINT and SIGTERM ask the run to save and stop; it does so at the next step boundary, or at once where nothing is to be saved."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

from electra_trainer.errors import Interrupted


class StopRequest:
    """Context manager: while it is active, a signal sets `name` instead of ending the process.

    Args:
        at_once: raise Interrupted wherever the program is; an attribute of that name may be set and unset in between.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self.name: str | None = None
        self.at_once = at_once
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.at_once:
            self.name = signal.Signals(number).name
            raise Interrupted(f"{self.name}: stopped; what is done is saved. The same command goes on.")
        if self.name is None:  # os.write: a handler must not enter a stream that was interrupted while writing
            os.write(2, b"\nelectra: saving at the end of this step, then stopping\n")
        self.name = signal.Signals(number).name
