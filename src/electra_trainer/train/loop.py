"""Pre-training, top to bottom: `pretrain` settles (begin/settle.py) and restores a run, and `Pretraining` says what its
steps do (resumable.py loops).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from electra_trainer.cost.flops import run_cost
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import Interrupted
from electra_trainer.objectives import Objective, build
from electra_trainer.ranks.world import check_tree, joined, led, local_device, patiently, world
from electra_trainer.runs import checkpoint, progress, run_folder, signals
from electra_trainer.runs.metrics import curves
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.config import Config
from electra_trainer.train import health, optim, plan, resumable, step
from electra_trainer.train.begin.continued import Continued, ContinueFrom
from electra_trainer.train.begin.initial import Initial, ReadsInitial, begin_with, told_of
from electra_trainer.train.begin.settle import settle
from electra_trainer.train.begin.word_start import begin_words
from electra_trainer.train.device import arithmetic, choose_device, choose_precision, describe, use_threads
from electra_trainer.train.fast_step import FastStep, in_words
from electra_trainer.train.step import Feed, StepResult, evaluate
from electra_trainer.train.weights import give_frequencies


def pretrain(
    config: Config,
    data: Path,
    *,
    out: Path,
    length: plan.Length | None = None,
    init: ReadsInitial | ContinueFrom | None = None,
    device: str = "auto",
    quiet: bool = False,
    status: progress.Status | None = None,
    pause: Callable[["Pretraining"], bool] | None = None,
) -> Path:
    """Pre-train on prepared data, or resume the run in `out`; returns `out`.

    Args:
        config: the run; vocabulary and row length are taken from the data.
        data: a folder that `prepare` made.
        out: the run folder.
        length: steps, time or FLOPs; None keeps the config's steps. Ignored on resume, where it is settled already.
        init: where to read trained weights to begin with, or the run to continue; not read on resume. None: fresh
            weights.
        device: auto, cpu, cuda, cuda:N or mps.
        status: where to report that the run began and how it ended.
        pause: asked after each step whether to save and stop there.

    Raises:
        ConfigError, DataError, StorageError, CheckpointError: see errors.py.
        Interrupted: a signal of `STOP`, or a pause; the run is saved, the same call resumes it.
        Diverged: the gradient was not finite for several steps; the last good state is saved.
    """
    threads = use_threads()
    folder = run_folder.RunFolder(out)
    last_words = status.failed if status else lambda _: None
    with (
        ExitStack() as last,
        closing(folder),
        signals.StopRequest(at_once=True) as stop,
        joined(lambda: local_device(choose_device(device)), last_words=last_words) as (here, where),
    ):
        store = patiently(lambda: open_rows(data))
        display = progress.Display(quiet=quiet, silent=not here.leads)
        given: dict[str, Any] = {"length": length or plan.Length(), "init": init, "status": status}
        run = resumed(config, folder, store, device=where, stop=stop, display=display, **given)
        config = run.config
        last.enter_context(run.fast)  # its memory is freed when the ranks have parted
        on = f"{describe(where) or where.type} {arithmetic(run.precision, where)}"
        run.display.say(
            f"{config.preset}: {parameters(config).joint:,} parameters, {config.schedule.steps:,} steps, {on}, "
            f"{here.described(threads)} -> {folder.path}"
        )
        with run.display, run.saver or nullcontext():
            run.train(lambda: stop.name or ("paused" if pause and pause(run) else None))
        if status:
            status.message = "; ".join(health.alarms_in(folder))
    return out


def resumed(
    config: Config,
    folder: run_folder.RunFolder,
    store: Store,
    *,
    device: torch.device,
    stop: signals.StopRequest,
    display: progress.Display,
    stacked: bool = False,
    **given: Any,
) -> "Pretraining":
    """Begin a run in its folder, or resume it: its newest weights, before the next step; errors as of `pretrain`.

    Args:
        stacked: PyTorch computes it together with others, without native kernels (stacked.py).
        given: length, init and status.
    """
    precision = choose_precision(config.precision, device)
    computed = precision if stacked else arithmetic(precision, device)
    config, initial = settle(config, folder, store, device=device, computed=computed, say=display.say, **given)
    if config.deterministic:
        check_tree(config.batch.lanes)
    display.total = config.schedule.steps
    objective = build(config)
    give_frequencies(objective, store)
    run = Pretraining(
        network=objective,
        folder=folder,
        device=device,
        precision=precision,
        settings=config.optimizer,
        steps=config.schedule.steps,
        log_every=config.log_every,
        keep=config.checkpoint.keep,
        trunk=optim.flat_ends(config),
        display=display,
        feed=Feed.of(config, store, device=device, precision=precision),
        store=store,
        initial=initial,
        stop=stop,
    )
    run.resume()
    return run


@dataclass(kw_only=True)
class Pretraining(resumable.Resumable[Objective]):
    """A pre-training run: `network` holds all networks of the objective."""

    feed: Feed
    store: Store
    initial: Initial | Continued | None
    """On rank 0 the weights to begin with, or the state to go on from; None for fresh weights."""
    stop: signals.StopRequest
    phases: optim.Phases = field(init=False)
    made_of: dict[str, Any] | None = None
    """Parts of the steps that were reported last."""

    keeps_checkpoints = True
    remedy = f"{health.RATES} or --precision fp32"

    @property
    def config(self) -> Config:
        """Schedule of the run."""
        return self.feed.config

    def begin(self) -> Saved | None:
        """See `Resumable`. Raises CheckpointError if rows say that the run had a checkpoint."""
        self.folder.require_unsaved()
        if isinstance(self.initial, Continued):
            self.say(self.initial.facts(self.config))
            return self.initial.saved
        if self.initial is not None:
            self.say(told_of(self.initial, begin_with(self.network, self.initial), self.network))
        if mixed := begin_words(self.network, self.folder):
            self.say(mixed)
        return None

    def before_steps(self, stop: Callable[[], str | None]) -> None:
        """Evaluate where the run was stopped in an evaluation."""
        self.phases = optim.Phases(self.config, self.network)
        with self._given_up_on_a_signal():
            if not led(self._evaluated) and self._due():
                self._evaluate()

    def compute(self, *, logged: bool) -> StepResult:
        """See `Resumable`."""
        with self._given_up_on_a_signal():
            return self.fast.step(self.phases.at(self.step), self.step, diagnose=logged)

    def after_step(self) -> None:
        """Say what the first step was made of, on a GPU; evaluate on held-out rows where that is due."""
        made_of = self.fast.made_of
        if made_of is not None and made_of is not self.made_of:
            self.say(in_words(made_of))
            if world().leads:
                self.folder.note(computed_by=made_of)
        self.made_of = made_of
        if self._due():
            with self._given_up_on_a_signal():
                self._evaluate()

    def save_due(self) -> bool:
        """Every `checkpoint.every` steps, and where the rate of `wsd` begins to fall."""
        return self.step % self.config.checkpoint.every == 0 or self.step in self.trunk

    @cached_property
    def fast(self) -> FastStep:
        """Computes the steps; asked for after `resume`."""
        return FastStep(self.optimizer, self.feed)

    def place_of(self) -> dict[str, Any]:
        """Steps, tokens, FLOPs by both countings, seconds; those of the run that it continues included."""
        cost = run_cost(self.config, steps=self.step, began=self.folder.continued)
        return {"step": self.step, **cost, "seconds": round(self.elapsed(), 3)}

    def bad_step(self) -> tuple[str, str]:
        """Name the command that shows its rows."""
        shown = f"Its rows are shown by `electra replay {self.folder.path} --step {self.step}`."
        return (
            f". {shown}",
            f"; the weights from before are saved. {shown} Start again in another --out with a lower {self.remedy}.",
        )

    @contextmanager
    def _given_up_on_a_signal(self) -> Iterator[None]:
        """Work that can be done again: a signal ends it at once, and the state from before it is saved. Several ranks
        finish it instead.
        """
        stop = self.stop
        stop.at_once = world().size == 1
        try:
            if stop.at_once and stop.name:  # it came between two pieces of work
                raise Interrupted
            yield
        except Interrupted:
            stop.at_once = False
            self.optimizer.zero_grad()
            self.save(checkpoint.Saver.finish)
            raise self.interrupted(stop.name) from None
        finally:
            stop.at_once = False

    def _due(self) -> bool:
        """Whether the run is judged after this step, on held-out rows if it reads any."""
        return self.step > 0 and (self.step % self.config.evaluation.every == 0 or self.step == self.steps)

    def _evaluated(self) -> bytes:
        rows = curves(self.folder.path / run_folder.METRICS)[1]
        return b"yes" if rows and rows[-1]["step"] == self.step else b""

    def _evaluate(self) -> None:
        limit = self.config.evaluation.rows
        metrics = evaluate(self.network, self.feed, limit=limit) if limit else {}
        if self.saver is None:
            return
        rows = step.example_rows(self.network, self.feed, self.store.tokenizer()) if limit else []
        signals.finish_first()
        if metrics:
            row = {**self.place_of(), **metrics, "standard_words": self.feed.standard_words}
            self.folder.append(run_folder.METRICS, {**row, "split": "valid"})
            vocab_size, turn = self.config.model.vocab_size, self.config.first_stage_steps
            shown = health.begun(row, step=self.step, turn=turn)
            later = f"; the discriminator begins after step {turn:,}" if self.step <= turn else ""
            self.say(f"step {self.step}  held-out: {health.health_line(shown, vocab_size=vocab_size)}{later}")
        if rows:
            self.folder.append(run_folder.EXAMPLES, {"step": self.step, "rows": rows})
        for alarm in health.alarms_in(self.folder):
            self.warn(f"  ALARM: {alarm}")


VERIFY = "ELECTRA_VERIFY_ROWS"
"""Variable: `off` skips the reading of all rows before the first step, for hundreds of gigabytes on a slow disk."""


def open_rows(data: Path) -> Store:
    """Open the store of a run. On each machine one process compares every byte with the manifest: a flipped bit is
    another text.

    Raises:
        MissingInputError, DataError, StorageError: as Store.open.
    """
    verifies = os.environ.get(VERIFY) != "off" and os.environ.get("LOCAL_RANK", "0") == "0"
    return Store.open(data, verify=verifies)
