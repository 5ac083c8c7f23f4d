"""One engine for all experiments: declare, do the cells that are not done here or in several processes, sum up.

The same work in the same folder resumes, whatever ended it, and comes to the same scores; several machines may share
the folder, each with its seeds. Progress is lines on standard error.

Several cells at once: each worker does one after another and sends what it reports. A signal to this process makes it
ask all workers to save and stop. Messages are unpickled between a process and the child that it started; nothing that
comes from a file is.
"""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from rich.markup import escape

from electra_trainer.cost.flops import run_cost
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError, ElectraError, Interrupted, logs, named
from electra_trainer.experiments import cell as cells_on_disk
from electra_trainer.experiments.cell import Cell, Declared
from electra_trainer.experiments.summary import Summary, number, write_summary
from electra_trainer.files.processes import ASK_TO_STOP, EVENT, Child, Connection, Workers, cores, serve, wait
from electra_trainer.files.wording import Terminal, duration
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.runs.signals import StopRequest, undisturbed
from electra_trainer.settings import extensions
from electra_trainer.train.device import set_threads


@dataclass(frozen=True)
class Reports:
    """Channel by which a cell's work reports while it runs."""

    send: Callable[..., None]
    """Takes the name of a method of `Board` and its arguments after the cell."""

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays on the screen."""
        self.send("line", line, style)

    def progress(self, share: float) -> None:
        """Share of the work that is done; the first one was done by an earlier command."""
        self.send("progress", share)


class Work(Protocol):
    """The cells that are asked for, and how one is done. Other processes get it pickled."""

    verb: str
    shares_cores: bool = False
    """Whether runs of one thread may share cores where a second round would leave most of these idle."""

    def declare(self, old: Declared | None) -> Declared:
        """The rows, seeds and parts that are asked for. Every file is read, so that faults are reported before anything
        is trained.

        Args:
            old: the experiment that is there; what it settled stays.
        """

    def identity(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields of a row's settings that determine its results."""

    def with_contrasts(self, declared: Declared) -> Declared:
        """The whole experiment with the metrics that each row is compared on."""
        return declared

    def todo(self, cells: Sequence[Cell], declared: Declared) -> list[Cell]:
        """Cells that are still to be done."""

    def units(self, cell: Cell, declared: Declared) -> float:
        """Amount of work of a cell, in any unit."""

    def do(self, cell: Cell, declared: Declared, *, device: str, reports: Reports) -> None:
        """Do a cell or resume it; its result is on disk afterwards. A run that diverges has a result too.

        Raises:
            Interrupted: saved; the same cell resumes. ElectraError: as the work.
        """


def run_experiment(
    work: Work, out: Path, *, device: str, parallel: int | None = None, quiet: bool = False, plain: bool = False
) -> Summary:
    """Run what is not yet done, and sum up all that is there.

    Args:
        out: the experiment's folder: a new one, or one to resume or extend.
        device: where the cells are computed: cpu, cuda (all GPUs) or cuda:N; `facts` may have settled it.
        parallel: runs at once. Default: as many as the cores have room for, or one a GPU. One is done in this process,
            more in separate processes.
        plain: lines on progress leave out the names of the cells and their scores.

    Raises:
        ConfigError: another experiment is in `out`, or a setting that cannot be. Interrupted: stopped by a signal, all
            runs saved; the same call resumes. ElectraError: as the cells, with the name of the cell; what is done
            stays.
    """
    if parallel is not None and parallel < 1:
        raise ConfigError(f"--parallel {parallel}: expected at least 1.")
    with StopRequest(at_once=True) as request:
        with cells_on_disk.declaring(out):
            old = cells_on_disk.read_declared(out, verb=work.verb) if cells_on_disk.exists(out) else None
            asked = work.declare(old)
            declared = asked if old is None else cells_on_disk.extend(old, asked, root=out, identity=work.identity)
            declared = work.with_contrasts(declared)
            cells_on_disk.write_declared(out, declared)
        cells = asked.cells(out)
        todo = work.todo(cells, declared)
        units = {cell: work.units(cell, declared) for cell in cells}
        engine = _Engine(
            work=work,
            declared=declared,
            device=declared.facts.get("device", device),
            parallel=parallel,
            board=Board(units, done={one for one in {*cells} - {*todo} if one.is_done}, quiet=quiet, plain=plain),
            request=request,
        )
        try:
            while todo:
                engine.do(todo)
                todo = work.todo(cells, declared)
        finally:
            request.at_once = False
            if sys.exc_info()[0] is None or isinstance(sys.exc_info()[1], ElectraError | KeyboardInterrupt):
                summary = write_summary(out)
    return summary


SECONDS_BETWEEN_LINES = 60.0
"""Seconds between lines on what is being worked on; a finished cell has its own line."""


class Board:
    """Lines on what is done, what is being worked on and the time left.

    Args:
        work: cell -> how much there is to do, in any unit; all of the experiment's cells.
        done: those that are done already.
        plain: see `run_experiment`.
    """

    def __init__(
        self, work: Mapping[Cell, float], *, done: set[Cell], quiet: bool = False, plain: bool = False
    ) -> None:
        self._plain = plain
        self.console = Terminal(file=sys.stderr, quiet=quiet, highlight=False)
        self._left = {cell: units for cell, units in work.items() if cell not in done}
        self._all, self._done = len(work), len(done)
        self._shares: dict[Cell, float] = {}
        self._base: dict[Cell, float] = {}
        """The share of a cell that an earlier command had done."""
        self._since: dict[Cell, float] = {}
        """When the cells that are being worked on began."""
        self._began = self._last_line = time.monotonic()

    def say(self, line: str, *, style: str | None = None) -> None:
        """Print a line, or log it where `logging` is configured."""
        if self.console.quiet or logs(line):
            return
        self.console.print(escape(line), style=style, soft_wrap=True)

    def hear(self, cell: Cell, event: Literal["line", "progress"], *values: Any) -> None:
        """Show an event that a cell's work sent (`Reports`)."""
        getattr(self, event)(cell, *values)

    def begin(self, cell: Cell) -> None:
        """A cell is being worked on."""
        self._shares[cell], self._since[cell] = 0.0, time.monotonic()

    def line(self, cell: Cell, text: str, style: str | None) -> None:
        """A line on a cell."""
        self.say(f"{self._of(cell)}{text}", style=style)

    def _of(self, cell: Cell, end: str = ": ") -> str:
        return "" if self._plain else f"{cell}{end}"

    def progress(self, cell: Cell, share: float) -> None:
        """How much of a cell is done; the first share reported was done by an earlier command."""
        self._base.setdefault(cell, share)
        self._shares[cell] = share
        self.idle()

    def done(self, cell: Cell, *, score: tuple[str, float] | None) -> None:
        """A cell is done, with the name and value of its main score if it has one."""
        self._shares[cell] = 1.0
        self._done += 1
        words = "done" if score is None or self._plain else f"{score[0]} {number(score[1])}"
        took = time.monotonic() - self._since.pop(cell)
        left = f"; {self._time_left()}" if self._done < self._all else ""
        self.say(f"[{self._done}/{self._all}] {self._of(cell)}{words}, {duration(took)}{left}")

    def idle(self) -> None:
        """Print a line a minute."""
        if time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            shares = (f"{self._of(cell, ' ')}{100 * self._shares[cell]:.0f} %" for cell in self._since)
            self.say(f"[{self._done}/{self._all}] {'; '.join(shares) or 'waiting'}; {self._time_left()}")

    def _time_left(self) -> str:
        """Time left, at the speed of this command so far."""
        finished = sum((share - self._base.get(cell, 0.0)) * self._left[cell] for cell, share in self._shares.items())
        left = sum(units * (1 - self._shares.get(cell, 0.0)) for cell, units in self._left.items())
        if finished <= 0:
            return "time left not known yet"
        return f"about {duration(left * (time.monotonic() - self._began) / finished)} left"


_LOOK = 0.2
"""Seconds between looks for a signal."""


@dataclass(frozen=True, kw_only=True)
class _Engine:
    work: Work
    declared: Declared
    device: str
    parallel: int | None
    board: Board
    request: StopRequest

    def do(self, todo: Sequence[Cell]) -> None:
        """Do cells, in this process or in several others. A cell that a worker had to give up is left."""
        devices = self._devices(len(todo))
        if len(devices) > 1 and (pickled := self._pickled()) is not None:
            return self._do_in_workers(todo, devices, pickled)
        before = torch.get_num_threads()
        set_threads(self._threads or before)
        try:
            for cell in todo:
                self.board.begin(cell)
                try:
                    _do(self.work, self.declared, cell, devices[0], Reports(partial(self.board.hear, cell)))
                except Interrupted:
                    raise
                except ElectraError as error:
                    raise named(type(error).__name__)(f"{cell}: {error}") from None
                self._end(cell)
        finally:
            set_threads(before)

    def _do_in_workers(self, todo: Sequence[Cell], devices: Sequence[str], pickled: bytes) -> None:
        """One worker for each device; an error in one stops the others, saved, and is raised when they have ended."""
        self.request.at_once = False
        threads = self._threads or max(1, cores() // len(devices))
        setup = _packed((sys.path, extensions.files(), threads, pickled))
        with Workers(f"{__name__}:serve_cells", setup=setup, count=len(devices), threads=threads) as workers:
            failed = self._lead([*zip(workers.children, devices, strict=True)], deque(todo))
        if failed is not None:
            raise failed
        if self.request.name:
            raise Interrupted(f"{self.request.name}: all runs are saved. The same command resumes.")

    def _lead(self, free: list[tuple[Child, str]], waiting: deque[Cell]) -> ElectraError | None:
        """Give out cells until all are done, one fails, or a signal comes; then wait for those at work. The first
        error, if there was one.
        """
        busy, asked, failed = dict[Child, tuple[Cell, str]](), set[Child](), None
        while True:
            stopping = self.request.name or failed
            while free and waiting and not stopping:
                (child, device), cell = free.pop(0), waiting.popleft()
                busy[child] = cell, device
                child.send(_packed((cell, device)))
                self.board.begin(cell)
            for child in busy.keys() - asked if stopping else ():
                child.send(ASK_TO_STOP)
                asked.add(child)
            if not busy:
                return failed
            self.board.idle()
            ready = wait([child.pipe for child in busy], timeout=_LOOK)
            for child in [child for child in busy if child.pipe in ready]:
                cell, device = busy[child]
                try:
                    if self._heard(child, cell):
                        free.append((child, device))
                        del busy[child]
                except ElectraError as error:
                    del busy[child]
                    if not isinstance(error, Interrupted):
                        failed = failed or named(type(error).__name__)(f"{cell}: {error}")

    def _heard(self, child: Child, cell: Cell) -> bool:
        """Show what a worker reports; returns whether its cell is done. Raises ElectraError if it failed."""
        done, event = child.read()
        if done:
            self._end(cell)
        else:
            self.board.hear(cell, *json.loads(event))
        return done

    def _end(self, cell: Cell) -> None:
        """Report a finished cell with its main score."""
        result, (metric, *_) = cell.result(), (*self.declared.rows[cell.key].metrics, "")
        score = result.scores.get(metric) if result is not None else None
        self.board.done(cell, score=None if score is None else (metric.partition("/")[2], score))

    def _pickled(self) -> bytes | None:
        """Pickle for every worker; None, with a line, where the work has a class that no other process can import."""
        with suppress(Exception):  # pickle has many
            pickled = _packed((self.work, self.declared))
            if b"__main__" not in pickled:
                return pickled
        self.board.say(
            "A class of a task is in the script itself, which no other process can import: one run at a time."
        )
        return None

    @property
    def _threads(self) -> int | None:
        """Threads that each run computes with, where that is settled."""
        found: int | None = self.declared.facts.get("threads")
        return found or threads_given()

    def _devices(self, cells: int) -> list[str]:
        """The device of each run at a time."""
        gpus = torch.cuda.device_count() if self.device == "cuda" else 1
        on_cpu = torch.device(self.device).type == "cpu"
        room = max(1, cores() // (self._threads or 1)) if on_cpu else gpus
        if on_cpu and self.work.shares_cores and self._threads == 1 and room < cells < 2 * room:
            room = cells  # 3 runs on 2 cores end after 1.5 times a run's time, not 2
        count = max(1, min(cells, self.parallel or room))
        return [f"cuda:{index % gpus}" if gpus > 1 else self.device for index in range(count)]


def _do(work: Work, declared: Declared, cell: Cell, device: str, reports: Reports) -> None:
    """Do a cell, once no worker of a command that was killed holds it any more."""
    cells_on_disk.wait_until_free(cell.folder)
    cells_on_disk.wait_until_free(cell.run)
    work.do(cell, declared, device=device, reports=reports)


def _packed(value: object) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def serve_cells(pipe: Connection) -> None:
    """The life of a worker."""
    with StopRequest(at_once=True, quiet=True):
        serve(pipe, partial(_prepare, pipe))


@undisturbed()  # an exception in the middle of an import may become another, or leave half a module
def _prepare(pipe: Connection, setup: bytes) -> Callable[[bytes], bytes]:
    """A function that does one cell after another."""
    sys.path[:], files, threads, pickled = ForkingPickler.loads(setup)
    extensions.import_extensions(files)
    set_threads(threads)
    work, declared = ForkingPickler.loads(pickled)
    reports = Reports(lambda *event: pipe.send_bytes(EVENT + json.dumps(event).encode()))

    def do(request: bytes) -> bytes:
        cell, device = ForkingPickler.loads(request)
        _do(work, declared, cell, device, reports)
        return b""

    return do


def threads_given() -> int | None:
    """OMP_NUM_THREADS, where it is set to a number."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) or None if given.isdecimal() else None


def run_facts(run: Path, *, step: int | None = None) -> dict[str, float]:
    """Cost of a pre-training run up to the checkpoint of a step, or the newest; the names are those in cell.FACTS.
    Weights of `--init` cost nothing here.
    """
    opened = run_folder.RunFolder(run)
    saved = checkpoint.of_step(opened.checkpoints, step, origin=opened.origin, timed=True)
    config = opened.config()
    cost = run_cost(config, steps=saved.step, began=opened.continued)
    return {
        "steps": saved.step,
        "tokens": cost["tokens"],
        "flops_paper": cost["flops"],
        "flops_real": cost["flops_real"],
        "seconds": round(float(saved.state["seconds"]), 3),
        "parameters": parameters(config).joint,
    }
