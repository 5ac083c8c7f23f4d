"""The protocol of an objective: a module with two methods, and networks whose names say their roles.

The loop asks for the counts before any forward pass, adds them up over lanes and ranks, and divides each sum once. An
objective therefore knows no rank, no micro-batch, no precision and no optimizer.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from electra_trainer.batch import Losses, Masked
from electra_trainer.errors import ConfigError
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initial_weights import Weights
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.randomness import Rng, key
from electra_trainer.settings.config import Config, Model, generator_shape
from electra_trainer.settings.methods import ObjectiveSettings


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A network that is exported after training."""

    name: Literal["discriminator", "generator", "encoder"]
    network: nn.Module
    model: Model

    @property
    def architecture(self) -> Literal["ElectraForPreTraining", "ElectraForMaskedLM"]:
        """The class of transformers that has the same parameters."""
        return "ElectraForPreTraining" if isinstance(self.network, Discriminator) else "ElectraForMaskedLM"


class Objective(nn.Module, ABC):
    """A pre-training objective: networks and the losses between them.

    A subclass says whose settings it takes, `class Mine(Objective, settings=MineSettings)`; it is made with the whole
    config.
    """

    by_settings: ClassVar[dict[type[ObjectiveSettings], "type[Objective]"]] = {}

    settings: ObjectiveSettings

    def __init_subclass__(cls, *, settings: type[ObjectiveSettings] | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if settings is not None:
            Objective.by_settings[settings] = cls

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.settings = config, config.objective

    def weights(self, purpose: Literal["kept", "generator", "heads"]) -> Weights:
        """The source of initial weights for one network of the run: one for each name, so that arms with one seed begin
        alike.
        """
        return lambda name: torch.Generator().manual_seed(key(self.config.seed, f"weights/{purpose}/{name}"))

    @property
    def static(self) -> bool:
        """Whether all shapes follow from the batch's, and `rng` is asked for "sample" and `draws` alone: what a CUDA
        graph can record.
        """
        return True

    @property
    def draws(self) -> tuple[str, ...]:
        """Further purposes that `rng` is asked for, one number for each token of the lane."""
        return ()

    @abstractmethod
    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """Divisors of the sums: scalars, known before any forward pass."""

    @abstractmethod
    def forward(self, masked: Masked, rng: Rng, *, diagnose: bool = False) -> Losses:
        """Sums of the losses over a lane; with `diagnose` also diagnostics for the record."""

    def exported(self) -> list[Exported]:
        """The networks to keep, the one for downstream use first: the attributes `discriminator`, `encoder` and
        `generator`, as far as there are such networks. Further heads serve pre-training only.
        """
        names: tuple[Literal["discriminator", "encoder", "generator"], ...] = ("discriminator", "encoder", "generator")
        return [
            Exported(
                name=name,
                network=network,
                model=generator_shape(self.config) if name == "generator" else self.config.model,
            )
            for name in names
            if isinstance(network := getattr(self, name, None), Discriminator | TokenPredictor)
        ]


def build(config: Config) -> Objective:
    """The objective of `config`, with freshly initialised networks."""
    made = Objective.by_settings.get(type(config.objective))
    if made is None:
        raise ConfigError(f"objective {type(config.objective).__name__}: no class was defined with settings=… of it.")
    objective = made(config)
    for module in objective.modules():
        if isinstance(module, Encoder):
            module.last_layer = config.last_layer
    return objective


def slots(masked: Masked) -> Tensor:
    """Number of slots, a scalar."""
    return masked.slots_K.new_tensor(len(masked.slots_K))
