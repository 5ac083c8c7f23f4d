"""The cells of one command: which are not done, how many at once, and whose weights stay."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Literal

import torch

from electra_trainer.errors import ElectraError, Interrupted
from electra_trainer.experiments.board import Board
from electra_trainer.experiments.cell_workers import do_in_workers
from electra_trainer.experiments.experiment_file import Cell, Declared
from electra_trainer.experiments.results import read_result
from electra_trainer.experiments.summary import best_seed, results_of
from electra_trainer.files.processes import cores
from electra_trainer.finetuning.cell_work import CellWork, Event, Order, Setup
from electra_trainer.finetuning.run import is_finished
from electra_trainer.finetuning.task import TaskSource
from electra_trainer.pretrained.source import Source
from electra_trainer.runs.signals import StopRequest
from electra_trainer.train.device import set_threads

Keep = Literal["none", "best", "all"]
_DROPPED = ".weights-dropped"


class Cells:
    """The cells that a command asks for.

    Args:
        declared: the experiment.
        asked: of it the seeds, tasks and floors that are asked for now.
        sources: by task.
        keep: whose weights stay on disk.
        lock: the experiment's, which workers inherit.
    """

    def __init__(
        self,
        out: Path,
        *,
        declared: Declared,
        asked: Declared,
        sources: Mapping[str, TaskSource],
        keep: Keep,
        lock: IO[str],
    ) -> None:
        self._out, self._declared, self._sources, self._keep, self._lock = out, declared, sources, keep, lock
        self._cells = asked.cells(out)

    def run(self, source: Source, request: StopRequest, *, parallel: int | None, quiet: bool) -> None:
        """Do what is not done, until everything is.

        Raises:
            Interrupted: stopped and saved. ElectraError: of a cell, after its name.
        """
        self._drop_weights()
        orders = self._orders()
        left = {order.cell for order in orders}
        work = {cell: self._units(cell) for cell in self._cells}
        with Board(work, done={cell for cell in work if cell not in left}, quiet=quiet) as board:
            while orders:
                self._do(orders, source, request, board=board, parallel=parallel)
                orders = self._orders()

    def _orders(self) -> list[Order]:
        """Cells that are not done; when all are, the best of each task if its weights are to be kept and were not."""
        orders = [
            Order(cell=cell, keep_weights=cell.kind == "encoder" and self._keep != "none") for cell in self._cells
        ]
        missing = [
            order
            for order in orders
            if not _is_done(order.cell, keep_weights=order.keep_weights and self._keep == "all")
        ]
        if missing or self._keep != "best":
            return missing
        best = [self._best(task) for task in self._sources]
        return [
            Order(cell=cell, keep_weights=True)
            for cell in best
            if cell is not None and not _is_done(cell, keep_weights=True)
        ]

    def _do(
        self, orders: Sequence[Order], source: Source, request: StopRequest, *, board: Board, parallel: int | None
    ) -> None:
        heard = partial(self._heard, board)
        devices = self._devices(len(orders), board=board, parallel=parallel)
        setups = [
            Setup(declared=self._declared, model=source.name, sources=self._sources, device=device)
            for device in devices
        ]
        if len(setups) > 1:
            request.at_once = False
            do_in_workers(
                orders, setups=setups, lock=self._lock, heard=heard, idle=board.idle, stop=lambda: request.name
            )
        else:
            with _threads(self._declared.threads):
                _do_here(orders, setup=setups[0], source=source, heard=heard, request=request)

    def _heard(self, board: Board, cell: Cell, event: Event | None) -> None:
        if event is None:
            board.begin(cell)
        elif event.kind == "progress":
            board.progress(cell, event.share)
        elif event.kind == "said" and (cell.kind != "untrained" or event.text.startswith("FAILED")):
            board.say(f"{cell}: {event.text}", style=event.style)  # an untrained encoder may collapse: it has its log
        elif event.kind == "done":
            self._drop_weights()
            board.done(cell, metric=self._declared.tasks[cell.task].metric, score=self._score(cell))

    def _devices(self, orders: int, *, board: Board, parallel: int | None) -> list[str]:
        """The device of each run at a time."""
        where = torch.device(self._declared.device)
        gpus = torch.cuda.device_count() if self._declared.device == "cuda" else 1
        room = max(1, cores() // self._declared.threads) if where.type == "cpu" else gpus
        count = min(orders, parallel or room)
        own = [name for name, source in self._sources.items() if _is_of_the_script(source)]
        if own and count > 1:
            board.say(
                f"{own[0]}: its class is in the script itself, where other processes cannot import it: one run at a time"
            )
            count = 1
        return [f"cuda:{index % gpus}" if gpus > 1 else self._declared.device for index in range(count)]

    def _units(self, cell: Cell) -> float:
        """How much work a cell is, in rows to be trained on; counting words is as nothing."""
        task = self._declared.tasks[cell.task]
        return 0.0 if cell.kind == "floors" else task.train_rows * float(task.recipe["epochs"])

    def _score(self, cell: Cell) -> float | None:
        if cell.kind == "floors":
            return None
        task, scores = self._declared.tasks[cell.task], read_result(cell.folder).scores
        return scores[task.dev[0]][task.metric] if scores else None

    def _best(self, task: str) -> Cell | None:
        declared = self._declared.tasks[task]
        results = results_of(self._out, task, self._declared, "encoder")
        seed = best_seed(results, split=declared.dev[0], metric=declared.metric)
        return None if seed is None else Cell(out=self._out, task=task, kind="encoder", seed=seed)

    def _drop_weights(self) -> None:
        """Of all but the best run of a task, once the best one's are on disk; half-deleted ones must not pass for weights."""
        for task in self._sources if self._keep == "best" else ():
            best = self._best(task)
            if best is None or not _is_done(best, keep_weights=True):
                continue
            for seed in results_of(self._out, task, self._declared, "encoder"):
                folder = replace(best, seed=seed).folder
                shutil.rmtree(folder / _DROPPED, ignore_errors=True)
                if seed != best.seed and (folder / "weights").is_dir():
                    (folder / "weights").rename(folder / _DROPPED)
                    shutil.rmtree(folder / _DROPPED, ignore_errors=True)


def _is_of_the_script(source: object) -> bool:
    """Whether its class is where no other process can import it from."""
    return type(source).__module__ == "__main__" or "<locals>" in type(source).__qualname__


def _is_done(cell: Cell, *, keep_weights: bool) -> bool:
    if cell.kind == "floors":
        return cell.result.is_file()
    return is_finished(cell.folder, keep_weights=keep_weights)


def _do_here(
    orders: Sequence[Order], *, setup: Setup, source: Source, heard: partial[None], request: StopRequest
) -> None:
    """In this process. A signal ends it at once wherever a run has nothing to save."""
    work = CellWork(setup, source=source, saving=lambda on: setattr(request, "at_once", not on))
    for order in orders:
        if request.name:
            raise Interrupted(f"{request.name}: all runs are saved. The same command goes on.")
        heard(order.cell, None)
        try:
            work.do(order, tell=partial(heard, order.cell), stop=lambda: request.name)
        except Interrupted:
            raise
        except ElectraError as error:
            raise type(error)(f"{order.cell}: {error}") from None
        heard(order.cell, Event(kind="done"))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads meanwhile."""
    before = torch.get_num_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)
