"""Saving in a thread next to the steps: a step waits for a copy of the tensors, never for the disk.

One checkpoint is written at a time; the next save, a stop and the end wait for it. A failed save is reported, the checkpoint before it
stays and training continues; several in a row end the run. The last save must succeed.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType

import torch
from torch import Tensor

from electra_trainer.errors import StorageError
from electra_trainer.runs import run_folder, verified
from electra_trainer.runs.checkpoint import numbered, save

FAILURES_IN_A_ROW = 3
"""Saves that may fail one after another before the run ends."""
RETRY_AFTER = 1.0
"""Seconds before a save that must succeed is repeated."""


class Saver:
    """Saves a run. A context manager, which waits at its end for the save in progress.

    Args:
        folder: of a run that has begun.
        keep: newest checkpoints that stay.
        say: shows a person one line.
    """

    def __init__(self, folder: run_folder.RunFolder, *, keep: int, say: Callable[[str], None]) -> None:
        self._folder, self._keep, self._say = folder, keep, say
        self._origin = folder.origin
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._failures = 0

    def __enter__(self) -> "Saver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if failure := self._outcome():
            self._say(f"the last save failed: {failure}")

    def write(self, saved: verified.Saved) -> None:
        """Save now, metrics.jsonl and examples.jsonl first, and wait for it; StorageError."""
        self._folder.sync_rows()
        save(self._folder.checkpoints, saved, origin=self._origin, keep=self._keep)

    def begin(self, saved: verified.Saved) -> None:
        """Copy the tensors and write them while training continues; waits only for the save before.

        Raises:
            StorageError: see `check`.
        """
        self._settle()
        copied = replace(saved, weights=_copied(saved.weights), optimizer=_copied(saved.optimizer))
        self._thread = threading.Thread(target=self._write_aside, args=(copied,), name="electra-save")
        self._thread.start()

    def check(self) -> None:
        """At the end of a step: report a save that has failed since.

        Raises:
            StorageError: it was the last of several in a row.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._settle()

    def finish(self, saved: verified.Saved) -> None:
        """The last save: it waits, and is tried twice; StorageError."""
        if failure := self._outcome():
            self._say(f"a save failed: {failure}")
        surely(lambda: self.write(saved), say=self._say)

    def _write_aside(self, saved: verified.Saved) -> None:
        try:
            self.write(saved)
        except BaseException as error:  # raised again in the thread of the steps
            self._error = error

    def _outcome(self) -> StorageError | None:
        """Wait for the save in progress. Returns its error if the disk is to blame; any other error is raised."""
        if self._thread is None:
            return None
        self._thread.join()
        error, self._thread, self._error = self._error, None, None
        if error is not None and not isinstance(error, StorageError):
            raise error
        self._failures = self._failures + 1 if error else 0
        return error

    def _settle(self) -> None:
        failure = self._outcome()
        if failure is None:
            return
        kept = numbered(self._folder.checkpoints)
        newest = f"that of step {kept[-1][0]:,}" if kept else "none"
        if self._failures >= FAILURES_IN_A_ROW:
            raise StorageError(f"{self._failures} saves in a row failed; the newest checkpoint is {newest}. {failure}")
        self._say(
            f"SAVING FAILED ({self._failures} of {FAILURES_IN_A_ROW} before the run stops): {failure} Training continues; the newest "
            f"checkpoint is {newest}."
        )


def surely(write: Callable[[], object], *, say: Callable[[str], None]) -> None:
    """Call `write`, and once more if the disk failed; StorageError."""
    try:
        write()
    except StorageError as error:
        say(f"{error} Trying once more.")
        time.sleep(RETRY_AFTER)
        write()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in separate memory, on the CPU."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
