"""rich's console for our styles, colours and bars, on which texts from outside cannot steer the terminal."""

from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from electra_trainer.errors import plain


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
