"""What is done for one cell of a fine-tuning experiment, in whatever process: load, fine-tune or count words, write the result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from electra_trainer.errors import ConfigError, Diverged, out_of_memory
from electra_trainer.experiments.experiment_file import Cell, Declared
from electra_trainer.experiments.results import Result, write_result
from electra_trainer.finetuning.baselines import write_baselines
from electra_trainer.finetuning.recipe import Recipe
from electra_trainer.finetuning.run import Job, finetune_run
from electra_trainer.finetuning.task import TaskData, TaskSource
from electra_trainer.pretrained.source import Source, load_source, untrained
from electra_trainer.runs.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all cells of a process share."""

    declared: Declared
    model: str
    """Where the encoder is now."""
    sources: Mapping[str, TaskSource]
    """By task."""
    device: str
    """The process's own: `cuda:1`, where several have a GPU each."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A cell to be done."""

    cell: Cell
    keep_weights: bool


@dataclass(frozen=True, kw_only=True)
class Event:
    """What is heard of a cell that is being worked on."""

    kind: Literal["progress", "said", "done", "stopped", "failed"]
    share: float = 0.0
    """Of the steps that are done, from 0 to 1."""
    text: str = ""
    style: str | None = None
    error: str = ""
    """The class of the error, in errors.py; empty for one that nobody foresaw."""


class Relay:
    """Passes on how a run goes. `saving` is true while a run has something to save."""

    def __init__(self, steps: int, *, tell: Callable[[Event], None], saving: Callable[[bool], None]) -> None:
        self._steps, self._tell, self._saving, self._first = steps, tell, saving, True

    def __enter__(self) -> Self:
        self._saving(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._saving(False)

    def say(self, line: str, *, style: str | None = None) -> None:
        self._tell(Event(kind="said", text=line, style=style))

    warn = say

    def step(self, done: int, metrics: dict[str, float], *, tokens_per_second: float, last: bool = False) -> None:
        if self._first:  # runs tell of every tenth step: a later one than that is of a run that goes on
            self._first = False
            self._tell(Event(kind="progress", share=done / self._steps if done > 10 else 0.0))
        self._tell(Event(kind="progress", share=done / self._steps))


class CellWork:
    """Does cells, one after another. Encoder and task stay loaded from one cell to the next.

    Args:
        source: the encoder, where it is loaded already.
        saving: told when a run begins and ends to have something to save; signals may end the process at other times.
    """

    def __init__(self, setup: Setup, *, saving: Callable[[bool], None], source: Source | None = None) -> None:
        self._setup, self._saving, self._source = setup, saving, source
        self._loaded: tuple[str, TaskData] | None = None

    def do(self, order: Order, *, tell: Callable[[Event], None], stop: Callable[[], str | None]) -> None:
        """Do a cell or go on with it; its result is on disk afterwards. A run that diverges has a result too: `failed` says why.

        Raises:
            Interrupted: saved; the same order goes on. ElectraError: as task and run.
        """
        cell, data = order.cell, self._load(order.cell.task)
        if cell.kind == "floors":
            write_baselines(cell, data)
            return
        source = self._encoder()
        recipe = Recipe(**self._setup.declared.tasks[cell.task].recipe)
        job = Job(
            source=source if cell.kind == "encoder" else untrained(source, seed=cell.seed),
            data=data,
            recipe=recipe,
            seed=cell.seed,
        )
        try:
            finetune_run(
                job,
                out=cell.folder,
                device=self._setup.device,
                keep_weights=order.keep_weights,
                display=lambda steps: Relay(steps, tell=tell, saving=self._saving),
                stop=stop,
            )
        except Diverged as error:
            failed = Result(task=cell.task, seed=cell.seed, steps=0, scores={}, failed=str(error), rows=len(data.train))
            write_result(RunFolder(cell.folder), failed)
            tell(Event(kind="said", text=f"FAILED: {error}", style="bold red"))
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            raise ConfigError(
                "not enough memory. Do fewer runs at once with --parallel 1, or read fewer rows at once with --micro-batch 8 or "
                "--max-length 64."
            ) from None

    def _encoder(self) -> Source:
        if self._source is None:
            self._source = load_source(self._setup.model)
            if self._source.sha256 != self._setup.declared.model_sha256:
                raise ConfigError(
                    f"{self._setup.model}: its weights changed after the experiment began. Give a folder that stays as it is, "
                    "such as an export, and another --out."
                )
        return self._source

    def _load(self, task: str) -> TaskData:
        if self._loaded is None or self._loaded[0] != task:
            self._loaded = None  # before the next is read: they need not both fit
            self._loaded = task, self._setup.sources[task].load()
            if self._loaded[1].sha256 != self._setup.declared.tasks[task].data_sha256:
                raise ConfigError(f"{task}: its data changed after the experiment began. Choose another --out.")
        return self._loaded[1]
