"""The result of a request that is a value and some lines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any


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
