"""Every signal that asks to stop, at any moment: out within seconds with code 75, and the run ends as if nothing had been."""

import json
import os
import pty
import random
import resource
import signal
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest
from tests.prepared import small_config
from tests.reliability.figures import LAYERS, LONG, report
from tests.reliability.moments import MOMENTS as MOMENTS_OF_A_RUN
from tests.reliability.moments import just_before
from tests.reliability.ranks import run_ranks, start_ranks, wait_for, wait_until
from tests.reliability.runs import curve, digest, lost
from tests.reliability.whole_runs import differences
from torch.optim.optimizer import register_optimizer_step_post_hook

from electra_trainer.errors import ElectraError, Interrupted
from electra_trainer.experiments import engine as cell_workers
from electra_trainer.files import processes
from electra_trainer.runs.checkpoint import numbered
from electra_trainer.runs.launcher import tuned
from electra_trainer.runs.signals import STOP, StopRequest, signals_held
from electra_trainer.settings.records import to_dict
from electra_trainer.train.loop import pretrain

MOMENTS = 40 if LONG else 6
LIMIT = 10.0
"""Seconds from the signal to the end of the process."""
AT = ("data", "step", "evaluation", "saving", "start-up")
"""The work of a run a moment before the signal; earlier ones are those of test_before_it_begins."""
LATER = 0.05
"""The most seconds between the two: a few steps."""


def run(data: Path, out: Path) -> None:
    pretrain(small_config(layers=LAYERS), data, out=out, device="cpu", quiet=True)


@pytest.mark.slow
def test_at_any_moment(data: Path, tmp_path: Path) -> None:
    """A little after one of the run's own calls, which is counted: the run has as much left on a busy machine as on a quiet one."""
    assert run_ranks(1, lambda _: run(data, tmp_path / "whole")) == [0]
    chance, times, codes, identical = random.Random(1), [], [], 0
    for at in range(MOMENTS):
        out = tmp_path / f"run-{at}"
        (process,) = start_ranks(1, lambda _, at=at, out=out: reaching(AT[at % len(AT)], chance.random(), out, data))
        wait_until(out.with_suffix(".reached").exists)
        out.with_suffix(".reached").unlink()
        time.sleep(chance.random() * LATER)
        told = time.monotonic()
        os.kill(process, STOP[at % len(STOP)])
        (code,) = wait_for([process])
        times.append(time.monotonic() - told)
        codes.append(code)
        assert run_ranks(1, lambda _, out=out: run(data, out)) == [0]
        identical += not differences(out, tmp_path / "whole")
    control = [unanswered(data, tmp_path / f"control-{number}", number) for number in (3, 9)]
    report(
        "signals",
        moments=MOMENTS,
        stopped=codes.count(75),
        identical=identical,
        p50_s=sorted(times)[MOMENTS // 2],
        p100_s=max(times),
        control_moments=len(control),
        control_saved=sum(steps == 0 for steps in control),
    )
    assert set(codes) <= {0, 75} and codes.count(75) >= MOMENTS // 3
    assert identical == MOMENTS and max(times) < LIMIT
    assert min(control) > 0


def reaching(moment: str, share: float, out: Path, data: Path) -> None:
    """A run that waits at the first call of a moment, or a later one up to the middle of the run, until the parent has seen it there."""
    mark = out.with_suffix(".reached")

    def wait() -> None:
        mark.touch()
        while mark.exists():
            time.sleep(0.001)

    just_before(moment, 1 + int(share * MOMENTS_OF_A_RUN[moment][2] / 2), wait)
    run(data, out)


def unanswered(data: Path, out: Path, steps: int) -> int:
    """The control: a program that does not listen gets the signal after that many steps; steps that are lost."""

    def work(_: int) -> None:
        StopRequest.__enter__ = lambda self: self
        just_before("data", steps + 1, lambda: os.kill(os.getpid(), signal.SIGTERM))
        run(data, out)

    assert run_ranks(1, work) == [-signal.SIGTERM]
    return lost(out)


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


def command(data: Path, out: Path, config: Path) -> "subprocess.Popen[str]":
    words = [
        sys.executable,
        "-m",
        "electra_trainer",
        "pretrain",
        str(data),
        "--config",
        str(config),
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


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
    config = tmp_path / "config.json"
    config.write_text(json.dumps(to_dict(small_config(steps=2000))))
    process = command(data, tmp_path / "run", config)
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


def test_a_long_evaluation_is_given_up_and_done_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the evaluation after step 6: saved at step 6 without its row; the next session begins with it."""
    from electra_trainer.train import loop

    run(data, tmp_path / "whole")
    real = loop.evaluate

    def slow(*arguments: object, **more: object) -> object:
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("the signal was to end the evaluation")

    monkeypatch.setattr(loop, "evaluate", slow)
    with pytest.raises(Interrupted, match="saved at step 6 of 12"):
        run(data, tmp_path / "run")
    assert numbered(tmp_path / "run" / "checkpoints")[-1][0] == 6
    assert not any(row.get("split") for row in curve(tmp_path / "run"))
    monkeypatch.setattr(loop, "evaluate", real)
    run(data, tmp_path / "run")
    assert curve(tmp_path / "run") == curve(tmp_path / "whole")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")


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


def test_a_signal_while_weights_move_waits_for_the_step(data: Path, tmp_path: Path) -> None:
    """Weights that have moved in a step that was given up would be those of no step; no checkpoint of step 6 replaces them."""
    run(data, tmp_path / "whole")
    count = iter(range(1, 100))
    hook = register_optimizer_step_post_hook(lambda *_: next(count) == 7 and signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(Interrupted) as caught:
            run(data, tmp_path / "run")
    finally:
        hook.remove()
    run(data, tmp_path / "run")
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
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
        cell_workers.serve(processes.connect(theirs.fileno()))

    (process,) = start_ranks(1, work)
    theirs.close()
    ours.close()
    assert wait_for([process]) == [1]  # as it ends when its parent is gone
