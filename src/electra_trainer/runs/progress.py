"""Progress of a run for people: a live bar on a terminal, one line every few seconds when piped."""

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Shows(Protocol):
    """Receives the progress of a run: `Display`, or what shows many runs at once."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays."""

    def warn(self, line: str, *, style: str | None = None) -> None:
        """A line that stays, and is also shown where only warnings are wanted."""

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        """Show the state after `done` steps."""


class Display:
    """Shows steps, speed, time left and losses. Use as a context manager.

    Args:
        total: steps.
        quiet: only warnings.
        silent: nothing at all, for all processes but one.
    """

    def __init__(self, *, total: int, quiet: bool = False, silent: bool = False) -> None:
        quiet = quiet or silent
        self._silent = silent
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self.total = total
        self._last_line = 0.0
        self._bar: Progress | None = None
        if self.console.is_terminal and not quiet:
            self._bar = Progress(
                TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=None), TimeRemainingColumn(),
                TextColumn("{task.fields[words]}"), console=self.console,
            )  # fmt: skip

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total, words="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays. If the terminal is gone the line is lost, and training continues."""
        with suppress(OSError):
            self.console.print(escape(line), style=style, soft_wrap=True)

    def warn(self, line: str, *, style: str | None = None) -> None:
        """A line that stays, and is also shown where only warnings are wanted."""
        if not self.console.quiet:
            self.say(line, style=style)
        elif not self._silent:
            with suppress(OSError):
                print(line.strip(), file=sys.stderr, flush=True)

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        """Show the state after `done` steps."""
        words = f"{tokens_per_second:,.0f} tokens/s"
        for name, short in (("loss", "loss"), ("generator_loss", "gen"), ("discriminator_loss", "disc")):
            if name in metrics:
                words += f"  {short} {metrics[name]:.3f}"
        if self._bar is not None:
            self._bar.update(self._task, completed=done, words=words)
        elif last or time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(f"step {done}/{self.total}  {words}")
