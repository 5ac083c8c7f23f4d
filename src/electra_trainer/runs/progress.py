"""The progress of a run for people (a live bar on a terminal, one line every few seconds when piped), and
RUN/status.json, for schedulers too.

status.json holds the state of the latest start of a run, or how it ended. Launchers such as torchrun end with code 1
whatever the exit codes of their processes; the true code is here. Only the holder of the run's lock writes it, so a
start that finds another process at work does not. A file that says `running` with the id of a dead process means it was
killed.
"""

import logging
import os
import platform
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from electra_trainer.errors import ConfigError, ElectraError, Interrupted, StorageError, as_known, logs
from electra_trainer.files.wording import Terminal
from electra_trainer.runs import checkpoint, run_folder, signals

SECONDS_BETWEEN_LINES = 10.0


class Display:
    """Shows steps, speed, time left and losses. Use as a context manager; a subclass may pass them on elsewhere.

    Args:
        total: steps, which may be settled later.
        quiet: only warnings.
        silent: nothing at all, for all processes but one.
    """

    def __init__(self, *, total: int = 0, quiet: bool = False, silent: bool = False) -> None:
        self.total, self._quiet, self._silent, self._last_line = total, quiet or silent, silent, 0.0
        self.console = Terminal(file=sys.stderr, highlight=False)
        self._bar: Progress | None = None
        if self.console.is_terminal and not self._quiet and not logs():
            self._bar = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=None),
                TimeRemainingColumn(),
                TextColumn("{task.fields[words]}"),
                console=self.console,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self.total, words="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with suppress(OSError):
                self._bar.stop()

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays. If the terminal is gone the line is lost, and training continues."""
        if not self._quiet:
            self._show(line, style, logging.INFO)

    def warn(self, line: str, *, style: str | None = None) -> None:
        """A line that stays, and is also shown where only warnings are wanted."""
        if not self._silent:
            self._show(line, style, logging.WARNING)

    def _show(self, line: str, style: str | None, level: int) -> None:
        if not logs(line, level):
            with suppress(OSError):
                self.console.print(escape(line), style=style, soft_wrap=True)

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


STATUS = "status.json"
_SOON = 0.05


class Status:
    """Reports how one start of a run goes: a context manager around it. Rank 0 alone writes, and only where a run has
    begun.

    Args:
        out: the run folder.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._locked: run_folder.RunFolder | None = None
        """The run's folder once this process has locked it."""
        self.message = ""
        """Alarms of a run that trained to its end, between semicolons; empty without."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, Exception):
            signals.end_by_itself()
        if error is None:
            self._end("done", 0, self.message)
        elif isinstance(error, Exception):
            self.failed(as_known(error) or ElectraError(f"{type(error).__name__}: {error}"))

    def running(self, folder: run_folder.RunFolder) -> None:
        """Report that this process, which has locked the run, trains there."""
        self._locked = folder
        self._write(state="running", pid=os.getpid(), host=platform.node())

    def failed(self, error: ElectraError) -> None:
        """Report what ended the run."""
        self._end("stopped" if isinstance(error, Interrupted) else "failed", error.exit_code, str(error))

    def _end(self, state: str, exit_code: int, message: str) -> None:
        self._write(state=state, exit_code=exit_code, message=message)

    def _write(self, **facts: Any) -> None:
        folder = run_folder.RunFolder(self._out)
        if not (signals.process_leads() and folder.exists):
            return
        saved = checkpoint.numbered(folder.checkpoints)
        step, now = saved[-1][0] if saved else None, time.strftime("%Y-%m-%d %H:%M:%S")
        table = {**facts, "step": step, "time": now, "launch": os.environ.get(signals.LAUNCH)}
        try:
            if self._locked is not None and self._locked.locked:
                self._locked.write_json(STATUS, table)
            else:
                put_status(folder, table)
        except StorageError:
            return  # the error that ended the run is reported anyway


def put_status(folder: run_folder.RunFolder, table: dict[str, Any], *, wait: float = 0.0) -> None:
    """Replace the file, unless another process holds the run.

    Args:
        wait: seconds in which that process may release it.

    Raises:
        StorageError: the disk does not take it.
    """
    end = time.monotonic() + wait
    while True:
        with closing(run_folder.RunFolder(folder.path)) as own:
            try:
                own.open_for_writing()
                own.write_json(STATUS, table)
                return
            except ConfigError:
                if time.monotonic() > end:
                    return
        time.sleep(_SOON)
