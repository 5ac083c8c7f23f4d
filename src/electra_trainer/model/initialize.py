"""Initial weights, as the released code draws them.

Truncated normal (0.02, cut at two standard deviations) everywhere, but Glorot-uniform for `embeddings_project` and for the
discriminator's last layer; biases 0, LayerNorm 1 and 0. With `initializer = "fan-in"` the standard deviation is
1/sqrt(inputs) instead of 0.02: a narrow model does not leave the unigram plateau otherwise (records/).
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

from electra_trainer.config import Model

Network = TypeVar("Network", bound=nn.Module)


def initialize(network: Network, model: Model, generator: torch.Generator, *, leave: nn.Module | None = None) -> Network:
    """Draw all weights of `network` in place, in the order of its parameters' names; `leave` is a submodule to skip."""
    skip = {id(parameter) for parameter in leave.parameters()} if leave is not None else set()
    for name, parameter in sorted(network.named_parameters()):
        if id(parameter) in skip:
            continue
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif "LayerNorm" in name:
                parameter.fill_(1.0)
            elif "embeddings_project" in name or "dense_prediction" in name:
                nn.init.xavier_uniform_(parameter, generator=generator)
            else:
                # nn.Linear weights are [outputs, inputs]; embedding tables [words, width]: the last axis either way
                std = model.initializer_range if model.initializer == "truncated-normal" else parameter.shape[-1] ** -0.5
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
    return network


TRUNCATED_STD = math.sqrt(1 - 4 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))
"""What cutting at two standard deviations leaves of one: 0.8796."""
