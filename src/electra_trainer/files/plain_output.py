"""Standard output and error that no text can steer: control and bidirectional characters of texts from outside appear
as escapes.

The command line wraps both streams in `plain_output`, so that every `print` is covered, those of libraries too. rich's
consoles write past it; `Terminal` is one that escapes texts.
"""

import io
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from electra_trainer.errors import plain

_STYLE = re.compile(r"(\x1b\[[\d;]*m)")
_RETURNS = re.compile(r"(^\r|\r(?=\n))")
"""Carriage returns of line ends, and those by which a library draws its progress over the same line."""


class PlainStream:
    """A text stream on which everything is printed by `plain`.

    Args:
        stream: where it goes.
    """

    keeps_styles = False
    """Whether bold and colours may pass, for help."""

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream
        """Where rich's consoles write, which have styles of their own."""

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        passing = _STYLE if self.keeps_styles and self.isatty() else _RETURNS
        parts = passing.split(text)
        parts[::2] = [plain(part, keep="\n\t") for part in parts[::2]]
        self.rich_proxied_file.write("".join(parts))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def plain_output() -> Iterator[None]:
    """Standard output and error as plain streams, inside a `with`."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    sys.stdout, sys.stderr = PlainStream(sys.stdout), PlainStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def styles() -> Iterator[None]:
    """Let bold and colours pass to a terminal, inside a `with`: those of help."""
    PlainStream.keeps_styles = True
    try:
        yield
    finally:
        PlainStream.keeps_styles = False


class Terminal(Console):
    """rich's console, which prints texts by `plain`; its own styles, colours and cursor moves pass."""

    @property
    def file(self) -> IO[str]:
        """The stream itself, without what is wrapped around it."""
        file: Any = super().file
        while (inner := getattr(file, "rich_proxied_file", None)) is not None:
            file = inner
        return file  # type: ignore[no-any-return]

    @file.setter
    def file(self, new: IO[str]) -> None:
        self._file = new

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of rich, with plain texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text, keep="\n"), segment.style)
