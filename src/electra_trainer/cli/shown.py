"""Results of requests as a value and some lines, and what verbs share: progress by the clock, a file to write."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from electra_trainer.errors import ConfigError, StorageError


class Ticks:
    """A clock for progress: whether the last line is long enough ago.

    Args:
        every: seconds from one line to the next.
    """

    def __init__(self, every: float) -> None:
        self._every, self._last = every, time.monotonic()

    def due(self) -> bool:
        """Whether it is time for a line, which is then the last one."""
        now = time.monotonic()
        if now - self._last < self._every:
            return False
        self._last = now
        return True


def require_file(out: Path, endings: Sequence[str] = ()) -> None:
    """Raise ConfigError where --out is a folder or has another ending, StorageError where its folder does not exist."""
    if out.is_dir():
        raise ConfigError(f"--out {out}: is a folder, expected a file.")
    if endings and out.suffix not in endings:
        raise ConfigError(f"--out {out}: expected a name that ends in {' or '.join(filter(None, endings))}.")
    if not out.parent.is_dir():
        raise StorageError(f"--out {out}: the folder {out.parent} does not exist. Make it, or choose another --out.")


@dataclass(frozen=True)
class Shown:
    """A value, for Python and --json, and what a terminal gets instead."""

    value: Any
    lines: Sequence[str]

    def as_json(self) -> Any:
        """The value, a dataclass as a table."""
        return asdict(self.value) if is_dataclass(self.value) and not isinstance(self.value, type) else self.value

    def text(self) -> str:
        """The lines."""
        return "\n".join(self.lines)
