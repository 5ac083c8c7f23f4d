"""Initial weights: a module's class says from which distribution its weights are drawn."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar

import torch
from torch import nn

from electra_trainer.settings.config import Model

Network = TypeVar("Network", bound=nn.Module)
Weights = Callable[[str], torch.Generator]
"""The source of random numbers for the parameter of that name: its own, so that networks that differ elsewhere begin
alike.
"""


class GlorotLinear(nn.Linear):
    """A linear layer whose weights are drawn Glorot-uniform."""


class ResidualLinear(nn.Linear):
    """A linear layer of the modern block that adds to the residual sum: its weights are divided by sqrt(2 layers)."""

    computes: ClassVar[Literal["modern"]] = "modern"


@torch.no_grad()
def initialize(network: Network, model: Model, weights: Weights, *, leave: nn.Module | None = None) -> Network:
    """Draw all weights of `network` in place, each from the source of its name, as the released code draws them.

    Truncated normal (0.02, cut at two standard deviations), but for the two classes above; biases 0, LayerNorm 1 and 0.
    With `initializer = "fan-in"` the standard deviation is 1/sqrt(inputs) instead of 0.02.

    Args:
        model: the shape of this network.
        leave: a submodule to skip.
    """
    skip = {id(parameter) for parameter in leave.parameters()} if leave is not None else set()
    for path, module in network.named_modules():
        for name, parameter in module.named_parameters(prefix=path, recurse=False):
            if id(parameter) in skip:
                continue
            if name.endswith("bias"):
                parameter.zero_()
            elif isinstance(module, nn.LayerNorm):
                parameter.fill_(1.0)
            elif isinstance(module, GlorotLinear):
                nn.init.xavier_uniform_(parameter, generator=weights(name))
            else:
                # nn.Linear weights are [outputs, inputs]; embedding tables [words, width]: the last axis either way
                fan_in = parameter.shape[-1] ** -0.5
                std = fan_in if model.initializer == "fan-in" else model.initializer_range
                if isinstance(module, ResidualLinear):
                    std /= math.sqrt(2 * model.num_hidden_layers)
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=weights(name))
    return network
