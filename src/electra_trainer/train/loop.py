"""Pre-training, top to bottom.

`pretrain` prepares and restores; `_train` is the loop: step, record, evaluate, save. What a step computes is in step.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from electra_trainer.config import FOLLOWS_FROM_STEPS, Config
from electra_trainer.config_io import differences
from electra_trainer.cost.flops import first_stage_steps, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.store import Store
from electra_trainer.data.word_counts import uniform_counts, word_counts
from electra_trainer.durable import copy_durably
from electra_trainer.errors import ConfigError, DataError, Diverged, Interrupted
from electra_trainer.methods import Unigram
from electra_trainer.model.frequencies import WordFrequencies
from electra_trainer.objectives import Objective, build
from electra_trainer.train.checkpoint import Saved, load_newest, numbered, require_space
from electra_trainer.train.device import arithmetic, choose_device, choose_precision, use_threads
from electra_trainer.train.examples import look_at_rows
from electra_trainer.train.graph import forget, train_step
from electra_trainer.train.health import BAD_STEPS_IN_A_ROW, alarms, health_line
from electra_trainer.train.optim import build_optimizer, load_optimizer_tensors, optimizer_tensors
from electra_trainer.train.phases import Phases
from electra_trainer.train.plan import Length, fit_to_data, measure_time, steps_for
from electra_trainer.train.progress import Display
from electra_trainer.train.record import RunFolder
from electra_trainer.train.saving import Saver
from electra_trainer.train.signals import StopRequest
from electra_trainer.train.step import Feed, StepResult, evaluate
from electra_trainer.train.weights import Initial, ReadsInitial, begin_with, check_initial, restore, stored


@dataclass(kw_only=True)
class _Run:
    """What the loop carries: the networks, and three numbers."""

    config: Config
    folder: RunFolder
    feed: Feed
    store: Store
    objective: Objective
    optimizer: torch.optim.Optimizer
    display: Display
    saver: Saver
    step: int = 0
    seconds: float = 0.0
    bad_steps: int = 0
    started: float = field(default_factory=time.monotonic)

    def elapsed(self) -> float:
        """Seconds of training, earlier sessions included."""
        return self.seconds + time.monotonic() - self.started


def pretrain(
    config: Config,
    data: Path,
    *,
    out: Path,
    length: Length | None = None,
    init: ReadsInitial | None = None,
    device: str = "auto",
    quiet: bool = False,
) -> Path:
    """Pre-train on prepared data, or go on where the run in `out` stopped.

    Args:
        config: the run; vocabulary and row length are taken from the data.
        data: a folder that `prepare` made.
        out: the run folder.
        length: steps, time or FLOPs; None keeps the config's steps. Ignored on resume, where it is settled already.
        init: where trained weights to begin with are; not read on resume. None: fresh weights.
        device: auto, cpu, cuda, cuda:N.

    Returns:
        `out`.

    Raises:
        ConfigError, DataError, StorageError, CheckpointError: see errors.py.
        Interrupted: SIGINT or SIGTERM; the run is saved, the same call goes on.
        Diverged: the gradient was no number for several steps; the last good state is saved.
    """
    threads = use_threads()
    store = Store.open(data)
    where = choose_device(device)
    folder = RunFolder(out)
    with closing(folder), StopRequest() as stop:
        folder.open_for_writing()
        config = fit_to_data(config, store)
        initial = _read_initial(init, folder, config, store)
        config = _settle(config, folder, store, length=length or Length(), device=where, initial=initial)
        run = _prepare(config, folder, store, device=where, quiet=quiet, initial=initial)
        run.display.say(
            f"{config.preset}: {parameters(config).joint:,} parameters, {config.schedule.steps:,} steps, {where.type} "
            f"{arithmetic(run.feed.precision, where)}, {threads} threads -> {folder.path}"
        )
        with run.display, run.saver:
            _train(run, lambda: stop.name)
    forget()
    return out


def _read_initial(init: ReadsInitial | None, folder: RunFolder, config: Config, store: Store) -> Initial | None:
    """The weights to begin with; None for fresh ones, and where the run has its own already."""
    began = folder.environment().get("init") if folder.exists else None
    if folder.exists and (init.name if init else None) != (began["name"] if began else None):
        before = (
            f"the weights of {began['name']}: repeat --init {began['name']}"
            if began
            else "fresh weights: leave --init out"
        )
        raise ConfigError(f"{folder.path} began with {before} to go on, or choose another --out.")
    if init is None or (folder.exists and numbered(folder.checkpoints)):
        return None
    initial = init.read()
    check_initial(initial, config, store)
    if began and began != initial.identity:  # it ended before its first checkpoint
        raise ConfigError(
            f"{folder.path}: the weights of {initial.name} are others than when it began. Choose another --out."
        )
    return initial


def _settle(
    config: Config, folder: RunFolder, store: Store, *, length: Length, device: torch.device, initial: Initial | None
) -> Config:
    """The complete config: that of the run on disk if there is one, else with the number of steps worked out."""
    if folder.exists:
        began = folder.config()
        if folder.environment()["data"] != store.identity:
            raise DataError(
                f"{folder.path} was trained on other data than {store.folder}. Give the folder that it began with, or "
                "another --out."
            )
        asked = steps_for(length, config, None) if length.budget is None else config
        changed = differences(began, asked)
        if length.budget is not None:  # its steps were measured when the run began
            changed = [c for c in changed if not c.startswith(FOLLOWS_FROM_STEPS)]
        if changed:
            raise ConfigError(
                f"{folder.path} began with other settings ({'; '.join(changed)}). Repeat the command that it began with "
                "to go on, or choose another --out."
            )
        return began
    timing = None
    if length.budget is not None:
        timing = measure_time(config, store, device=device, precision=choose_precision(config.precision, device))
    config = steps_for(length, config, timing)
    begin_run(folder, config, store, initial)
    return config


def begin_run(folder: RunFolder, config: Config, store: Store, initial: Initial | None = None) -> None:
    """Write what identifies a run of this config on these rows, the tokenizer first."""
    copy_durably(store.folder / "tokenizer", folder.tokenizer)
    folder.begin(config, store.identity, init=initial.identity if initial else None)


def _prepare(
    config: Config, folder: RunFolder, store: Store, *, device: torch.device, quiet: bool, initial: Initial | None
) -> _Run:
    """Build the networks and put back the newest checkpoint; save one at step 0 to find a bad disk early."""
    objective = build(config)
    give_frequencies(objective, store)
    objective.to(device)
    display = Display(total=config.schedule.steps, quiet=quiet)
    run = _Run(
        config=config,
        folder=folder,
        feed=Feed.of(config, store, device=device, precision=choose_precision(config.precision, device)),
        store=store,
        objective=objective,
        optimizer=build_optimizer(objective, config.optimizer),
        display=display,
        saver=Saver(folder, keep=config.checkpoint.keep, say=partial(_tell, display, folder, style="bold red")),
    )
    saved = load_newest(folder.checkpoints, origin=folder.origin, warn=lambda line: _say(run, line))
    one = 12 * parameters(config).joint
    if saved is None:
        if initial is not None:
            _begin_with(run, initial)
        require_space(folder.path, one * (config.checkpoint.keep + 1))
        run.saver.write(_saved(run))
    else:
        restore(objective, saved.weights)
        load_optimizer_tensors(objective, run.optimizer, saved.optimizer)
        run.step, run.seconds = saved.step, float(saved.state["seconds"])
        if run.step < config.schedule.steps:
            require_space(folder.path, 2 * one)
        folder.forget_after(run.step)
        _say(run, f"resuming at step {run.step:,} of {config.schedule.steps:,}")
    return run


def _begin_with(run: _Run, initial: Initial) -> None:
    fresh = begin_with(run.objective, initial)
    _say(run, f"weights of {initial.name}" + (f"; fresh: {', '.join(_networks(fresh))}" if fresh else ""))


def _networks(names: list[str]) -> list[str]:
    """Tensors by the part of a network that they are of: `["generator.electra.a", "generator.electra.b"]` -> `["generator.electra"]`."""
    return sorted({".".join(name.split(".")[:2]) for name in names})


def _train(run: _Run, stop: Callable[[], str | None]) -> None:
    config, total = run.config, run.config.schedule.steps
    run.started = time.monotonic()
    mark, since = run.step, run.started
    phases = Phases(config, run.objective)
    run.objective.train()
    while run.step < total:
        logged = (run.step + 1) % config.log_every == 0 or run.step + 1 == total
        result = train_step(phases.at(run.step), run.optimizer, run.feed, step=run.step, look=logged)
        run.step += 1
        _check_finite(run, result)
        if logged and result.finite:
            now = time.monotonic()
            speed = (run.step - mark) * config.tokens_per_step / (now - since)
            _record_step(run, result, speed)
            run.display.step(run.step, result.metrics, tokens_per_second=speed, last=run.step == total)
        if config.evaluation.rows and (run.step % config.evaluation.every == 0 or run.step == total):
            _evaluate(run)
        name = stop()
        if name or run.step == total:
            run.saver.finish(_saved(run))
        elif run.step % config.checkpoint.every == 0:
            run.saver.begin(_saved(run))
        else:
            run.saver.check()
        if name and run.step < total:
            raise Interrupted(f"{name}: saved at step {run.step:,} of {total:,}. The same command goes on from there.")
        if logged:
            mark, since = run.step, time.monotonic()


def _check_finite(run: _Run, result: StepResult) -> None:
    """Count steps without a finite gradient; they moved nothing. Too many in a row end the run."""
    run.bad_steps = 0 if result.finite else run.bad_steps + 1
    if not result.finite:
        _say(run, f"step {run.step}: the gradient is not a finite number; the step was skipped", style="yellow")
    if run.bad_steps >= BAD_STEPS_IN_A_ROW:
        run.saver.finish(_saved(run))
        raise Diverged(
            f"the gradient was not a finite number for {run.bad_steps} steps, up to step {run.step}; the weights from before "
            "are saved. Start again in another --out with a lower --optimizer.learning-rate or --precision fp32."
        )


def _record_step(run: _Run, result: StepResult, speed: float) -> None:
    row = {**_place(run), **result.metrics}
    row |= {"learning_rate": result.learning_rate, "gradient_norm": result.gradient_norm, "tokens_per_second": speed}
    run.folder.append("metrics.jsonl", row)


def _evaluate(run: _Run) -> None:
    metrics = evaluate(run.objective, run.feed, limit=run.config.evaluation.rows)
    run.folder.append("metrics.jsonl", {**_place(run), "split": "valid", **metrics})
    rows = look_at_rows(run.objective, run.feed, run.store.tokenizer())
    if rows:
        run.folder.append("examples.jsonl", {"step": run.step, "rows": rows})
    vocab_size = run.config.model.vocab_size
    _say(run, f"step {run.step}  held-out: {health_line(metrics, vocab_size=vocab_size)}")
    turn = first_stage_steps(run.config)  # before it the discriminator has not begun
    told = alarms(metrics, vocab_size=vocab_size, step=run.step - turn, steps=run.config.schedule.steps - turn)
    for alarm in told if run.step > turn else []:
        _say(run, f"  ALARM: {alarm}", style="bold red")


def _place(run: _Run) -> dict[str, float]:
    """Where a row of metrics.jsonl stands in the run."""
    done = run_flops(run.config, steps=run.step)
    return {
        "step": run.step,
        "tokens": run.step * run.config.tokens_per_step,
        "flops": done.paper,
        "flops_real": done.real,
        "seconds": round(run.elapsed(), 3),
    }


def _saved(run: _Run) -> Saved:
    return state_of(run.objective, run.optimizer, step=run.step, seconds=run.elapsed())


def state_of(objective: Objective, optimizer: torch.optim.Optimizer, *, step: int, seconds: float) -> Saved:
    """What a checkpoint holds of a run."""
    moments = optimizer_tensors(objective, optimizer)
    return Saved(step=step, weights=stored(objective), optimizer=moments, state={"seconds": seconds})


def give_frequencies(objective: Objective, store: Store) -> None:
    """Tell a generator that samples by frequency what the frequencies are."""
    for module in objective.modules():
        if isinstance(module, WordFrequencies):
            counts = word_counts if isinstance(objective.config.generator, Unigram) else uniform_counts
            module.use(torch.from_numpy(counts(store)))


def _say(run: _Run, line: str, style: str | None = None) -> None:
    _tell(run.display, run.folder, line, style=style)


def _tell(display: Display, folder: RunFolder, line: str, style: str | None = None) -> None:
    display.say(line, style=style)
    folder.log(line.strip())
