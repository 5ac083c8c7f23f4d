"""A document, and where it was read."""

from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """Where a document was read."""

    file: str
    """As it was named or found; `docstrings:` and a module for the embedded corpus."""
    number: int
    """Its number in the file, from 1."""
    line: int
    """Its first line in the file (decompressed), or its row in a file that has rows, from 1; 0: it has neither."""
    last: int
    """Its last line or row."""


class Document(tuple[str, ...]):
    """Lines of text, a tuple of them, with the attribute `place`."""

    place: Place

    def __new__(cls, lines: Iterable[str], place: Place) -> "Document":
        made = super().__new__(cls, lines)
        made.place = place
        return made
