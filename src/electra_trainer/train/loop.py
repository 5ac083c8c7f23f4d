"""Pre-training, top to bottom: `pretrain` settles and restores a run, and `Pretraining` says what its steps do (resumable.py loops)."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from electra_trainer.cost.flops import run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import Interrupted
from electra_trainer.objectives import Objective, build
from electra_trainer.ranks import gradient_tree, sharding
from electra_trainer.ranks.world import joined, led, local_device, world
from electra_trainer.runs import progress, run_folder, saving, signals
from electra_trainer.runs.metrics import readable_rows
from electra_trainer.runs.status import Status
from electra_trainer.settings.config import Config
from electra_trainer.train import diagnose, measures, plan, resumable, schedule
from electra_trainer.train.device import arithmetic, choose_device, choose_precision, use_threads
from electra_trainer.train.graph import forget, train_step
from electra_trainer.train.start import begin, open_rows
from electra_trainer.train.step import Feed, StepResult, evaluate
from electra_trainer.train.weights import Initial, ReadsInitial, begin_with, give_frequencies, parts_of


def pretrain(
    config: Config,
    data: Path,
    *,
    out: Path,
    length: plan.Length | None = None,
    init: ReadsInitial | None = None,
    device: str = "auto",
    shard: bool = False,
    quiet: bool = False,
    status: Status | None = None,
) -> Path:
    """Pre-train on prepared data, or resume the run in `out`; returns `out`.

    Args:
        config: the run; vocabulary and row length are taken from the data.
        data: a folder that `prepare` made.
        out: the run folder.
        length: steps, time or FLOPs; None keeps the config's steps. Ignored on resume, where it is settled already.
        init: where to read trained weights to begin with; not read on resume. None: fresh weights.
        device: auto, cpu, cuda, cuda:N.
        shard: divide weights, gradients and moments among the processes (ranks/sharding.py); it may change from one call to the next.
        status: where to report that the run began and how it ended.

    Raises:
        ConfigError, DataError, StorageError, CheckpointError: see errors.py.
        Interrupted: SIGINT or SIGTERM; the run is saved, the same call resumes it.
        Diverged: the gradient was not finite for several steps; the last good state is saved.
    """
    threads = use_threads()
    folder = run_folder.RunFolder(out)
    signals.beat()
    with (
        closing(folder),
        signals.StopRequest(at_once=True) as stop,
        joined(lambda: local_device(choose_device(device)), last_words=status.failed if status else lambda _: None) as (
            here,
            where,
        ),
    ):
        if shard:
            sharding.check_shard(config)
        store = open_rows(data)
        config, initial = begin(
            config, folder, store, length=length or plan.Length(), device=where, init=init, shard=shard, status=status
        )
        if config.deterministic:
            gradient_tree.check_tree(config.batch.lanes)
        run = _built(config, folder, store, initial, stop, device=where, shard=shard, quiet=quiet)
        run.resume()
        divided = ", which divide the weights" if sharding.is_sharded(run.network) else ""
        run.display.say(
            f"{config.preset}: {parameters(config).joint:,} parameters, {config.schedule.steps:,} steps, {where.type} "
            f"{arithmetic(run.precision, where)}, {here.described(threads)}{divided} -> {folder.path}"
        )
        with run.display, run.saver or nullcontext():
            run.train(lambda: stop.name)
    forget()
    return out


def _built(
    config: Config,
    folder: run_folder.RunFolder,
    store: Store,
    initial: Initial | None,
    stop: signals.StopRequest,
    *,
    device: torch.device,
    shard: bool,
    quiet: bool,
) -> "Pretraining":
    """The run with freshly initialised networks, on the CPU."""
    objective = build(config)
    give_frequencies(objective, store)
    precision = choose_precision(config.precision, device)
    return Pretraining(
        network=objective,
        folder=folder,
        device=device,
        precision=precision,
        settings=config.optimizer,
        steps=config.schedule.steps,
        log_every=config.log_every,
        keep=config.checkpoint.keep,
        display=progress.Display(total=config.schedule.steps, quiet=quiet, silent=not world().leads),
        shard=shard,
        feed=Feed.of(config, store, device=device, precision=precision),
        store=store,
        initial=initial,
        stop=stop,
    )


@dataclass(kw_only=True)
class Pretraining(resumable.Resumable[Objective]):
    """A pre-training run: `network` holds all networks of the objective."""

    feed: Feed
    store: Store
    initial: Initial | None
    """On rank 0 the weights to begin with; None for fresh ones."""
    stop: signals.StopRequest
    phases: schedule.Phases = field(init=False)

    keeps_checkpoints = True
    remedy = "--optimizer.learning-rate or --precision fp32"

    @property
    def config(self) -> Config:
        """Of the run."""
        return self.feed.config

    def begin(self) -> None:
        """See `Resumable`; CheckpointError: rows say that the run had a checkpoint."""
        self.folder.require_unsaved()
        if self.initial is not None:
            fresh = begin_with(self.network, self.initial)
            self.say(f"weights of {self.initial.name}" + (f"; fresh: {', '.join(parts_of(fresh))}" if fresh else ""))

    def before_steps(self) -> None:
        """Evaluate where the run was stopped in an evaluation."""
        self.phases = schedule.Phases(self.config, self.network)
        with self._given_up_on_a_signal():
            if self._evaluation_due() and not led(self._evaluated):
                self._evaluate()

    def compute(self, *, logged: bool) -> StepResult:
        """See `Resumable`."""
        with self._given_up_on_a_signal():
            part = self.phases.at(self.step)
            return train_step(part, self.optimizer, self.feed, step=self.step, diagnose=logged)

    def after_step(self) -> None:
        """Evaluate on held-out rows where that is due."""
        if self._evaluation_due():
            with self._given_up_on_a_signal():
                self._evaluate()

    def save_due(self) -> bool:
        """Every `checkpoint.every` steps."""
        return self.step % self.config.checkpoint.every == 0

    def place_of(self) -> dict[str, Any]:
        """Steps, tokens, FLOPs by both countings, seconds."""
        done = run_flops(self.config, steps=self.step)
        return {
            "step": self.step,
            "tokens": self.step * self.config.tokens_per_step,
            "flops": done.paper,
            "flops_real": done.real,
            "seconds": round(self.elapsed(), 3),
        }

    def bad_step(self) -> tuple[str, str]:
        """Name the rows, and the command that shows them."""
        rows = diagnose.blame(self.network, self.feed, step=self.step - 1)
        replay = f"`electra replay {self.folder.path} --step {self.step}`"
        return (
            f". {rows[0].upper()}{rows[1:]}. Look at them and their documents with {replay}.",
            f"; the weights from before are saved. In the last of them {rows} (shown by {replay}). Start again in another --out with a "
            f"lower {self.remedy}.",
        )

    @contextmanager
    def _given_up_on_a_signal(self) -> Iterator[None]:
        """Work that can be done again: a signal ends it at once, and the state from before it is saved. Several ranks finish it instead."""
        stop = self.stop
        stop.at_once = world().size == 1
        try:
            if stop.at_once and stop.name:  # it came between two pieces of work
                raise Interrupted
            yield
        except Interrupted:
            stop.at_once = False
            self.optimizer.zero_grad()
            self.save(saving.Saver.finish)
            raise self.interrupted(stop.name) from None
        finally:
            stop.at_once = False

    def _evaluation_due(self) -> bool:
        evaluation = self.config.evaluation
        due = self.step % evaluation.every == 0 or self.step == self.steps
        return bool(evaluation.rows) and self.step > 0 and due

    def _evaluated(self) -> bytes:
        rows = readable_rows(self.folder.path / run_folder.METRICS)
        return b"yes" if any(row["step"] == self.step and row.get("split") == "valid" for row in rows) else b""

    def _evaluate(self) -> None:
        metrics = evaluate(self.network, self.feed, limit=self.config.evaluation.rows)
        rows = diagnose.example_rows(
            self.network, self.feed, self.store.tokenizer()
        )  # on all ranks: each may have a part of the weights
        if self.metrics is None:
            return
        signals.finish_first()
        self.metrics.write({**self.place_of(), "split": "valid", **metrics})
        if rows:
            self.metrics.examples.write({"step": self.step, "rows": rows})
        vocab_size = self.config.model.vocab_size
        self.say(f"step {self.step}  held-out: {measures.health_line(metrics, vocab_size=vocab_size)}")
        turn = self.config.first_stage_steps  # before it the discriminator has not begun
        found = measures.alarms(metrics, vocab_size=vocab_size, step=self.step - turn, steps=self.steps - turn)
        for alarm in found if self.step > turn else []:
            self.say(f"  ALARM: {alarm}", style="bold red")
