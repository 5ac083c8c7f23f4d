"""The progress of an experiment on standard error: one live line on a terminal, plain lines when piped."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from electra_trainer.experiments.folder import Cell
from electra_trainer.files.wording import duration

SECONDS_BETWEEN_LINES = 60.0
"""Of waiting, when piped; a finished cell has its own line."""
_TELLING, _LONG = 0.02, 300.0
"""The share of the work, or the seconds, after which the time left is reported: before, it is mostly the time of starting."""


class _Words(ProgressColumn):
    """The words that there is room for."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["words"], no_wrap=True, overflow="ellipsis")


class Board:
    """Shows what is done, what is being worked on, the best so far and the time left. Use as a context manager.

    Args:
        work: cell -> how much there is to do, in rows to be trained on; all of the experiment's cells.
        done: those that are done already.
        live: on a terminal one line that changes; else plain lines, as when piped.
    """

    def __init__(self, work: Mapping[Cell, float], *, done: set[Cell], quiet: bool = False, live: bool = True) -> None:
        self.console = Console(file=sys.stderr, quiet=quiet, highlight=False)
        self._work, self._done = dict(work), set(done)
        self._already = set(done)
        self._shares: dict[Cell, float] = {}
        self._base: dict[Cell, float] = {}
        """The share of a cell that an earlier command had done."""
        self._since: dict[Cell, float] = {}
        self._best: dict[str, float] = {}
        self._began = self._last_line = time.monotonic()
        self._bar: Progress | None = None
        if self.console.is_terminal and live and not quiet:
            still = Column(no_wrap=True)
            self._bar = Progress(
                TextColumn("{task.fields[count]}", table_column=still), BarColumn(bar_width=20, table_column=still),
                _Words(), console=self.console,
            )  # fmt: skip

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0, count="", words="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays."""
        self.console.print(escape(line), style=style, soft_wrap=True)

    def begin(self, cell: Cell) -> None:
        """A cell is being worked on."""
        self._shares[cell], self._since[cell] = 0.0, time.monotonic()
        self._show()

    def progress(self, cell: Cell, share: float) -> None:
        """How much of a cell is done; the first share reported was done by an earlier command."""
        self._base.setdefault(cell, share)
        self._shares[cell] = share
        self._show()

    def done(self, cell: Cell, *, score: tuple[str, float] | None) -> None:
        """A cell is done, with the name and value of its main score if it has one."""
        self._shares.pop(cell, None)
        self._done.add(cell)
        words = f"{score[0]} {100 * score[1]:.1f}" if score is not None else "done"
        if score is not None and cell.kind == "encoder":
            self._best[cell.key] = max(score[1], self._best.get(cell.key, score[1]))
            words += f" (best {100 * self._best[cell.key]:.1f})"
        took = time.monotonic() - self._since.pop(cell, time.monotonic())
        left = f"; {self._time_left()}" if len(self._done) < len(self._work) else ""
        self._last_line = time.monotonic()
        self.say(f"{self._count()} {cell}: {words}, {duration(took)}{left}")
        self._show()

    def idle(self) -> None:
        """Nothing was heard for a moment."""
        if self._bar is None and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self.say(f"{self._count()} {self._running()}; {self._time_left()}")

    def _show(self) -> None:
        if self._bar is None:
            self.idle()
            return
        best = "  ".join(f"{task} {100 * score:.1f}" for task, score in list(self._best.items())[-3:])
        words = f"{self._time_left()}  " + (f"best: {best}  " if best else "") + self._running()
        total = sum(self._work.values()) or 1.0
        share = 1 - self._left() / total
        self._bar.update(self._task, completed=share, count=self._count(), words=words)

    def _count(self) -> str:
        return f"[{len(self._done)}/{len(self._work)}]"

    def _running(self) -> str:
        return "; ".join(f"{cell} {100 * share:.0f} %" for cell, share in self._shares.items()) or "waiting"

    def _left(self) -> float:
        return sum(
            units * (1 - self._shares.get(cell, 0.0)) for cell, units in self._work.items() if cell not in self._done
        )

    def _time_left(self) -> str:
        """By what this command has done so far, in the time that it took."""
        ended = [cell for cell in self._done - self._already if cell in self._work]
        now = {**dict.fromkeys(ended, 1.0), **self._shares}
        finished = sum((share - self._base.get(cell, 0.0)) * self._work.get(cell, 0.0) for cell, share in now.items())
        took = time.monotonic() - self._began
        if finished <= 0 or (finished < _TELLING * sum(self._work.values()) and took < _LONG):
            return "time left not known yet"
        return f"about {duration(self._left() * took / finished)} left"
