"""Weights of an objective: the tensors that a checkpoint stores, and restoring them."""

from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor, nn

from electra_trainer.data.batches import uniform_counts, word_counts
from electra_trainer.data.store import Store
from electra_trainer.errors import CheckpointError
from electra_trainer.model.networks import WordFrequencies
from electra_trainer.objectives import Objective, build
from electra_trainer.runs.checkpoint import of_step
from electra_trainer.runs.run_folder import RunFolder
from electra_trainer.runs.verified import Saved
from electra_trainer.settings.config import Config, Optimizer
from electra_trainer.settings.methods import Unigram
from electra_trainer.train.optim import SLOTS, layer_matrices, optimizer_tensors


def stored(network: nn.Module) -> dict[str, Tensor]:
    """The tensors of networks that a checkpoint stores: parameters, shared ones named once, and buffers such as word
    frequencies.
    """
    return {**dict(network.named_parameters()), **dict(network.named_buffers())}


def check_tensors(what: str, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Refuse tensors of a checkpoint whose names, shapes or types of numbers are not those expected.

    Raises:
        CheckpointError: names the first one.
    """
    for name in sorted(found.keys() | expected.keys()):
        there, here = (
            f"{str(one[name].dtype).removeprefix('torch.')} {tuple(one[name].shape)}" if name in one else "not there"
            for one in (found, expected)
        )
        if there != here:
            raise CheckpointError(f"{what} {name}: {there} in the checkpoint, {here} in this config.")


def restore(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy a checkpoint's weights into networks of the same config.

    Raises:
        CheckpointError: names, shapes or types of numbers differ.
    """
    mine = stored(network)
    check_tensors("tensor", weights, mine)
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(weights[name])


def check_optimizer_tensors(network: nn.Module, tensors: Mapping[str, Tensor], settings: Optimizer) -> None:
    """Refuse tensors that are not the state of the optimizer that `settings` names, of this network.

    Raises:
        CheckpointError: a tensor belongs to no parameter, or has another shape or type; or a parameter lacks some of
            its slots.
    """
    matrices = layer_matrices(network) if settings.name == "muon" else {}
    with_state = {full.rpartition("/")[0] for full in tensors}
    expected = {
        f"{name}/{slot}": torch.empty(() if slot == "step" else parameter.shape, dtype=parameter.dtype, device="meta")
        for name, parameter in network.named_parameters()
        if name in with_state
        for slot in (("exp_avg",) if parameter in matrices else SLOTS)
    }
    check_tensors("the optimizer's tensor", tensors, expected)


def trained(folder: RunFolder, config: Config, *, step: int | None = None) -> tuple[Objective, int]:
    """The networks of a run with the weights of a checkpoint, by default the newest, and its step.

    They are built only when the checkpoint is known to be the run's: a config.json may ask for any size. Weights that
    `electra export --as run` stored in 16 bits become fp32.

    Raises:
        MissingInputError, CheckpointError, StorageError: as checkpoint.of_step and `restore`.
    """
    built = cache(partial(build, config))
    saved = of_step(folder.checkpoints, step, origin=folder.origin, network=built)
    halves = {name: one.float() for name, one in saved.weights.items() if one.dtype in (torch.float16, torch.bfloat16)}
    restore(built(), saved.weights | halves)
    return built(), saved.step


def state_of(
    network: nn.Module, optimizer: torch.optim.Optimizer, *, step: int, seconds: float, bad_steps: int = 0
) -> Saved:
    """The content of a checkpoint of a run."""
    moments, state = optimizer_tensors(network, optimizer), {"seconds": seconds, "bad_steps": bad_steps}
    return Saved(step=step, weights=stored(network), optimizer=moments, state=state)


def give_frequencies(objective: Objective, store: Store) -> None:
    """Give a generator that samples by word frequency those of the training rows."""
    for module in objective.modules():
        if isinstance(module, WordFrequencies):
            settings = objective.config.generator
            counts = getattr(settings, "counts", word_counts if isinstance(settings, Unigram) else uniform_counts)
            module.use(torch.from_numpy(counts(store)))
