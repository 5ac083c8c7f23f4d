"""A document: its lines, and where in which file they stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """Where a document was read."""

    file: str
    """As it was named or found; `docstrings:` and a module for the embedded corpus."""
    number: int
    """Which document of its file, from 1."""
    line: int
    """Its first line in the file (decompressed), from 1; 0: it has no lines of its own there."""
    last: int
    """Its last line."""


class Document(tuple[str, ...]):
    """Lines of text, a tuple of them, with the attribute `place`."""

    place: Place

    def __new__(cls, lines: Iterable[str], place: Place) -> Document:
        made = super().__new__(cls, lines)
        made.place = place
        return made
