"""The training loop of pre-training and fine-tuning: resume, step, record, save on schedule and on a signal, give up
when it diverges.

What a step computes depends on weights, seed and step alone, so a run that was stopped anywhere ends with the bits of
one that was not.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from electra_trainer.errors import Diverged, Interrupted
from electra_trainer.ranks.world import any_rank, handed_out, led, world
from electra_trainer.runs import checkpoint, progress, run_folder, verified
from electra_trainer.runs.metrics import forget_after
from electra_trainer.settings.config import Optimizer
from electra_trainer.train.optim import Share, build_optimizer, load_optimizer_tensors
from electra_trainer.train.step import StepResult
from electra_trainer.train.weights import check_optimizer_tensors, restore, state_of, stored

BAD_STEPS_IN_A_ROW = 10
"""Steps in a row without a finite gradient after which a run ends: it would not recover."""
Network = TypeVar("Network", bound=nn.Module)


@dataclass(kw_only=True)
class Resumable(ABC, Generic[Network]):
    """A run that has begun in its folder. Call `resume`, then `train`; a subclass says what a step is and when to
    save.
    """

    network: Network
    """On the CPU until `resume`."""
    folder: run_folder.RunFolder
    device: torch.device
    precision: str
    settings: Optimizer
    steps: int
    log_every: int
    """Steps between rows of metrics.jsonl."""
    keep: int
    """Newest checkpoints that stay."""
    display: progress.Display
    share: Share | None = None
    """None: all of the learning rate for all."""
    trunk: frozenset[int] = frozenset()
    """Steps whose checkpoints stay as well."""
    step: int = 0
    bad_steps: int = 0
    """Steps in a row, up to this one, without a finite gradient."""
    seconds: float = 0.0
    """Seconds of training, earlier sessions included, up to `started`."""
    started: float | None = None
    """When this session's training began; None while none is in progress."""
    outcome: StepResult = field(init=False)
    """Result of the step that was computed last; see `turns`."""
    optimizer: torch.optim.Optimizer = field(init=False)
    saver: checkpoint.Saver | None = None
    """None on a process that does not write: rank 0 does."""

    keeps_checkpoints: ClassVar[bool]
    """True: checkpoints are the run's result, so it saves at step 0, at the end and when it diverges. False: they only
    let it resume.
    """
    remedy: ClassVar[str]
    """Flags to lower or change where it diverges."""

    def __post_init__(self) -> None:
        if world().leads:
            self.saver = checkpoint.Saver(folder=self.folder, keep=self.keep, say=self.warn, always=self.trunk)

    @abstractmethod
    def compute(self, *, logged: bool) -> StepResult:
        """Do step `self.step`, counted from 0; with its metrics if they are `logged`."""

    @abstractmethod
    def save_due(self) -> bool:
        """Whether to save after this step."""

    def begin(self) -> verified.Saved | None:
        """Called on rank 0 where there is no checkpoint; returns the state of another run to go on from, None to begin
        at step 0.
        """
        return None

    def before_steps(self, stop: Callable[[], str | None]) -> None:
        """Called once, before the first step of a session; `stop` as in `train`."""

    def after_step(self) -> None:
        """Called after each step, before it is saved."""

    def place_of(self) -> dict[str, Any]:
        """First fields of a row of metrics."""
        return {"step": self.step}

    def bad_step(self) -> tuple[str, str]:
        """Addition to the message of a step without a finite gradient, and to the one that ends the run after too
        many of them.
        """
        return "", f". Lower {self.remedy}."

    def elapsed(self) -> float:
        """Seconds of training, earlier sessions included."""
        return self.seconds + (time.monotonic() - self.started if self.started is not None else 0.0)

    def say(self, line: str, *, style: str | None = None) -> None:
        """Show a line, and log it."""
        self.display.say(line, style=style)
        if world().leads:
            self.folder.log(line.strip())

    def warn(self, line: str, *, style: str = "bold red") -> None:
        """Log a line that is also shown where only warnings are."""
        self.display.warn(line, style=style)
        if world().leads:
            self.folder.log(line.strip())

    def resume(self) -> None:
        """Restore the newest checkpoint, or begin; rank 0 reads, and sends the others what it has.

        Raises:
            CheckpointError, StorageError: the newest checkpoint cannot be used or read, or the disk has too little
                room; see errors.py.
        """
        moments: dict[str, Tensor] = {}  # on rank 0

        def restored() -> bytes:
            checkpoints, origin = self.folder.checkpoints, self.folder.origin
            found = checkpoint.load_newest(checkpoints, origin=origin, warn=self.warn, network=lambda: self.network)
            saved = found or self.begin()
            if saved is not None:
                restore(self.network, saved.weights)
                check_optimizer_tensors(self.network, saved.optimizer, self.settings)
                moments.update(saved.optimizer)
                self.step, self.seconds = saved.step, saved.state["seconds"]
                self.bad_steps = saved.state.get("bad_steps", 0)
            one = 12 * sum(parameter.numel() for parameter in self.network.parameters())  # weights and two moments
            if found is None:
                checkpoint.require_space(self.folder.path, one * (self.keep + 1 + len(self.trunk)))
            elif self.step < self.steps:
                checkpoint.require_space(self.folder.path, one * (2 + len(self.trunk)))
            forget_after(self.folder, self.step, self.warn)
            if found is not None:
                done = f"all {self.steps:,} steps are done already; a longer run needs another --out"
                self.say(done if self.step == self.steps else f"resuming at step {self.step:,} of {self.steps:,}")
            return json.dumps([found is not None, self.step, self.seconds, self.bad_steps]).encode()

        found, self.step, self.seconds, self.bad_steps = json.loads(led(restored))
        with torch.no_grad():
            mine = stored(self.network)
            for name, tensor in handed_out(mine):
                mine[name].copy_(tensor)
        self.network.to(self.device)
        self.optimizer = build_optimizer(self.network, self.settings, self.share, precision=self.precision)
        load_optimizer_tensors(self.network, self.optimizer, handed_out(moments))
        if self.keeps_checkpoints and not found:
            self.save(checkpoint.Saver.write)  # a bad disk is found before any work

    def train(self, stop: Callable[[], str | None]) -> None:
        """Do the remaining steps.

        Args:
            stop: names the signal that asks to stop, if there was one; asked once a step.

        Raises:
            Interrupted: stopped and saved. Diverged: the gradient was not finite for several steps. StorageError: see
                `Saver`.
        """
        for logged in self.turns(stop):
            self.outcome = self.compute(logged=logged)

    def turns(self, stop: Callable[[], str | None]) -> Iterator[bool]:
        """Yield for each remaining step whether it is logged. The caller computes the step and sets `outcome`, which is
        recorded, and saved where that is due, as the next turn is asked for. Arguments and errors as of `train`.
        """
        self.started = time.monotonic()
        tokens = 0
        self.network.train()
        self.before_steps(stop)
        since = time.monotonic()
        while self.step < self.steps:
            logged = (self.step + 1) % self.log_every == 0 or self.step + 1 == self.steps
            yield logged
            result = self.outcome
            self.step += 1
            tokens += result.tokens
            self._count(result)
            if logged and result.finite:
                self._record(result, tokens_per_second=tokens / max(time.monotonic() - since, 1e-9))
            self.after_step()
            name = stop()
            stopping, done = any_rank(name is not None), self.keeps_checkpoints and self.step == self.steps
            if stopping or done:
                self.save(checkpoint.Saver.finish)
            elif self.save_due():
                self.save(checkpoint.Saver.begin)
            elif logged or world().size == 1:
                led(self._check_saves)
            if stopping and not done:
                raise self.interrupted(name)
            if logged:
                tokens, since = 0, time.monotonic()
        self.seconds, self.started = self.elapsed(), None

    def interrupted(self, name: str | None) -> Interrupted:
        """Error of a run that was stopped and saved; `name` of the signal, None where another rank got it."""
        reported = f"{name or 'another process was told to stop'}: saved at step {self.step:,} of {self.steps:,}."
        stopped = Interrupted(f"{reported} The same command continues from there.")
        stopped.reported, stopped.agreed = not world().leads, True
        return stopped

    def save(self, how: Callable[[checkpoint.Saver, verified.Saved], None]) -> None:
        """Save on rank 0 what all ranks have; its error is raised on every rank."""
        saved = state_of(self.network, self.optimizer, step=self.step, seconds=self.elapsed(), bad_steps=self.bad_steps)

        def written() -> bytes:
            assert self.saver is not None
            tensors = {**saved.weights, **saved.optimizer}
            bad = next((name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())), None)
            if bad is not None:
                kept = checkpoint.numbered(self.folder.checkpoints)
                raise Diverged(
                    f"after step {self.step} {bad} holds NaN or infinite values, so nothing was saved. The same "
                    f"command continues from the checkpoint of step {kept[-1][0] if kept else 0}; if it ends here "
                    f"again, start in another --out with a lower {self.remedy}, and if not, check the machine's memory."
                )
            how(self.saver, saved)
            return b""

        led(written)

    def _check_saves(self) -> bytes:
        assert self.saver is not None
        self.saver.check()
        return b""

    def _count(self, result: StepResult) -> None:
        """Count steps without a finite gradient; they moved nothing. Too many in a row end the run."""
        if result.finite:
            self.bad_steps = 0
            return
        self.bad_steps += 1
        why, ending = self.bad_step()
        self.warn(f"step {self.step}: the gradient is not a finite number; the step was skipped{why}", style="yellow")
        if self.bad_steps >= BAD_STEPS_IN_A_ROW:
            if self.keeps_checkpoints:
                self.save(checkpoint.Saver.finish)
            many = f"{self.bad_steps} steps, up to step {self.step}"
            raise Diverged(f"the gradient was not a finite number for {many}{ending}")

    def _record(self, result: StepResult, *, tokens_per_second: float) -> None:
        if self.saver is not None:
            rates = {"learning_rate": result.learning_rate, "gradient_norm": result.gradient_norm}
            speed = {"tokens_per_second": round(tokens_per_second, 1)}
            self.folder.append(run_folder.METRICS, {**self.place_of(), **result.metrics, **rates, **speed})
        last = self.step == self.steps
        self.display.step(self.step, result.metrics, tokens_per_second=tokens_per_second, last=last)
