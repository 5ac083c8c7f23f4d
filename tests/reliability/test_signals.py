"""Every signal that asks to stop, to a process, a rank, torchrun or the supervisor, at any moment: saved, out in seconds with code 75, and
the run ends as if nothing had been. Under torchrun in the long form alone.
"""

import ctypes
import dataclasses
import json
import os
import pickle
import pty
import random
import resource
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from unittest import mock

import pytest
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.forking import UNTUNED
from tests.reliability.moments import MOMENTS, TOLD, Signalled, just_before, signal_at
from tests.reliability.rank_program import DEAF, OURS, TORCHRUN, launch
from tests.reliability.ranks import run_ranks, start_ranks, wait_for, wait_until
from tests.reliability.runs import curve, digest, lost
from tests.reliability.whole_runs import differences, words
from torch.optim.optimizer import register_optimizer_step_post_hook

from electra_trainer.errors import ElectraError, Interrupted
from electra_trainer.experiments import engine as cell_workers
from electra_trainer.files import processes
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.launcher import tuned
from electra_trainer.runs.progress import Status
from electra_trainer.runs.restarts import supervise
from electra_trainer.runs.signals import (
    FORWARDS,
    STARTED_BY,
    STOP,
    StopRequest,
    end_by_itself,
    leave_when_told,
    signals_held,
    stop_with_parent,
)  # fmt: skip
from electra_trainer.train import loop
from electra_trainer.train.loop import pretrain

CONFIG = dataclasses.replace(small_config(layers=LAYERS), deterministic=True)  # so that one process may resume, quickly
LIMIT = 10.0
"""Seconds from the signal to the end of all."""
LATER = 0.05
"""The most seconds from a moment of one process to the signal: a few steps."""
WORLDS = {
    "signals": (1, 40 if LONG else 6, ("data", "step", "evaluation", "saving", "start-up"), ("rank 0",)),
    "signals_two_ranks": (2, 35 if LONG else 7, tuple(MOMENTS), ("rank 0", "rank 1", "both", "rank 1")),
}
"""Processes, signals, and the moments and targets of each in turn."""


def run(data: Path, out: Path) -> None:
    pretrain(CONFIG, data, out=out, device="cpu", quiet=True)


def trained(data: Path, out: Path) -> int:
    try:
        with Status(out) as status:
            pretrain(CONFIG, data, out=out, device="cpu", quiet=True, status=status)
    except ElectraError as error:
        return error.exit_code
    return 0


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signals") / "whole"
    assert run_ranks(1, lambda _: trained(data, out)) == [0]
    return out


class Results:
    """Results of many signals."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.stopped = self.saved = self.identical = 0

    def add(self, told: Signalled, notes: Path, codes: list[int], data: Path, whole: Path) -> None:
        self.times.append(time.time() - (notes / TOLD).stat().st_mtime)
        run = notes / "run"
        state = json.loads((run / "status.json").read_text()) if (run / "status.json").exists() else None
        ended = {(75, "stopped"), (0, "done")} if state else set()
        assert not state or (state["exit_code"], state["state"]) in ended, (told, codes, state)
        assert state or told.moment in ("joining", "start-up"), (told, codes)
        self.stopped += not state or state["exit_code"] == 75
        self.saved += lost(run) == 0
        assert run_ranks(1, lambda _: trained(data, run)) == [0]
        self.identical += not differences(run, whole)
        assert self.saved == self.identical == len(self.times), told

    def report(self, test: str, **more: object) -> None:
        n = len(self.times)
        times = {"p50_s": sorted(self.times)[n // 2], "p100_s": max(self.times)}
        report(test, moments=n, stopped=self.stopped, saved=self.saved, identical=self.identical, **times, **more)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_at_any_moment(name: str, data: Path, whole: Path, tmp_path: Path) -> None:
    """At a call of the run, which is counted, so that it has as much left on a busy machine; of one process a little later."""
    size, signals, moments, targets = WORLDS[name]
    chance, found = random.Random(3), Results()
    for at in range(signals):
        told, notes = Signalled.drawn(at, chance, targets, moments), tmp_path / str(at)
        notes.mkdir()

        def work(_: int, told: Signalled = told, notes: Path = notes) -> int:
            leave_when_told()
            signal_at(told, notes, later=chance.random() * LATER if size == 1 else 0)
            return trained(data, notes / "run")

        codes = wait_for(start_ranks(size, work))
        assert set(codes) in ({0}, {75}) or told.moment == "end", (told, codes)
        found.add(told, notes, codes, data, whole)
    assert found.stopped >= signals // 3 and max(found.times) < LIMIT
    control = [unanswered(size, nth, data, tmp_path / f"control-{nth}") for nth in ((3, 7) if LONG else (7,))]
    assert min(control) > 0
    found.report(name, control_moments=len(control), control_saved=sum(steps == 0 for steps in control))


def unanswered(size: int, nth: int, data: Path, notes: Path) -> int:
    """The control: a program that does not listen; steps that are lost."""
    notes.mkdir()

    def work(_: int) -> int:
        StopRequest.__enter__ = lambda self: self
        signal_at(Signalled("data", nth, signal.SIGTERM, "rank 0"), notes)
        return trained(data, notes / "run")

    assert wait_for(start_ranks(size, work))[0] == -signal.SIGTERM
    return lost(notes / "run")


def test_a_rank_that_comes_late_hears_of_the_signal(data: Path, tmp_path: Path) -> None:
    """Rank 0 hosts the store and gets the signal while it waits for rank 1, which is connected and about to come."""

    def work(rank: int) -> int:
        leave_when_told()
        signal_at(Signalled("joining", 1, signal.SIGTERM, "rank 0"), tmp_path)
        if rank == 1:
            just_before("joining", 1, lambda: time.sleep(1))
        return trained(data, tmp_path / "run")

    assert wait_for(start_ranks(2, work)) == [75, 75]


def test_a_terminal_that_closes_or_a_limit_of_computing_time(data: Path, tmp_path: Path) -> None:
    """The kernel sends the signals: SIGHUP to what runs in the terminal, which nothing can be printed on any more, and SIGXCPU."""

    def work(out: Path) -> None:
        try:
            pretrain(small_config(steps=5000, layers=LAYERS), data, out=out, device="cpu")
        except ElectraError as error:
            os._exit(error.exit_code)
        os._exit(70)

    def limited(_: int) -> None:
        spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        resource.setrlimit(resource.RLIMIT_CPU, (spent + 5, spent + 60))
        work(tmp_path / "limited")

    process, terminal = pty.fork()
    if not process:
        work(tmp_path / "closed")
    wait_until((tmp_path / "closed" / "metrics.jsonl").exists)
    os.close(terminal)
    assert wait_for([process, *start_ranks(1, limited)]) == [75, 75]
    for name in ("closed", "limited"):
        assert numbered(tmp_path / name / "checkpoints")[-1][0] > 0 and lost(tmp_path / name) == 0


def test_nohup_keeps_a_run_from_hearing_that_the_terminal_closes() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest(at_once=True, quiet=True) as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.name is None
    finally:
        signal.signal(signal.SIGHUP, before)


def listens(process: "subprocess.Popen[str]") -> bool:
    """Whether it has a handler for SIGTERM, by the kernel's mask of caught signals."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [-1, 0.0, 0.4] + [1.2] * LONG)
def test_before_it_begins(data: Path, tmp_path: Path, delay: float) -> None:
    """While Python and PyTorch are being loaded nothing is there to be saved: it leaves at once, with the same code.

    `delay` counts from when the process listens, which it does before it loads PyTorch; before that the system ends it.
    """
    command = [sys.executable, "-m", "electra_trainer", *words(small_config(steps=2000), data, tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(0.15)
    while delay >= 0 and not listens(process):
        assert process.poll() is None and "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()
        time.sleep(0.005)
    time.sleep(max(delay, 0))
    told = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - told < LIMIT
    assert process.returncode == 75 or (delay < 0 and process.returncode == -signal.SIGTERM), said
    assert "Traceback" not in said


def test_a_long_evaluation_is_given_up_and_done_again(data: Path, whole: Path, tmp_path: Path) -> None:
    """A signal in the evaluation after step 6: saved at step 6 without its row; the next session begins with it."""

    def slow(*_: object, **__: object) -> object:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal was to end the evaluation")

    out = tmp_path / "run"
    with mock.patch.object(loop, "evaluate", slow), pytest.raises(Interrupted, match="saved at step 6 of 12"):
        run(data, out)
    assert numbered(out / "checkpoints")[-1][0] == 6 and not any(row.get("split") for row in curve(out))
    run(data, out)
    assert curve(out) == curve(whole) and digest(out) == digest(whole)


@pytest.mark.parametrize("quiet", [False, True])
def test_the_line_on_a_signal(quiet: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """The first has one, the second none."""
    before, said = signal.getsignal(signal.SIGTERM), []
    with StopRequest(quiet=quiet) as stop:
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.raise_signal(number)
            said.append(capfd.readouterr().err)
    assert stop.name == "SIGTERM" and not stop.raised and signal.getsignal(signal.SIGTERM) is before
    assert said == ["" if quiet else "\nelectra: saving at the end of this step, then stopping\n", ""]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems cannot ask for it")
@pytest.mark.parametrize(
    ("names", "number"),
    [({}, 0), ({STARTED_BY: "me"}, 0), ({STARTED_BY: "1"}, 15), ({"TORCHELASTIC_RUN_ID": "none"}, 15)],
    ids=str,
)
def test_the_signal_that_the_end_of_the_parent_sends(
    names: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (STARTED_BY, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)

    def asked(_: int) -> int:
        stop_with_parent()
        found = ctypes.c_int(-1)
        ctypes.CDLL(None).prctl(2, ctypes.byref(found), 0, 0, 0)  # PR_GET_PDEATHSIG
        return found.value

    assert run_ranks(1, asked) == [number]


def test_a_process_that_ends_by_itself_keeps_its_own_code() -> None:
    def ends(_: int) -> int:
        leave_when_told()
        end_by_itself()
        signal.raise_signal(signal.SIGTERM)
        return 3

    assert run_ranks(1, ends) == [3]


def test_signals_wait_only_while_the_process_is_replaced() -> None:
    """A signal that waits in the program that takes over must not stay waiting in this one, should that not start."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with pytest.raises(OSError), signals_held():
        assert set(STOP) <= signal.pthread_sigmask(signal.SIG_BLOCK, ())
        raise OSError
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


TOLD_AT_ONCE = """
import os, signal, sys
if "GLIBC_TUNABLES" in os.environ:  # the program that took over, before it can hear
    number = signal.Signals[os.environ["SIGNAL"]]
    signal.signal(number, signal.SIG_DFL)  # whatever a shell left of it
    os.kill(os.getpid(), number)
from electra_trainer.__main__ import main
sys.exit(main())
"""


@pytest.mark.skipif("GLIBC_TUNABLES" not in tuned(), reason="the process is replaced only where glibc can be tuned")
def test_a_signal_while_the_process_is_replaced_waits() -> None:
    """Each signal takes a process here, so the short form has one; the test before this one has them all."""
    for number in STOP if LONG else (signal.SIGTERM,):
        environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        done = subprocess.run(
            [sys.executable, "-c", TOLD_AT_ONCE, "pretrain", "nowhere"],
            env={**environment, "SIGNAL": number.name}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 75, done.stderr
        assert done.stderr == f"electra: {number.name}: stopped before it began. The same command begins.\n"


def test_a_signal_while_weights_move_waits_for_the_step(data: Path, whole: Path, tmp_path: Path) -> None:
    """Weights that have moved in a step that was given up would be those of no step; no checkpoint of step 6 replaces them."""
    count = iter(range(1, 100))
    hook = register_optimizer_step_post_hook(lambda *_: next(count) == 7 and signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(Interrupted) as caught:
            run(data, tmp_path / "run")
    finally:
        hook.remove()
    run(data, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(whole)
    assert "saved at step 7 of 12" in str(caught.value)


def test_a_worker_does_not_hear_a_signal_to_all() -> None:
    """A terminal and Slurm tell the whole group; the worker that trains continues until its parent says so, or is gone."""
    ours, theirs = Pipe()

    def work(_: int) -> None:
        ours.close()
        connect = processes.Connection

        def told_at_once(descriptor: int) -> object:
            for number in STOP:
                signal.raise_signal(number)
            return connect(descriptor)

        processes.Connection = told_at_once  # type: ignore[assignment,misc]
        cell_workers.serve_cells(processes.connect(theirs.fileno()))

    (process,) = start_ranks(1, work)
    theirs.close()
    ours.close()
    assert wait_for([process]) == [1]  # as it ends when its parent is gone


class Slow:
    """Takes a while to unpickle, as what imports does."""

    def __reduce__(self) -> tuple[object, ...]:
        return time.sleep, (0.5,)


@pytest.mark.parametrize("already_sent", [0, 2], ids=["waits", "is set up"])
def test_a_worker_that_is_stopped_while_it_starts_says_so_and_ends(already_sent: int) -> None:
    """The cell that was sent after the setup is not taken for the setup."""
    ours, theirs = Pipe()
    setup = pickle.dumps((sys.path, (), 1, pickle.dumps((Slow(), None))))
    for message in [*[setup, pickle.dumps(("cell", "cpu"))][:already_sent], processes.ASK_TO_STOP]:
        ours.send_bytes(message)

    def work(_: int) -> None:
        ours.close()
        cell_workers.serve_cells(processes.connect(theirs.fileno()))

    (process,) = start_ranks(1, work)
    theirs.close()
    assert ours.recv_bytes().startswith(b'-["Interrupted", "SIGTERM: stopped')
    with pytest.raises(EOFError):
        ours.recv_bytes()
    assert wait_for([process]) == [0]


def launched(told: Signalled, data: Path, notes: Path, *, deaf: bool = False) -> int:
    """Two ranks of torchrun, of a supervisor where that gets the signal; the code of what was started. Deaf: the program does not listen."""
    notes.mkdir()
    spec = DEAF * deaf + ";".join(map(str, (notes, told.moment, told.nth, int(told.number), told.target)))
    command = launch(spec, words(CONFIG, data, notes / "run"), by=OURS if told.target == "supervisor" else TORCHRUN)
    if told.target == "supervisor":

        def supervised(_: int) -> int:
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
                del os.environ[name]
            os.environ |= {**UNTUNED, "ELECTRA_TEST_SUPERVISOR": str(os.getpid())}
            return supervise(command, notes / "run", restarts=0)

        return wait_for(start_ranks(1, supervised))[0]
    environment = {**os.environ, **UNTUNED, **FORWARDS}
    return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=300).returncode


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a minute for each of 40 starts of torchrun: `make reliability`")
def test_under_torchrun(data: Path, whole: Path, tmp_path: Path) -> None:
    chance, found = random.Random(4), Results()
    for at in range(int(os.environ.get("ELECTRA_RELIABILITY_MOMENTS", "40"))):
        targets = ("launcher", "rank 0", "supervisor", "rank 1")
        told, notes = Signalled.drawn(at, chance, targets, tuple(MOMENTS)), tmp_path / str(at)
        code = launched(told, data, notes)
        allowed = (0, 75) if told.target == "supervisor" else (0, 1)  # torchrun hides it; status.json does not
        assert code in allowed, (told, code)
        found.add(told, notes, [code], data, whole)
    assert max(found.times) < LIMIT
    control = []
    for target in ("launcher", "rank 0"):
        notes = tmp_path / f"control-{target}"
        launched(Signalled("data", 7, signal.SIGTERM, target), data, notes, deaf=True)
        control.append(lost(notes / "run"))
    assert min(control) > 0
    found.report("signals_torchrun", control_moments=len(control), control_saved=sum(steps == 0 for steps in control))
