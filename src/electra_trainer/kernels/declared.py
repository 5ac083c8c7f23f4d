"""Declarations of the block that a stack of layers computes, class by class."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from electra_trainer.settings.config import Block

_LIBRARY = (nn.ModuleList, nn.Linear, nn.LayerNorm, nn.Identity)


def other_class(layers: nn.Module, block: Block) -> str:
    """Name of the first class inside that does not itself declare to be a part of `block`; empty if all do.

    A subclass does not inherit the declaration: one with another activation, norm or position encoding may have the
    same parameters, and
    must run as PyTorch code until it declares what it computes.
    """
    types: Iterator[Any] = map(type, layers.modules())
    kinds = (kind for kind in types if kind not in _LIBRARY)
    return next((kind.__name__ for kind in kinds if vars(kind).get("computes") not in (block, "any")), "")
