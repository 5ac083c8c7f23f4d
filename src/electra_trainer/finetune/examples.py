"""Examples of tasks whose answer is about a whole text or pair of texts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text, or a pair, with its label if it has one."""

    text: str
    pair: str | None = None
    label: str | None = None
    """The label as it is written in the file."""
    value: float | None = None
    """The number that a regression task asks for, in the file's own units."""
    place: str = ""
    """`file:line`, for messages."""
    id: str | None = None
    """What the file calls it; predictions carry it."""
