"""One step of a run, computed again: its rows and documents, its text before and after corruption, its losses, and whether they match the record.

A step is a function of (weights, config, seed, step), so the nearest checkpoint before it is enough: the steps in between are trained again
in memory. Nothing is written into the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError, ConfigError, DataError, MissingInputError
from electra_trainer.inspection.replay_rows import ReplayedRow, rows_of_step
from electra_trainer.objectives import Objective, build
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.runs import checkpoint, verified
from electra_trainer.runs.run_folder import RunFolder, environment_facts, read_jsonl
from electra_trainer.settings.config import Config
from electra_trainer.train import device as devices
from electra_trainer.train import graph, optim, weights
from electra_trainer.train.step import Feed, StepResult

Tell = Callable[[str], None]
_PLACE = {"step", "tokens", "flops", "flops_real", "seconds", "tokens_per_second"}
"""Fields of a row of metrics.jsonl that its step did not compute."""
_FACTS = {
    "electra_trainer": "electra-trainer",
    "git": "the source's revision",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "cpu_capability": "the processor's instructions",
}
"""Facts in environment.json that the bits of a step depend on, and their names for people."""
_SEPARATE = "The text comes from separate forward passes that differ from the step in the last bits, so a sampled word may differ."


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A step, computed again."""

    step: int
    """Counted from 1, as in metrics.jsonl and in the log."""
    began: int
    """The step of the checkpoint that it was computed from; 0: the run's initial weights."""
    result: StepResult
    """Learning rate, gradient norm before clipping, and metrics; if they are not finite, the weights did not move."""
    recorded: dict[str, Any] | None
    """What metrics.jsonl records of this step; None if it has no row of it."""
    rows: list[ReplayedRow]
    """All rows of the batch, in order."""
    reservations: list[str]
    """Why the bits may differ from the run's, a sentence each."""

    @property
    def recomputed(self) -> int:
        """Steps trained again between that checkpoint and this step."""
        return self.step - 1 - self.began

    @property
    def documents_known(self) -> bool:
        """Whether the rows know their documents; a store of an earlier version does not."""
        return self.rows[0].documents is not None

    @property
    def computed(self) -> dict[str, float]:
        """The numbers that metrics.jsonl would hold."""
        found = self.result
        return {**found.metrics, "learning_rate": found.learning_rate, "gradient_norm": found.gradient_norm}

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Name -> (recorded, computed) of the numbers that do not match to the last bit."""
        if self.recorded is None:
            return {}
        theirs, mine = self.recorded, self.computed
        return {n: (theirs.get(n), mine.get(n)) for n in {**theirs, **mine} if theirs.get(n) != mine.get(n)}

    @property
    def identical(self) -> bool | None:
        """Whether all recorded numbers were reproduced to the last bit; None if none are recorded."""
        return None if self.recorded is None else not self.differences


def replay(
    run: str | Path, *, step: int, data: str | Path | None = None, device: str = "auto", tell: Tell = lambda _: None
) -> Replayed:
    """Compute a step of a run again.

    Args:
        run: the run folder; nothing in it is changed.
        step: from 1, as in metrics.jsonl; may be beyond the run's last step so far.
        data: the prepared folder; None: where it was when the run began.
        device: auto (the run's), cpu, cuda or cuda:N.
        tell: receives a line about anything slow and about each checkpoint that does not verify.

    Raises:
        ConfigError: no such step. MissingInputError, DataError: no run, or not the run's data. CheckpointError: the weights that it
        began with have changed since.
    """
    folder = RunFolder(Path(run))
    config, facts = folder.config(), folder.environment()
    if not 1 <= step <= config.schedule.steps:
        raise ConfigError(f"--step {step}: expected 1 to {config.schedule.steps}, the steps of {run}.")
    store = _store(folder, facts, data)
    where, precision, reservations = _machine(config, facts, device)
    objective = build(config)
    weights.give_frequencies(objective, store)
    objective.to(where)
    optimizer = optim.build_optimizer(objective, config.optimizer)
    feed = Feed.of(config, store, device=where, precision=precision)
    began = _restore_before(step, folder, objective, optimizer, tell)
    if step - 1 > began:
        tell(f"training again from step {began:,} to {step - 1:,} ({step - 1 - began:,} steps), in memory")
    phases = optim.Phases(config, objective)
    objective.train()
    for at in range(began, step - 1):
        graph.train_step(phases.at(at), optimizer, feed, step=at, diagnose=(at + 1) % config.log_every == 0)
    part = phases.at(step - 1)
    rows, metrics = rows_of_step(part, feed, store, step=step - 1)
    result = graph.train_step(part, optimizer, feed, step=step - 1, diagnose=True)
    graph.forget()
    if not result.finite:
        result = replace(result, metrics=metrics)
    elif result.metrics != metrics:
        reservations.append(_SEPARATE)
    return Replayed(
        step=step, began=began, result=result, recorded=_recorded(folder, step), rows=rows, reservations=reservations
    )


def _store(folder: RunFolder, facts: dict[str, Any], data: str | Path | None) -> Store:
    """The rows that the run was trained on."""
    noted = facts.get("data_folder")
    if data is None and not isinstance(noted, str):
        raise ConfigError(
            f"{folder.path}: does not record where its rows are. Give the folder that it was trained on with --data."
        )
    try:
        store = Store.open(Path(data if data is not None else str(noted)))
    except MissingInputError as error:
        if data is not None:
            raise
        raise MissingInputError(
            f"{noted}: the run was trained on this folder, which is not here. Give its place with --data ({error})"
        ) from None
    if facts.get("data") != store.identity:
        raise DataError(
            f"{store.folder}: these are not the rows that {folder.path} was trained on. Give that folder with --data."
        )
    return store


def _machine(config: Config, facts: dict[str, Any], device: str) -> tuple[torch.device, str, list[str]]:
    """The device and the precision, those of the run where they are known, and what differs here."""
    devices.use_threads()
    threads = facts.get("threads")
    if isinstance(threads, int) and 1 <= threads <= 1024:
        devices.set_threads(threads)
    noted = facts.get("device") or ("cuda" if facts.get("gpu") else "cpu")
    same = "cuda" if noted == "cuda" and torch.cuda.is_available() else "cpu"
    where = devices.choose_device(same if device == "auto" else device)
    theirs = facts.get("arithmetic")
    known = isinstance(theirs, str) and theirs[:4] in ("fp32", "bf16")
    precision = str(theirs)[:4] if known else devices.choose_precision(config.precision, where)
    mine, here, found = environment_facts(), devices.arithmetic(precision, where), []
    if where.type != noted:
        found.append(f"The run computed on {noted}, this is {where.type}: sums are in another order.")
    elif where.type == "cuda" and facts.get("gpu") != mine["gpu"]:
        found.append(f"The run computed on {facts.get('gpu')}, this is {mine['gpu']}.")
    if theirs not in (None, here):
        found.append(f"The run computed in {theirs}, this is {here}.")
    if not config.deterministic and facts.get("processes", 1) != 1:
        found.append(
            f"The run had {facts['processes']} processes and no --deterministic: gradients were added in another order."
        )
    found += [
        f"When the run began, {what} was {facts.get(name)}, here it is {mine[name]}."
        for name, what in _FACTS.items()
        if facts.get(name) != mine[name]
    ]
    return where, precision, found


def _restore_before(step: int, folder: RunFolder, objective: Objective, optimizer: Optimizer, tell: Tell) -> int:
    """Restore the newest checkpoint before `step` that verifies, or else the initial weights; returns its step, or 0."""
    for path in reversed([path for at, path in checkpoint.numbered(folder.checkpoints) if at < step]):
        try:
            saved = verified.read(path, origin=folder.origin, network=lambda: objective)
        except CheckpointError as error:
            tell(f"{error} Trying the checkpoint before it.")
            continue
        weights.restore(objective, saved.weights)
        optim.load_optimizer_tensors(objective, optimizer, saved.optimizer.items())
        return saved.step
    if isinstance(init := folder.environment().get("init"), dict):
        initial = InitFrom(name=str(init.get("name"))).read()
        if initial.identity != init:
            raise CheckpointError(
                f"{folder.path}: began with the weights of {init.get('name')}, which have changed since, and no checkpoint before step "
                f"{step} is left. Put them back, or replay a later step."
            )
        weights.begin_with(objective, initial)
    return 0


def _recorded(folder: RunFolder, step: int) -> dict[str, Any] | None:
    """The numbers of the step in metrics.jsonl."""
    path = folder.path / "metrics.jsonl"
    rows = read_jsonl(path) if path.exists() else []
    mine = [row for row in rows if row.get("step") == step and "split" not in row]
    return {name: value for name, value in mine[-1].items() if name not in _PLACE} if mine else None
