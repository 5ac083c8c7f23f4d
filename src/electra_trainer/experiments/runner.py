"""One engine for all experiments: declare, do the cells that are not done here or in several processes, sum up.

The same work in the same folder resumes, whatever ended it, and comes to the same bytes; several machines may share the
folder, each with its shard of the cells. Progress is on standard error: one live line on a terminal, plain lines when
piped.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import torch
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from electra_trainer.cost.flops import run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, ElectraError, Interrupted
from electra_trainer.experiments import cell_workers, folder
from electra_trainer.experiments.folder import Cell, Declared, Event, Order, Reports, Setup, Work
from electra_trainer.files.processes import cores
from electra_trainer.files.terminal import Terminal
from electra_trainer.files.wording import duration
from electra_trainer.runs import checkpoint, run_folder, signals
from electra_trainer.train.device import set_threads


def run_experiment(
    work: Work,
    out: Path,
    *,
    device: str,
    parallel: int | None = None,
    shard: tuple[int, int] = (1, 1),
    quiet: bool = False,
) -> None:
    """Run what is not yet done, and sum up all that is there.

    Args:
        out: the experiment's folder: a new one, or one to resume or extend.
        device: where the cells are computed: cpu, cuda (all GPUs) or cuda:N; `facts` may have settled it.
        parallel: runs at once. Default: as many as the cores have room for, or one a GPU. One is done in this process,
            more in separate processes.
        shard: (i, N): of all cells every N-th, from the i-th on.

    Raises:
        ConfigError: another experiment is in `out`, or a setting that cannot be. Interrupted: stopped by a signal, all
            runs saved;
        the same call resumes. ElectraError: as the cells, with the name of the cell; what is done stays.
    """
    if parallel is not None and parallel < 1:
        raise ConfigError(f"--parallel {parallel}: expected at least 1.")
    with signals.StopRequest(at_once=True) as request:
        with folder.declaring(out, work.of):
            old = folder.read(out, of=work.of) if folder.exists(out) else None
            asked = work.declare(old)
            declared = asked if old is None else folder.extend(old, asked, root=out, identity=work.identity)
            folder.write(out, declared)
        rows = {key: declared.rows[key] for key in asked.rows}
        cells = shard_of(replace(asked, rows=rows).cells(out), shard)
        engine = _Engine(
            work, declared, cells, device=declared.facts.get("device", device), parallel=parallel, request=request
        )
        try:
            engine.run(quiet=quiet)
        except (ElectraError, KeyboardInterrupt):
            request.at_once = False
            work.sum_up(out)
            raise
        request.at_once = False
        work.sum_up(out)


def shard_of(cells: Sequence[Cell], shard: tuple[int, int]) -> list[Cell]:
    """Of (i, N) every N-th cell, from the i-th on, counted from 1."""
    return list(cells[shard[0] - 1 :: shard[1]])


SECONDS_BETWEEN_LINES = 60.0
"""Of waiting, when piped; a finished cell has its own line."""
_TELLING, _LONG = 0.02, 300.0
"""The share of the work, or the seconds, after which the time left is reported: before, it is mostly the time of
starting.
"""


class Board:
    """Shows what is done, what is being worked on, the best so far and the time left. Use as a context manager.

    Args:
        work: cell -> how much there is to do, in rows to be trained on; all of the experiment's cells.
        done: those that are done already.
        live: on a terminal one line that changes; else plain lines, as when piped.
    """

    def __init__(self, work: Mapping[Cell, float], *, done: set[Cell], quiet: bool = False, live: bool = True) -> None:
        self.console = Terminal(file=sys.stderr, quiet=quiet, highlight=False)
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
            still, cut = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis")
            self._bar = Progress(
                TextColumn("{task.fields[count]}", table_column=still),
                BarColumn(bar_width=20, table_column=still),
                TextColumn("{task.fields[words]}", table_column=cut, markup=False),
                console=self.console,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=1.0, count="", words="")
        return self

    def __exit__(self, *_: object) -> None:
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
        share = 1 - self._left() / (sum(self._work.values()) or 1.0)
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


class _Engine:
    def __init__(
        self,
        work: Work,
        declared: Declared,
        cells: list[Cell],
        *,
        device: str,
        parallel: int | None,
        request: signals.StopRequest,
    ) -> None:
        self._work, self._declared, self._cells, self._request = work, declared, cells, request
        self._device, self._parallel, self._alone = device, parallel, work.alone()

    def run(self, *, quiet: bool) -> None:
        """Do what is not done, until everything is."""
        orders = self._work.orders(self._cells, self._declared)
        left = {order.cell for order in orders}
        units = {cell: self._work.units(cell, self._declared) for cell in self._cells}
        devices = self._devices(len(orders))
        live = len(devices) > 1 or not self._work.own_display
        with Board(units, done={cell for cell in units if cell not in left}, quiet=quiet, live=live) as board:
            if self._alone and self._devices(len(orders), alone=False)[1:]:
                board.say(self._alone)
            while orders:
                self._do(orders, self._devices(len(orders)), board)
                orders = self._work.orders(self._cells, self._declared)

    def _do(self, orders: Sequence[Order], devices: Sequence[str], board: Board) -> None:
        heard, request = partial(self._heard, board), self._request
        setups = [Setup(work=self._work, declared=self._declared, device=device) for device in devices]
        if len(setups) > 1:
            request.at_once = False
            threads = self._threads or max(1, cores() // len(setups))
            cell_workers.do_in_workers(
                orders, setups=setups, threads=threads, heard=heard, idle=board.idle, stop=lambda: request.name
            )
        else:
            before = torch.get_num_threads()
            set_threads(self._threads or before)
            try:
                self._do_here(orders, setups[0], heard)
            finally:
                set_threads(before)

    def _do_here(self, orders: Sequence[Order], setup: Setup, heard: Callable[[Cell, Event | None], None]) -> None:
        """In this process. A signal ends it at once wherever a run has nothing to save."""
        request = self._request
        for order in orders:
            if request.name:
                raise Interrupted(f"{request.name}: all runs are saved. The same command resumes.")
            heard(order.cell, None)
            reports = Reports(
                tell=partial(heard, order.cell),
                stop=lambda: request.name,
                saving=lambda on: setattr(request, "at_once", not on),
            )
            try:
                setup.do(order, reports)
            except Interrupted:
                raise
            except ElectraError as error:
                raise type(error)(f"{order.cell}: {error}") from None
            heard(order.cell, Event(kind="done"))

    def _heard(self, board: Board, cell: Cell, event: Event | None) -> None:
        if event is None:
            board.begin(cell)
        elif event.kind == "progress":
            board.progress(cell, event.share)
        elif event.kind == "said" and (cell.kind != "untrained" or event.text.startswith("FAILED")):
            board.say(f"{cell}: {event.text}", style=event.style)  # an untrained encoder may collapse: it has its log
        elif event.kind == "done":
            board.done(cell, score=self._work.ended(cell, self._declared))

    @property
    def _threads(self) -> int | None:
        """Threads that each run computes with, where that is settled."""
        found: int | None = self._declared.facts.get("threads")
        return found or threads_given()

    def _devices(self, orders: int, *, alone: bool = True) -> list[str]:
        """The device of each run at a time."""
        gpus = torch.cuda.device_count() if self._device == "cuda" else 1
        on_cpu = torch.device(self._device).type == "cpu"
        room = max(1, cores() // (self._threads or 1)) if on_cpu else gpus
        count = 1 if self._alone and alone else max(1, min(orders, self._parallel or room))
        return [f"cuda:{index % gpus}" if gpus > 1 else self._device for index in range(count)]


def threads_given() -> int | None:
    """OMP_NUM_THREADS, where it is set to a number."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) or None if given.isdecimal() else None


def run_facts(run: Path, *, step: int | None = None) -> dict[str, float]:
    """What a pre-training run took up to the checkpoint of a step, or the newest; the names are those in
    results.FACTS.
    """
    opened = run_folder.RunFolder(run)
    saved = checkpoint.of_step(opened.checkpoints, step, origin=opened.origin, timed=True)
    config = opened.config()
    flops = run_flops(config, steps=saved.step)
    return {
        "steps": saved.step,
        "tokens": saved.step * config.tokens_per_step,
        "flops_paper": flops.paper,
        "flops_real": flops.real,
        "seconds": round(float(saved.state["seconds"]), 3),
        "parameters": parameters(config).joint,
    }
