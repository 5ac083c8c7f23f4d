"""`electra compare`: objectives at equal compute, every arm with every seed a run of its own, and what the runs say.

The line of this file: declare (experiment.json), run the cells of this shard (cells.py), sum up (summary.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from electra_trainer.analysis import experiment as on_disk
from electra_trainer.analysis.cells import identity, run_cell
from electra_trainer.analysis.experiment import UNTRAINED, Experiment, Match, arm_config, cells
from electra_trainer.analysis.matching import amount_of, settle
from electra_trainer.analysis.probes import METRICS, PROBES, fingerprint, parse_probes
from electra_trainer.analysis.summary import FACTS, Summary, summarize, write_summary
from electra_trainer.config import Config
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, DataError, ElectraError, did_you_mean
from electra_trainer.train.device import choose_device, choose_precision, use_threads
from electra_trainer.train.plan import fit_to_data, measure_time


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
        **identity(store),
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
            run_cell(experiment, cell, out=out, data=data, device=device, quiet=quiet, say=partial(_say, quiet, where))
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
