"""Pre-training, top to bottom: `pretrain` prepares and restores, `_train` is the loop. What a step computes is in step.py."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from electra_trainer.cost.flops import first_stage_steps, run_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.batches import uniform_counts, word_counts
from electra_trainer.data.store import Store
from electra_trainer.errors import Diverged, Interrupted
from electra_trainer.model.networks import WordFrequencies
from electra_trainer.objectives import Objective, build
from electra_trainer.ranks.gradient_tree import check_tree
from electra_trainer.ranks.sharding import check_shard, is_sharded, place, whole
from electra_trainer.ranks.world import any_rank, handed_out, joined, led, local_device, world
from electra_trainer.runs.checkpoint import load_newest, numbered, require_space
from electra_trainer.runs.progress import Display
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.saving import Saver
from electra_trainer.runs.signals import StopRequest, beat, finish_first
from electra_trainer.runs.status import write_failed
from electra_trainer.runs.truncate import readable_rows
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import Unigram
from electra_trainer.train.begin import begin, open_rows
from electra_trainer.train.device import arithmetic, choose_device, choose_precision, use_threads
from electra_trainer.train.graph import forget, train_step
from electra_trainer.train.look import blame, look_at_rows, no_number
from electra_trainer.train.measures import BAD_STEPS_IN_A_ROW, alarms, health_line
from electra_trainer.train.optim import (
    build_optimizer,
    check_optimizer_tensors,
    load_optimizer_tensors,
    optimizer_tensors,
)
from electra_trainer.train.plan import Length
from electra_trainer.train.schedule import Phases
from electra_trainer.train.step import Feed, StepResult, evaluate
from electra_trainer.train.weights import Initial, ReadsInitial, begin_with, parts_of, restore, stored


@dataclass(kw_only=True)
class _Run:
    """What the loop carries: the networks, and three numbers."""

    config: Config
    folder: RunFolder
    leads: bool
    """Whether this process writes and prints; the others compute."""
    feed: Feed
    store: Store
    objective: Objective
    display: Display
    optimizer: torch.optim.Optimizer = field(init=False)
    saver: Saver | None = None
    """None on a process that does not write."""
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
    shard: bool = False,
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
        shard: divide weights, gradients and moments among the processes (ranks/sharding.py); it may change from one call to the next.

    Returns:
        `out`.

    Raises:
        ConfigError, DataError, StorageError, CheckpointError: see errors.py.
        Interrupted: SIGINT or SIGTERM; the run is saved, the same call goes on.
        Diverged: the gradient was no number for several steps; the last good state is saved.
    """
    threads = use_threads()
    folder = RunFolder(out)
    last_words = partial(write_failed, out)
    beat()
    with (
        closing(folder),
        StopRequest(at_once=True) as stop,
        joined(lambda: local_device(choose_device(device)), last_words=last_words) as (here, where),
    ):
        if shard:
            check_shard(config)
        store = open_rows(data)
        config, initial = begin(config, folder, store, length=length or Length(), device=where, init=init, shard=shard)
        if config.deterministic:
            check_tree(config.batch.lanes)
        run = _prepare(config, folder, store, device=where, quiet=quiet)
        _go_on(run, initial, shard=shard)
        divided = ", which divide the weights" if is_sharded(run.objective) else ""
        run.display.say(
            f"{config.preset}: {parameters(config).joint:,} parameters, {config.schedule.steps:,} steps, {where.type} "
            f"{arithmetic(run.feed.precision, where)}, {here.described(threads)}{divided} -> {folder.path}"
        )
        with run.display, run.saver or nullcontext():
            _train(run, stop)
    forget()
    return out


def _prepare(config: Config, folder: RunFolder, store: Store, *, device: torch.device, quiet: bool) -> _Run:
    """Build the networks, on the CPU."""
    objective = build(config)
    give_frequencies(objective, store)
    display = Display(total=config.schedule.steps, quiet=quiet, silent=not world().leads)
    run = _Run(
        config=config,
        folder=folder,
        leads=world().leads,
        feed=Feed.of(config, store, device=device, precision=choose_precision(config.precision, device)),
        store=store,
        objective=objective,
        display=display,
    )
    if run.leads:
        say = partial(_say, run, style="bold red", loud=True)
        run.saver = Saver(folder, keep=config.checkpoint.keep, say=say)
    return run


def _go_on(run: _Run, initial: Initial | None, *, shard: bool) -> None:
    """Put back the newest checkpoint, or begin and save at step 0 to find a bad disk early; rank 0 reads, and hands out what it has."""
    moments: dict[str, Tensor] = {}  # on rank 0

    def put_back() -> bytes:
        warn = partial(_say, run, style="bold red", loud=True)
        saved = load_newest(run.folder.checkpoints, origin=run.folder.origin, warn=warn, network=lambda: run.objective)
        one = 12 * parameters(run.config).joint
        if saved is None:
            run.folder.require_unsaved()
            if initial is not None:
                _begin_with(run, initial)
            require_space(run.folder.path, one * (run.config.checkpoint.keep + 1))
            return b""
        restore(run.objective, saved.weights)
        check_optimizer_tensors(run.objective, saved.optimizer)
        moments.update(saved.optimizer)
        if saved.step < run.config.schedule.steps:
            require_space(run.folder.path, 2 * one)
        run.folder.forget_after(saved.step, warn)
        _say(run, f"resuming at step {saved.step:,} of {run.config.schedule.steps:,}")
        return json.dumps([saved.step, saved.state["seconds"], saved.state.get("bad_steps", 0)]).encode()

    told = led(put_back)
    with torch.no_grad():
        mine = stored(run.objective)
        for name, tensor in handed_out(mine):
            mine[name].copy_(tensor)
    place(run.objective, run.feed.device, precision=run.feed.precision, shard=shard)
    run.optimizer = build_optimizer(run.objective, run.config.optimizer)
    load_optimizer_tensors(run.objective, run.optimizer, handed_out(moments))
    if told:
        run.step, run.seconds, run.bad_steps = json.loads(told)
    else:
        _save(run, Saver.write)


def _begin_with(run: _Run, initial: Initial) -> None:
    fresh = begin_with(run.objective, initial)
    _say(run, f"weights of {initial.name}" + (f"; fresh: {', '.join(parts_of(fresh))}" if fresh else ""))


def _train(run: _Run, stop: StopRequest) -> None:
    config, total = run.config, run.config.schedule.steps
    run.started = time.monotonic()
    mark, since = run.step, run.started
    phases = Phases(config, run.objective)
    run.objective.train()
    with _saved_when_stopped(run, stop):
        if _due(run) and not _evaluated(run):  # it was stopped in the evaluation
            _evaluate(run)
    while run.step < total:
        logged = (run.step + 1) % config.log_every == 0 or run.step + 1 == total
        with _saved_when_stopped(run, stop):
            result = train_step(phases.at(run.step), run.optimizer, run.feed, step=run.step, diagnose=logged)
        run.step += 1
        beat()
        _check_finite(run, result)
        if logged and result.finite:
            now = time.monotonic()
            speed = (run.step - mark) * config.tokens_per_step / (now - since)
            _record_step(run, result, speed)
            run.display.step(run.step, result.metrics, tokens_per_second=speed, last=run.step == total)
        if _due(run):
            with _saved_when_stopped(run, stop):
                _evaluate(run)
        stopping = any_rank(stop.name is not None)
        if stopping or run.step == total:
            _save(run, Saver.finish)
        elif run.step % config.checkpoint.every == 0:
            _save(run, Saver.begin)
        elif logged or world().size == 1:
            _check_saves(run)
        if stopping and run.step < total:
            raise _stopped(run, stop)
        if logged:
            mark, since = run.step, time.monotonic()


@contextmanager
def _saved_when_stopped(run: _Run, stop: StopRequest) -> Iterator[None]:
    """A piece of work that can be done again: a signal ends it, the state from before it is saved. Ranks wait for one another instead."""
    stop.at_once = world().size == 1
    try:
        if stop.at_once and stop.name:  # it came between two pieces
            raise Interrupted
        yield
    except Interrupted:
        stop.at_once = False
        run.optimizer.zero_grad()
        _save(run, Saver.finish)
        raise _stopped(run, stop) from None
    finally:
        stop.at_once = False


def _stopped(run: _Run, stop: StopRequest) -> Interrupted:
    why = stop.name or "another process was told to stop"
    stopped = Interrupted(
        f"{why}: saved at step {run.step:,} of {run.config.schedule.steps:,}. The same command goes on from there."
    )
    stopped.told, stopped.agreed = not run.leads, True
    return stopped


def _due(run: _Run) -> bool:
    """Whether held-out rows are to be looked at after this step."""
    evaluation = run.config.evaluation
    return (
        bool(evaluation.rows)
        and run.step > 0
        and (run.step % evaluation.every == 0 or run.step == run.config.schedule.steps)
    )


def _evaluated(run: _Run) -> bool:
    def look() -> bytes:
        rows = readable_rows(run.folder.path / "metrics.jsonl")
        return b"yes" if any(row["step"] == run.step and row.get("split") == "valid" for row in rows) else b""

    return bool(led(look))


def _check_finite(run: _Run, result: StepResult) -> None:
    """Count steps without a finite gradient; they moved nothing. Too many in a row end the run."""
    if result.finite:
        run.bad_steps = 0
        return
    run.bad_steps += 1
    rows = blame(run.objective, run.feed, step=run.step - 1)
    look = f"`electra replay {run.folder.path} --step {run.step}`"
    line = (
        f"step {run.step}: the gradient is not a finite number; the step was skipped. {rows[0].upper()}{rows[1:]}. "
        f"Look at them and their documents with {look}."
    )
    _say(run, line, style="yellow", loud=True)
    if run.bad_steps >= BAD_STEPS_IN_A_ROW:
        _save(run, Saver.finish)
        raise Diverged(
            f"the gradient was not a finite number for {run.bad_steps} steps, up to step {run.step}; the weights from before "
            f"are saved. In the last of them {rows} (shown by {look}). Start again in another --out with a lower "
            "--optimizer.learning-rate or --precision fp32."
        )


def _record_step(run: _Run, result: StepResult, speed: float) -> None:
    if not run.leads:
        return
    row = {**_place(run), **result.metrics}
    row |= {"learning_rate": result.learning_rate, "gradient_norm": result.gradient_norm, "tokens_per_second": speed}
    run.folder.append("metrics.jsonl", row)


def _evaluate(run: _Run) -> None:
    metrics = evaluate(run.objective, run.feed, limit=run.config.evaluation.rows)
    tokenizer = run.store.tokenizer()
    rows = look_at_rows(run.objective, run.feed, tokenizer)  # on all ranks: each may have a part of the weights
    if not run.leads:
        return
    finish_first()
    run.folder.append("metrics.jsonl", {**_place(run), "split": "valid", **metrics})
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


def _save(run: _Run, how: Callable[[Saver, Saved], None]) -> None:
    """Save on rank 0 what all ranks have; an error of it is raised on every rank."""
    saved = state_of(run.objective, run.optimizer, step=run.step, seconds=run.elapsed(), bad_steps=run.bad_steps)

    def work() -> bytes:
        if run.saver is not None:
            _check_numbers(run, saved)
            how(run.saver, saved)
        return b""

    led(work)


def _check_saves(run: _Run) -> None:
    """Hear on every rank of a save that has failed."""

    def work() -> bytes:
        if run.saver is not None:
            run.saver.check()
        return b""

    led(work)


def _check_numbers(run: _Run, saved: Saved) -> None:
    """What is saved must be numbers."""
    bad = no_number({**saved.weights, **saved.optimizer})
    if bad is not None:
        kept = numbered(run.folder.checkpoints)
        raise Diverged(
            f"after step {run.step} {bad} holds values that are no numbers, so nothing was saved. The same command goes on from the "
            f"checkpoint of step {kept[-1][0] if kept else 0}; if it ends here again, start in another --out with a lower "
            "--optimizer.learning-rate or --precision fp32, and if not, check the machine's memory."
        )


def state_of(
    objective: Objective, optimizer: torch.optim.Optimizer, *, step: int, seconds: float, bad_steps: int = 0
) -> Saved:
    """What a checkpoint holds of a run; where ranks divide it all of them call this, and rank 0 gets the whole."""
    weights, moments = whole(stored(objective)), whole(optimizer_tensors(objective, optimizer))
    return Saved(step=step, weights=weights, optimizer=moments, state={"seconds": seconds, "bad_steps": bad_steps})


def give_frequencies(objective: Objective, store: Store) -> None:
    """Tell a generator that samples by frequency what the frequencies are."""
    for module in objective.modules():
        if isinstance(module, WordFrequencies):
            counts = word_counts if isinstance(objective.config.generator, Unigram) else uniform_counts
            module.use(torch.from_numpy(counts(store)))


def _say(run: _Run, line: str, style: str | None = None, *, loud: bool = False) -> None:
    (run.display.warn if loud else run.display.say)(line, style=style)
    if run.leads:
        run.folder.log(line.strip())
