"""Train a run longer (`--continue-from RUN[@STEP]`): a new run continues from one of its checkpoints, with moments and
step count.

Steps are numbered on, so rows, masks, dropout and learning rate of a step are those that its number has in the new run.
With equal settings it is the old run, bit for bit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from electra_trainer.cost.flops import run_cost
from electra_trainer.data.store import Store
from electra_trainer.errors import ConfigError, refuse_if
from electra_trainer.objectives import build
from electra_trainer.runs import checkpoint, verified
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.settings import records
from electra_trainer.settings.config import Config
from electra_trainer.train.optim import rate_at

_TENSORS = tuple(
    "model. generator. sharing: objective.kind objective.width phases.kind phases.start optimizer.name".split()
)
"""Beginnings of the settings that weights and moments belong to; the others may change."""


@dataclass(frozen=True, kw_only=True)
class Continued:
    """A run's state, for a new run to go on from."""

    name: str
    """As it was given."""
    folder: RunFolder
    saved: verified.Saved
    sha256: str
    """Checkpoint of weights and moments."""

    @property
    def identity(self) -> dict[str, Any]:
        """Facts that the new run records."""
        cost = run_cost(self.folder.config(), steps=self.saved.step, began=self.folder.continued)
        return {"name": self.name, "sha256": self.sha256, "step": self.saved.step, **cost}

    def facts(self, config: Config) -> str:
        """A line for the log of the new run, of `config`: where it continues, and whether the learning rate does."""
        step = self.saved.step
        before, after = (rate_at(step, each) for each in (self.folder.config(), config))
        return f"continues {self.folder.path} after step {step:,}: learning rate {before:.3g} there, {after:.3g} here"


def same_weights(one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
    """Whether two facts on what a run begins with (`identity`) are of the same weights."""
    return all(one.get(name) == two.get(name) for name in ("name", "sha256", "step"))


@dataclass(frozen=True, kw_only=True)
class ContinueFrom:
    """A run to go on from, `RUN` (its newest checkpoint) or `RUN@STEP`."""

    flag: ClassVar = "--continue-from"
    name: str
    step: int | None = None
    """The checkpoint, where the name says none."""

    def read(self) -> Continued:
        """Read its state.

        Raises:
            MissingInputError: there is no such run or checkpoint. CheckpointError, StorageError: it cannot be used or
                read.
        """
        path, named = records.run_and_step(self.name)
        step, folder = self.step if named is None else named, RunFolder(path)
        config, origin = folder.config(), folder.origin
        saved = checkpoint.of_step(folder.checkpoints, step, origin=origin, network=lambda: build(config), timed=True)
        if saved.step and not saved.optimizer:
            raise ConfigError(f"--continue-from {self.name}: has weights without moments. Give --init {self.name}.")
        digest = hashlib.sha256()
        for tensors in (saved.weights, saved.optimizer):
            for piece in verified.TensorFile(tensors):
                digest.update(piece)
        return Continued(name=self.name, folder=folder, saved=saved, sha256=digest.hexdigest())


def check_continued(continued: Continued, config: Config, store: Store) -> None:
    """Refuse a state that a run of `config` on these rows cannot go on from.

    Raises:
        ConfigError: another vocabulary, other networks or another optimizer; the steps are done already; or the switch
            of stages moves and does not lie ahead in both.
    """
    facts, folder, step = f"--continue-from {continued.name}:", continued.folder, continued.saved.step
    theirs, steps, turn = folder.config(), config.schedule.steps, config.first_stage_steps
    theirs_turn = theirs.first_stage_steps
    odd = [one for one in records.differences(theirs, config) if one.startswith(_TENSORS)]
    faults = {
        f"{facts} {store.folder} was prepared with another tokenizer. Take --tokenizer {folder.tokenizer}.": (
            folder.fact(str, "data", "tokenizer_sha256") != store.manifest.tokenizer_sha256
        ),
        f"{facts} weights and moments are those of other settings ({'; '.join(odd)}). Leave these flags out, or take "
        "the weights alone with --init.": bool(odd),
        f"{facts} is at step {step:,}, and the new run has {steps:,} steps, counted from the first step of the old "
        "one. Give more --steps, or name an earlier checkpoint with @STEP.": step >= steps,
        f"{facts} the second stage of two-stage training begins after step {theirs_turn:,} there and after step "
        f"{turn:,} here, and step {step:,} lies beyond one of them. Set --phases.share so that they agree, or name an "
        "earlier checkpoint with @STEP.": theirs_turn != turn and step > min(theirs_turn, turn),
    }
    refuse_if(faults)
