"""Examples of tasks whose answer is a label for each word."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TaggedSentence:
    """A sentence of words, each with its label if it has one."""

    words: tuple[str, ...]
    labels: tuple[str | None, ...]
    """One a word; None: not labelled, so neither learned nor scored."""
    file: str = ""
    lines: tuple[int, ...] = ()
    """The line of each word in `file`, counted from 1."""

    def __post_init__(self) -> None:
        if len(self.words) != len(self.labels):
            raise ValueError(f"{self.place}: {len(self.words)} words and {len(self.labels)} labels.")

    @property
    def place(self) -> str:
        """`file:line` of the first word, for messages."""
        return self.place_of(0)

    def place_of(self, word: int) -> str:
        """`file:line` of a word."""
        return f"{self.file}:{self.lines[word]}" if self.lines else self.file
