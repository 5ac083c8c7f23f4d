"""One engine for all experiments: declare, do the cells that are not done here or in several processes, sum up.

The same work in the same folder resumes, whatever ended it, and comes to the same scores; several machines may share
the folder, each with its shard of the cells. Progress is lines on standard error.

Several cells at once: cells and setups go down a worker's pipe, events come up. Ctrl-C reaches the parent alone, which
asks all workers to save and stop. When the parent is gone, however it ended, a thread of the worker sees the end of the
pipe and ends it at once. Messages are unpickled between a process and the child that it started; nothing that comes
from a file is.
"""

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
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
from electra_trainer.files.processes import Child, Connection, Pool, cores
from electra_trainer.files.wording import Terminal, duration
from electra_trainer.runs import checkpoint, run_folder
from electra_trainer.runs.signals import StopRequest
from electra_trainer.train.device import set_threads


@dataclass(frozen=True, kw_only=True)
class Event:
    """A report on a cell that is being worked on."""

    kind: Literal["progress", "line", "done", "stopped", "failed"]
    share: float = 0.0
    """Share of the steps that are done, from 0 to 1."""
    text: str = ""
    style: str | None = None
    error: str = ""
    """The class of the error, in errors.py; empty for a bug."""


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Channel from a cell's work to the engine while it runs."""

    send: Callable[[Event], None]
    stop: Callable[[], str | None]
    """Names the signal that asks to stop, once there was one."""
    saving: Callable[[bool], None]
    """Called when the work begins and ends to have something to save: a stop may end the process at other times."""

    def say(self, line: str, *, style: str | None = None) -> None:
        """A line that stays on the screen."""
        self.send(Event(kind="line", text=line, style=style))


class Work(Protocol):
    """The cells that are asked for, and how one is done. It is sent to other processes, so it can be pickled."""

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

    def ended(self, cell: Cell, declared: Declared) -> tuple[str, float] | None:
        """Tidy up after a cell is done; returns the name and value of its main score, if it has one."""
        return None

    def alone(self) -> str | None:
        """Reason why no other process can do it; None: any can."""
        return None


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The common input of all cells of a process."""

    work: Work
    declared: Declared
    device: str
    """The process's own: `cuda:1`, where several have a GPU each."""

    def do(self, cell: Cell, reports: Reports) -> None:
        """Do a cell, once no worker of a command that was killed holds it any more."""
        cells_on_disk.wait_until_free(cell.folder)
        cells_on_disk.wait_until_free(cell.run)
        self.work.do(cell, self.declared, device=self.device, reports=reports)


def run_experiment(
    work: Work,
    out: Path,
    *,
    device: str,
    parallel: int | None = None,
    shard: tuple[int, int] = (1, 1),
    quiet: bool = False,
) -> Summary:
    """Run what is not yet done, and sum up all that is there.

    Args:
        out: the experiment's folder: a new one, or one to resume or extend.
        device: where the cells are computed: cpu, cuda (all GPUs) or cuda:N; `facts` may have settled it.
        parallel: runs at once. Default: as many as the cores have room for, or one a GPU. One is done in this process,
            more in separate processes.
        shard: (i, N): of all cells every N-th, from the i-th on.

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
        cells = shard_of(asked.cells(out), shard)
        device = declared.facts.get("device", device)
        engine = _Engine(work, declared, cells, device=device, parallel=parallel, request=request)
        try:
            engine.run(quiet=quiet)
        finally:
            request.at_once = False
            if sys.exc_info()[0] is None or isinstance(sys.exc_info()[1], ElectraError | KeyboardInterrupt):
                summary = write_summary(out)
    return summary


def shard_of(cells: Sequence[Cell], shard: tuple[int, int]) -> list[Cell]:
    """(i, N): every N-th cell, from the i-th on, counted from 1."""
    return list(cells[shard[0] - 1 :: shard[1]])


SECONDS_BETWEEN_LINES = 60.0
"""Seconds between lines on what is being worked on; a finished cell has its own line."""


class Board:
    """Lines on what is done, what is being worked on and the time left.

    Args:
        work: cell -> how much there is to do, in any unit; all of the experiment's cells.
        done: those that are done already.
    """

    def __init__(self, work: Mapping[Cell, float], *, done: set[Cell], quiet: bool = False) -> None:
        self.console = Terminal(file=sys.stderr, quiet=quiet, highlight=False)
        self._work, self._done, self._already = dict(work), set(done), set(done)
        self._shares: dict[Cell, float] = {}
        self._base: dict[Cell, float] = {}
        """The share of a cell that an earlier command had done."""
        self._since: dict[Cell, float] = {}
        self._began = self._last_line = time.monotonic()

    def say(self, line: str, *, style: str | None = None) -> None:
        """Print a line, or log it where `logging` is configured."""
        if self.console.quiet or logs(line):
            return
        self.console.print(escape(line), style=style, soft_wrap=True)

    def begin(self, cell: Cell) -> None:
        """A cell is being worked on."""
        self._shares[cell], self._since[cell] = 0.0, time.monotonic()

    def progress(self, cell: Cell, share: float) -> None:
        """How much of a cell is done; the first share reported was done by an earlier command."""
        self._base.setdefault(cell, share)
        self._shares[cell] = share
        self.idle()

    def done(self, cell: Cell, *, score: tuple[str, float] | None) -> None:
        """A cell is done, with the name and value of its main score if it has one."""
        self._shares.pop(cell, None)
        self._done.add(cell)
        words = "done" if score is None else f"{score[0]} {number(score[1])}"
        took = time.monotonic() - self._since.pop(cell, time.monotonic())
        left = f"; {self._time_left()}" if len(self._done) < len(self._work) else ""
        self.say(f"{self._count()} {cell}: {words}, {duration(took)}{left}")

    def idle(self) -> None:
        """Print a line a minute."""
        if time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            running = "; ".join(f"{cell} {100 * share:.0f} %" for cell, share in self._shares.items()) or "waiting"
            self.say(f"{self._count()} {running}; {self._time_left()}")

    def _count(self) -> str:
        return f"[{len(self._done)}/{len(self._work)}]"

    def _time_left(self) -> str:
        """Time left, at the speed of this command so far."""
        now = {**dict.fromkeys(self._done - self._already, 1.0), **self._shares}
        finished = sum((share - self._base.get(cell, 0.0)) * self._work.get(cell, 0.0) for cell, share in now.items())
        left = sum(units * (1 - now.get(cell, 0.0)) for cell, units in self._work.items() if cell not in self._already)
        if finished <= 0:
            return "time left not known yet"
        return f"about {duration(left * (time.monotonic() - self._began) / finished)} left"


class _Engine:
    def __init__(
        self, work: Work, declared: Declared, cells: list[Cell], *, device: str, parallel: int | None,
        request: StopRequest,
    ) -> None:  # fmt: skip
        self._work, self._declared, self._cells, self._request = work, declared, cells, request
        self._device, self._parallel, self._alone = device, parallel, work.alone()

    def run(self, *, quiet: bool) -> None:
        """Do what is not done, until everything is."""
        todo = self._work.todo(self._cells, self._declared)
        units = {cell: self._work.units(cell, self._declared) for cell in self._cells}
        board = Board(units, done={cell for cell in units if cell not in todo}, quiet=quiet)
        if self._alone and self._devices(len(todo), alone=False)[1:]:
            board.say(self._alone)
        while todo:
            self._do(todo, self._devices(len(todo)), board)
            todo = self._work.todo(self._cells, self._declared)

    def _do(self, todo: Sequence[Cell], devices: Sequence[str], board: Board) -> None:
        heard, request = partial(self._heard, board), self._request
        setups = [Setup(work=self._work, declared=self._declared, device=device) for device in devices]
        before = torch.get_num_threads()
        if len(setups) > 1:
            request.at_once = False
            threads = self._threads or max(1, cores() // len(setups))
            do_in_workers(todo, setups=setups, threads=threads, heard=heard, idle=board.idle, stop=lambda: request.name)
            return
        set_threads(self._threads or before)
        try:
            for cell in todo:
                self._do_here(cell, setups[0], heard)
        finally:
            set_threads(before)

    def _do_here(self, cell: Cell, setup: Setup, heard: Callable[[Cell, Event | None], None]) -> None:
        """In this process. A signal ends it at once wherever a run has nothing to save."""
        request = self._request
        if request.name:
            raise Interrupted(f"{request.name}: all runs are saved. The same command resumes.")
        heard(cell, None)
        reports = Reports(
            send=partial(heard, cell), stop=lambda: request.name, saving=lambda on: setattr(request, "at_once", not on)
        )
        try:
            setup.do(cell, reports)
        except Interrupted:
            raise
        except ElectraError as error:
            raise type(error)(f"{cell}: {error}") from None
        heard(cell, Event(kind="done"))

    def _heard(self, board: Board, cell: Cell, event: Event | None) -> None:
        if event is None:
            board.begin(cell)
        elif event.kind == "progress":
            board.progress(cell, event.share)
        elif event.kind == "line":
            board.say(f"{cell}: {event.text}", style=event.style)
        elif event.kind == "done":
            board.done(cell, score=self._work.ended(cell, self._declared))

    @property
    def _threads(self) -> int | None:
        """Threads that each run computes with, where that is settled."""
        found: int | None = self._declared.facts.get("threads")
        return found or threads_given()

    def _devices(self, cells: int, *, alone: bool = True) -> list[str]:
        """The device of each run at a time."""
        gpus = torch.cuda.device_count() if self._device == "cuda" else 1
        on_cpu = torch.device(self._device).type == "cpu"
        room = max(1, cores() // (self._threads or 1)) if on_cpu else gpus
        if on_cpu and self._work.shares_cores and self._threads == 1 and room < cells < 2 * room:
            room = cells  # 3 runs on 2 cores end after 1.5 times a run's time, not 2
        count = 1 if self._alone and alone else max(1, min(cells, self._parallel or room))
        return [f"cuda:{index % gpus}" if gpus > 1 else self._device for index in range(count)]


_STOP = b"stop"
_ELSEWHERE = "Put its class into a module that can be imported, or do one run at a time: --parallel 1."
_LOOK = 0.2
"""Seconds between looks for a signal."""


def do_in_workers(
    todo: Sequence[Cell],
    *,
    setups: Sequence[Setup],
    threads: int,
    heard: Callable[[Cell, Event | None], None],
    idle: Callable[[], None],
    stop: Callable[[], str | None],
) -> None:
    """Do all cells, one worker for each setup; an error in one stops the others, saved, and is raised when they have
    ended.

    Args:
        threads: threads that each worker computes with.
        heard: called with each event of a cell; None: it begins.
        idle: called now and then.
        stop: names the signal that asks to stop, once there was one.

    Raises:
        Interrupted: all of them saved and stopped. ElectraError: of a worker, with its class and words, after the
            cell's name.
    """
    waiting, error, stopping = deque(todo), None, False
    with Pool(f"{__name__}:serve", count=len(setups), threads=threads) as pool:
        at_work: dict[object, tuple[Child, Cell]] = {}

        def employ(child: Child) -> None:
            at_work.pop(child.pipe, None)
            if waiting and not stopping:
                cell = waiting.popleft()
                at_work[child.pipe] = child, cell
                _send(child, cell)
                heard(cell, None)

        for child, setup in zip(pool.children, setups, strict=True):
            _send(child, (sys.path, threads))
            _send(child, setup)
            employ(child)
        while at_work:
            if not stopping and (stop() or error is not None):
                stopping = True
                for child, _ in at_work.values():
                    _send(child, None)
            idle()
            for pipe in wait([child.pipe for child, _ in at_work.values()], timeout=_LOOK):
                child, cell = at_work[pipe]
                event = _hear(child)
                heard(cell, event)
                if event.kind == "failed" and error is None and not (stopping and not event.error):
                    error = named(event.error)(f"{cell}: {event.text}")
                if event.kind == "done":
                    employ(child)
                elif event.kind in ("stopped", "failed"):
                    del at_work[pipe]
    if error is not None:
        raise error
    if stopping:
        raise Interrupted(f"{stop()}: all runs are saved. The same command resumes.")


def _send(child: Child, message: object) -> None:
    """Send a cell or a setup; None asks to save and stop. A child that has ended is noticed at the next event."""
    try:
        if message is None:
            child.pipe.send_bytes(_STOP)
        else:
            child.pipe.send(message)
    except OSError:
        return
    except Exception as error:  # pickle has many
        raise ConfigError(f"the tasks cannot be sent to another process ({error}). {_ELSEWHERE}") from None


def _hear(child: Child) -> Event:
    """Wait for the next event; a worker that is gone has failed."""
    try:
        event: Event = child.pipe.recv()
    except (EOFError, OSError):
        code = child.exit_status()
        why = "memory may have run out: do fewer at once with --parallel" if code == -9 else f"exit status {code}"
        return Event(kind="failed", text=f"its process died ({why}). The same command resumes.")
    return event


def serve(pipe: Connection) -> None:
    """The life of a worker."""
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stopped, saving = threading.Event(), threading.Event()

    def listen() -> None:
        while True:
            try:
                message = pipe.recv_bytes()
            except (EOFError, OSError):
                os._exit(1)  # the parent is gone
            if message != _STOP:
                inbox.put(message)
                continue
            stopped.set()
            if not saving.is_set():
                os._exit(0)
            while saving.is_set():  # fine-tuning looks at `stopped`, pre-training waits for a signal
                if StopRequest.current is not None and StopRequest.current.name is None:
                    os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(_LOOK)

    signal.signal(
        signal.SIGXCPU, lambda *_: stopped.set()
    )  # its own limit of computing time: another process continues
    threading.Thread(target=listen, daemon=True).start()
    try:
        _work(pipe, inbox, stopped=stopped, saving=saving)
    except BrokenPipeError:
        os._exit(1)


def _work(
    pipe: Connection, inbox: "queue.SimpleQueue[bytes]", *, stopped: threading.Event, saving: threading.Event
) -> None:
    """Do cells until one fails or is stopped, or the parent has no more and ends the process."""
    sys.path[:], threads = ForkingPickler.loads(inbox.get())
    set_threads(threads)
    reports = Reports(
        send=pipe.send,
        stop=lambda: "stop" if stopped.is_set() else None,
        saving=lambda on: saving.set() if on else saving.clear(),
    )
    try:
        try:
            setup: Setup = ForkingPickler.loads(inbox.get())
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"a worker cannot import the task ({error}). {_ELSEWHERE}") from None
        while True:
            setup.do(ForkingPickler.loads(inbox.get()), reports)
            pipe.send(Event(kind="done"))
    except Interrupted:
        pipe.send(Event(kind="stopped"))
    except ElectraError as error:
        pipe.send(Event(kind="failed", error=type(error).__name__, text=str(error)))
    except BrokenPipeError:
        raise
    except Exception as error:
        traceback.print_exc()
        pipe.send(Event(kind="failed", text=f"{type(error).__name__}: {error}. The lines above say where."))


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
