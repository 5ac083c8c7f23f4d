"""What an experiment asks of its work: what is declared, which cells are left, and how one is done.

Two works exist: arms that are pre-trained and probed (`electra compare`), and tasks that an encoder is fine-tuned on (`electra finetune`,
`glue`, `squad`). No torch here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from electra_trainer.experiments import folder
from electra_trainer.experiments.folder import Cell, Declared, Of


@dataclass(frozen=True, kw_only=True)
class Order:
    """A cell to be done."""

    cell: Cell
    keep_weights: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """What is reported of a cell that is being worked on."""

    kind: Literal["progress", "said", "done", "stopped", "failed"]
    share: float = 0.0
    """Of the steps that are done, from 0 to 1."""
    text: str = ""
    style: str | None = None
    error: str = ""
    """The class of the error, in errors.py; empty for a bug."""


@dataclass(frozen=True, kw_only=True)
class Reports:
    """How a cell's work talks to the engine while it runs."""

    tell: Callable[[Event], None]
    stop: Callable[[], str | None]
    """Names the signal that asks to stop, once there was one."""
    saving: Callable[[bool], None]
    """Called when the work begins and ends to have something to save: a stop may end the process at other times."""


class Work(Protocol):
    """What is asked for, and how a cell is done. It is sent to other processes, so it can be pickled."""

    of: Of
    own_display: bool
    """Whether a cell that is done in this process shows its progress itself."""

    def declare(self, old: Declared | None) -> Declared:
        """What is asked for: facts, rows, seeds, parts. Every file is read, so that what is wrong is said before anything is trained.

        Args:
            old: the experiment that is there; what it settled stays.
        """

    def identity(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of a row decides over results; another value of it is another experiment."""

    def orders(self, cells: Sequence[Cell], declared: Declared) -> list[Order]:
        """What is still to be done of some cells."""

    def units(self, cell: Cell, declared: Declared) -> float:
        """How much work a cell is, in any unit."""

    def do(self, order: Order, declared: Declared, *, device: str, reports: Reports) -> None:
        """Do a cell or resume it; its result is on disk afterwards. A run that diverges has a result too.

        Raises:
            Interrupted: saved; the same order resumes. ElectraError: as the work.
        """

    def ended(self, cell: Cell, declared: Declared) -> tuple[str, float] | None:
        """Tidy up after a cell is done; returns the name and value of its main score, if it has one."""

    def alone(self) -> str | None:
        """Why no other process can do it, in words; None: any can."""

    def sum_up(self, out: Path) -> object:
        """Write the summary of whatever is there."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all cells of a process share."""

    work: Work
    declared: Declared
    device: str
    """The process's own: `cuda:1`, where several have a GPU each."""

    def do(self, order: Order, reports: Reports) -> None:
        """Do a cell, once no worker of a command that was killed holds it any more."""
        folder.wait_until_free(order.cell.folder)
        folder.wait_until_free(order.cell.run)
        self.work.do(order, self.declared, device=self.device, reports=reports)
