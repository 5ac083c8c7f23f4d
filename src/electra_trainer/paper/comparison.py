"""`electra compare`: objectives at equal compute, every arm with every seed a run of its own, and what the runs say.

The line of this file: declare (experiment.json), run the cells of this shard (cells.py), sum up (summary.py).

One cell of an experiment: train, probe, write down. Each part that is done already is not done again.

What makes arms comparable: each is given the number of steps that spends the same FLOPs, steps or time.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from electra_trainer.cost.flops import Flops, run_flops, steps_for_flops
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, Diverged, ElectraError, did_you_mean
from electra_trainer.experiments import compared as on_disk
from electra_trainer.experiments.compared import UNTRAINED, Cell, Experiment, Match, Say, arm_config, cells
from electra_trainer.experiments.compared_results import FACTS, Result, read_result, write_result
from electra_trainer.experiments.compared_summary import Summary, summarize, write_summary
from electra_trainer.objectives import build
from electra_trainer.paper.probes import METRICS, PROBES, Subject, fingerprint, parse_probes, probe
from electra_trainer.runs.checkpoint import newest, save
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings.config import Config
from electra_trainer.settings.records import differences
from electra_trainer.train.begin import begin_run
from electra_trainer.train.device import choose_device, choose_precision, use_threads
from electra_trainer.train.loop import pretrain
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.plan import Length, Timing, fit_to_data, measure_time, seconds, steps_for
from electra_trainer.train.weights import give_frequencies, state_of


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is asked for."""

    arms: Sequence[str]
    """Names of arms (arms.py), or `untrained`; the first is the reference."""
    seeds: Sequence[int] = (1, 2, 3)
    flops: float | None = None
    """Operations of each run; or `steps`, or `budget`."""
    steps: int | None = None
    budget: str | None = None
    """Wall-clock time of each run, for example 10m."""
    match: Match | None = None
    """What is equal: by default paper-FLOPs with `flops`, steps with `steps`, time with `budget`."""
    probes: Sequence[str] = ("held-out",)
    """`held-out`, `pos=TREEBANK`, `minimal-pairs=FOLDER`, `glue=FOLDER`."""
    probe_sentences: int = 4000
    """Sentences that a probe which learns is trained on."""
    probe_pairs: int = 100
    """Minimal pairs that are read of each paradigm."""
    metrics: Sequence[str] = field(default_factory=tuple)
    """Metrics whose contrasts are declared, for example pos/accuracy; empty: summary.py's default."""

    def __post_init__(self) -> None:
        if not self.arms or not self.seeds:
            raise ConfigError(
                "compare: expected at least one arm and one seed, for example --arms electra,mlm --seeds 3."
            )
        twice = [name for name in self.arms if list(self.arms).count(name) > 1]
        if twice:
            raise ConfigError(f"--arms: {twice[0]} stands twice.")
        if self.probe_sentences < 1:
            raise ConfigError(f"--probe-sentences {self.probe_sentences}: expected at least 1.")
        if self.probe_pairs < 1:
            raise ConfigError(f"--probe-pairs {self.probe_pairs}: expected at least 1.")
        if bad := [seed for seed in self.seeds if seed < 0]:
            raise ConfigError(f"--seeds: {bad[0]}: expected numbers of at least 0.")
        for name in self.metrics:
            probe, _, metric = name.partition("/")
            names = METRICS.get(probe, (metric,))  # those of other probes depend on the objective
            if name not in FACTS and not (metric in names and metric and probe in PROBES):
                known = [*FACTS, *(f"{probe}/{metric}" for probe in PROBES for metric in METRICS.get(probe, "…"))]
                raise ConfigError(f"--metrics {name}:{did_you_mean(name, known)} Known: {', '.join(known)}.")


def compare(
    asked: Comparison,
    config: Config,
    data: Path,
    *,
    out: Path,
    shard: tuple[int, int] = (1, 1),
    device: str = "auto",
    quiet: bool = False,
) -> Summary:
    """Run what is not yet done of a comparison, and sum up all that is there.

    Args:
        config: the preset with its settings, which every arm begins from; its seed is not used.
        data: a folder that `prepare` made.
        out: the experiment's folder: a new one, or one to go on with or extend.
        shard: (i, N): run every N-th cell, from the i-th on.

    Raises:
        ConfigError: an arm, probe or amount that cannot be, or another experiment in `out`.
        Interrupted: stopped and saved; the summary of what is there is written, the same call goes on.
        ElectraError: as `pretrain` and the probes.
    """
    use_threads()
    probes = parse_probes(asked.probes)
    match, amount = amount_of(flops=asked.flops, steps=asked.steps, budget=asked.budget, match=asked.match)
    store = Store.open(data)
    if "held-out" in probes and not len(store.rows("valid")):
        raise DataError(f"{data}: holds no held-out rows. Prepare it with a --valid-fraction above 0.")
    config = fit_to_data(config, store)
    declared = Experiment(
        preset=config.preset,
        data=str(data),
        **store.identity,
        match=match,
        amount=amount,
        seeds=tuple(asked.seeds),
        probes={name: str(folder) if folder else None for name, folder in probes.items()},
        probes_sha256={name: fingerprint(name, folder) for name, folder in probes.items()},
        probe_sentences=asked.probe_sentences,
        probe_pairs=asked.probe_pairs,
        metrics=tuple(asked.metrics),
        arms={name: arm_config(name, config) for name in asked.arms},
    )
    with on_disk.writing(out):
        experiment = _settled(declared, store, out=out, device=device, say=partial(_say, quiet))
        _require_probes(experiment)
        on_disk.write(out, experiment)
    mine = cells(out, arms=list(declared.arms), seeds=declared.seeds, shard=shard)
    try:
        for number, cell in enumerate(mine, start=1):
            where = f"[{number}/{len(mine)}] {cell}"
            run_cell(experiment, cell, data=data, device=device, quiet=quiet, say=partial(_say, quiet, where))
    except (ElectraError, KeyboardInterrupt):
        write_summary(out, summarize(out))
        raise
    summary = summarize(out)
    write_summary(out, summary)
    return summary


def _require_probes(experiment: Experiment) -> None:
    """What is declared can be measured: said now, not after the training."""
    for name in experiment.metrics:
        probe = name.partition("/")[0]
        if name not in FACTS and probe not in experiment.probes:
            raise ConfigError(
                f"--metrics {name}: the probe {probe} is not asked. Add --probe {probe}{'=DIR' if probe in METRICS else ''}."
            )


def _settled(
    declared: Experiment, store: Store, *, out: Path, device: str, say: Callable[[str, str], None]
) -> Experiment:
    """The experiment with the steps of each arm; those on disk stand, and what is new is added."""
    old = on_disk.read(out) if on_disk.exists(out) else None
    arms: dict[str, Config] = {}
    for name, config in declared.arms.items():
        timing = None
        if name == UNTRAINED:
            arms[name] = config
            continue
        if declared.match == "time":
            if old is not None and name in old.arms:  # measured when it began; `extend` compares the rest
                arms[name] = config
                continue
            say(name, "measuring its speed")
            where = choose_device(device)
            timing = measure_time(config, store, device=where, precision=choose_precision(config.precision, where))
        arms[name] = settle(config, match=declared.match, amount=declared.amount, timing=timing)
    new = replace(declared, arms=arms)
    return new if old is None else on_disk.extend(old, new, folder=out, measured=declared.match == "time")


def _say(quiet: bool, where: str, line: str) -> None:
    if not quiet:
        print(f"electra: {where}: {line}", file=sys.stderr, flush=True)


def run_cell(experiment: Experiment, cell: Cell, *, data: Path, device: str, quiet: bool, say: Say) -> Result:
    """Train and probe a cell, or go on where it stopped; returns what result.json holds.

    A run that diverges is a result too: `failed` says why, and there are no metrics. It would diverge again, so it is not tried
    again while its result.json is there.

    Raises:
        Interrupted: the run is saved. ElectraError: as `pretrain` and the probes.
    """
    result = read_result(cell)
    todo = {name: path for name, path in experiment.probes.items() if result is None or name not in result.probes}
    if result is not None and (result.failed is not None or not todo):
        return result
    try:
        if result is None:
            say("fresh weights" if cell.arm == UNTRAINED else "training")
            _train(experiment, cell, data=data, device=device, quiet=quiet)
            result = _begun(cell)
        say(f"probes {', '.join(todo)}")
        subject = Subject(
            run=cell.run,
            data=data,
            folder=None,
            seed=cell.seed,
            device=device,
            sentences=experiment.probe_sentences,
            pairs=experiment.probe_pairs,
        )
        metrics = {**result.metrics, **probe(todo, subject)}
        result = replace(result, probes=(*result.probes, *todo), metrics=metrics)
    except Diverged as error:
        result = replace(_begun(cell), failed=str(error))
        say(f"FAILED: {error}")
    write_result(result)
    return result


def _train(experiment: Experiment, cell: Cell, *, data: Path, device: str, quiet: bool) -> None:
    config = experiment.config(cell)
    if cell.arm == UNTRAINED:
        initial_run(config, Store.open(data), cell.run)
    else:
        pretrain(config, data, out=cell.run, device=device, quiet=quiet)


def _begun(cell: Cell) -> Result:
    """A result before any probe."""
    return Result(arm=cell.arm, seed=cell.seed, root=cell.root, facts=facts(cell.run))


def facts(run: Path) -> dict[str, float]:
    """What a run took, by its newest checkpoint."""
    folder = RunFolder(run)
    saved, config = newest(folder.checkpoints, origin=folder.origin, timed=True), folder.config()
    flops = spent(config, saved.step)
    return {
        "steps": saved.step,
        "tokens": saved.step * config.tokens_per_step,
        "flops_paper": flops.paper,
        "flops_real": flops.real,
        "seconds": round(float(saved.state["seconds"]), 3),
        "parameters": parameters(config).joint,
    }


def initial_run(config: Config, store: Store, out: Path) -> None:
    """A run folder with the initial weights of a config as its only checkpoint, at step 0.

    Raises:
        ConfigError: another run is there.
    """
    folder = RunFolder(out)
    folder.open_for_writing()
    if folder.exists:
        if changed := differences(folder.config(), config):
            raise ConfigError(f"{out} began with other settings ({'; '.join(changed)}). Choose another --out.")
    else:
        begin_run(folder, config, store)
    objective = build(config)
    give_frequencies(objective, store)
    saved = state_of(objective, build_optimizer(objective, config.optimizer), step=0, seconds=0.0)
    save(folder.checkpoints, saved, origin=folder.origin, keep=1)


def amount_of(
    *, flops: float | None, steps: int | None, budget: str | None, match: Match | None
) -> tuple[Match, float]:
    """What the arms are matched on, and how much of it each is given.

    Raises:
        ConfigError: none or several amounts, or one that `match` is no measure of.
    """
    Length(flops=flops, steps=steps, budget=budget)  # checks each value, and that there is at most one
    fitting: tuple[Match, ...]
    if flops is not None:
        amount, fitting = float(flops), ("paper-flops", "real-flops")
    elif steps is not None:
        amount, fitting = float(steps), ("steps",)
    elif budget is not None:
        amount, fitting = seconds(budget), ("time",)
    else:
        raise ConfigError("how much each arm is given is not said: --flops 1e15, --steps 3000 or --budget 10m.")
    chosen = match or fitting[0]
    if chosen not in fitting:
        needs = {"paper-flops": "--flops", "real-flops": "--flops", "steps": "--steps", "time": "--budget"}[chosen]
        raise ConfigError(f"--match {chosen}: give {needs}.")
    return chosen, amount


def settle(config: Config, *, match: Match, amount: float, timing: Timing | None = None) -> Config:
    """`config` with the steps that spend `amount`; warm-up, decay and intervals are fitted to them (`with_steps`).

    Args:
        amount: operations, steps, or seconds.
        timing: of this arm on this machine, where `match` is "time".
    """
    if match == "time":
        return steps_for(Length(budget=f"{amount}s"), config, timing)
    steps = int(amount) if match == "steps" else steps_within(config, amount, counting=match)
    return steps_for(Length(steps=steps), config, None)


def steps_within(config: Config, flops: float, *, counting: Literal["paper-flops", "real-flops"]) -> int:
    """The most steps that cost no more than `flops`, at least 1."""
    return max(1, steps_for_flops(config, flops=flops, counting="paper" if counting == "paper-flops" else "real"))


def spent(config: Config, steps: int) -> Flops:
    """Operations of the first `steps` steps of a run."""
    return run_flops(config, steps=steps)
