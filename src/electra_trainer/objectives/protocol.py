"""What an objective is: a module with three methods.

The loop asks for the counts before any forward pass, adds them up over lanes and ranks, and divides each sum once. An
objective therefore knows no rank, no micro-batch, no precision and no optimizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from electra_trainer.batch import Losses, Masked
from electra_trainer.config import Config, Model
from electra_trainer.randomness import Rng, key


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A network that is handed on after training."""

    name: Literal["discriminator", "generator", "encoder"]
    network: nn.Module
    model: Model
    architecture: Literal["ElectraForPreTraining", "ElectraForMaskedLM"]
    """The class of transformers that has the same parameters."""


class Objective(nn.Module, ABC):
    """A pre-training objective: networks and the losses between them."""

    @abstractmethod
    def counts(self, masked: Masked) -> dict[str, Tensor]:
        """What the sums will be divided by: scalars, known before any forward pass."""

    @abstractmethod
    def forward(self, masked: Masked, rng: Rng, *, look: bool = False) -> Losses:
        """Sums of the losses over a lane; with `look` also what the record shows."""

    @abstractmethod
    def exported(self) -> list[Exported]:
        """The networks to keep, the encoder for downstream use first."""


def weight_generator(config: Config, purpose: str) -> torch.Generator:
    """The generator of initial weights for one network of a run."""
    return torch.Generator().manual_seed(key(config.seed, f"weights/{purpose}"))
