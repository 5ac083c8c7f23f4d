"""Parameters that a loss reaches, and inputs of the brute-force tests of objectives."""

import copy
import dataclasses
from typing import Any

import torch
from tests.methods.every import without_dropout
from tests.small import WORDS, batch, config, masker, rows
from torch import Tensor, nn

from electra_trainer.batch import Losses, Masked
from electra_trainer.objectives import Objective, build
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config

RNG = Rng(1, 0, 0)


def lively(*, vocab_size: int = WORDS, **changes: Any) -> Config:
    """The small configuration without dropout and with initial weights large enough that the networks say something."""
    model = dataclasses.replace(config().model, initializer="fan-in", vocab_size=vocab_size)
    return without_dropout(dataclasses.replace(config(), model=model, **changes))


def made(settings: Config) -> Any:
    """Its objective, in evaluation mode."""
    return build(settings).eval()


def masked_rows(settings: Config, count: int = 12, *, seed: int = 0) -> Masked:
    return masker(settings)(batch(rows(count, seed=seed)), RNG)


def with_unused_slots(masked: Masked, many: int = 7) -> Masked:
    """Masks with slots at the end that are not used, as a step of fixed shapes has them."""
    return dataclasses.replace(masked, slots_K=torch.cat([masked.slots_K, masked.slots_K.new_full((many,), -1)]))


def losses(objective: nn.Module, masked: Masked, rng: Rng = RNG) -> Losses:
    found: Losses = objective(masked, rng, diagnose=True)
    return found


def gradients(objective: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Gradient of `loss` by name, of those parameters that it depends on."""
    names, parameters = zip(*objective.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
    return {name: gradient for name, gradient in zip(names, found, strict=True) if gradient is not None}


def reached(objective: nn.Module, loss: Tensor) -> set[str]:
    """The parameters that `loss` depends on; none of their gradients is 0 everywhere."""
    found = gradients(objective, loss)
    assert [name for name, gradient in found.items() if not gradient.any()] == []
    return set(found)


def named(objective: nn.Module, *prefixes: str) -> set[str]:
    """All parameters whose name begins with one of these, each of which begins some; a shared one goes by its first name."""
    names = [name for name, _ in objective.named_parameters()]
    assert all(any(name.startswith(prefix) for name in names) for prefix in prefixes), prefixes
    return {name for name in names if name.startswith(prefixes)}


def distance(mine: dict[str, Tensor], plain: dict[str, Tensor]) -> float:
    """Relative distance of two gradients, taken together."""
    assert mine.keys() == plain.keys()
    off = sum(float((mine[name].double() - plain[name].double()).square().sum()) for name in mine)
    return (off / sum(float(gradient.double().square().sum()) for gradient in plain.values())) ** 0.5


def in_float64(objective: Objective) -> Any:
    """A copy in double precision, for what is computed the plain way."""
    return copy.deepcopy(objective).double()
