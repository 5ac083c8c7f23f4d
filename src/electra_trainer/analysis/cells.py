"""One cell of an experiment: train, probe, write down. Each part that is done already is not done again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from electra_trainer.analysis.experiment import UNTRAINED, Cell, Experiment, Say
from electra_trainer.analysis.matching import spent
from electra_trainer.analysis.probes import Subject, probe
from electra_trainer.analysis.result import Result, read_result, write_result
from electra_trainer.config import Config
from electra_trainer.config_io import differences
from electra_trainer.cost.parameters import parameters
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, Diverged
from electra_trainer.objectives import build
from electra_trainer.train.begin import begin_run
from electra_trainer.train.checkpoint import newest, save
from electra_trainer.train.loop import give_frequencies, pretrain, state_of
from electra_trainer.train.optim import build_optimizer
from electra_trainer.train.record import RunFolder


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
