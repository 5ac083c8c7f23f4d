"""Initial weights, as the released code draws them.

Truncated normal (0.02, cut at two standard deviations) everywhere, but Glorot-uniform for `embeddings_project` and for the
discriminator's last layer; biases 0, LayerNorm 1 and 0. With `initializer = "fan-in"` the standard deviation is
1/sqrt(inputs) instead of 0.02, and with `position_initializer = "sinusoidal"` positions begin as waves: a narrow model leaves the
unigram plateau sooner (records/2026-11-20-tiny-choice).
"""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from electra_trainer.settings.config import Model

Network = TypeVar("Network", bound=nn.Module)
Weights = Callable[[str], torch.Generator]
"""The source of random numbers for the parameter of that name: its own, so that networks that differ elsewhere begin alike."""


def initialize(network: Network, model: Model, weights: Weights, *, leave: nn.Module | None = None) -> Network:
    """Draw all weights of `network` in place, each from the source of its name; `leave` is a submodule to skip."""
    skip = {id(parameter) for parameter in leave.parameters()} if leave is not None else set()
    for name, parameter in network.named_parameters():
        if id(parameter) in skip:
            continue
        generator = weights(name)
        with torch.no_grad():
            if name.endswith("bias"):
                parameter.zero_()
            elif "LayerNorm" in name:
                parameter.fill_(1.0)
            elif "embeddings_project" in name or "dense_prediction" in name:
                nn.init.xavier_uniform_(parameter, generator=generator)
            elif "position_embeddings" in name and model.position_initializer == "sinusoidal":
                parameter.copy_(waves(*parameter.shape) * math.sqrt(2) * parameter.shape[-1] ** -0.5)
            else:
                # nn.Linear weights are [outputs, inputs]; embedding tables [words, width]: the last axis either way
                std = (
                    model.initializer_range if model.initializer == "truncated-normal" else parameter.shape[-1] ** -0.5
                )
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std, generator=generator)
    return network


def waves(positions: int, width: int) -> Tensor:
    """Sines and cosines of falling frequency, [positions, width], as in the first transformer (Vaswani et al., 2017)."""
    frequency_W = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angle_PW = torch.arange(positions)[:, None] * frequency_W
    return torch.stack([angle_PW.sin(), angle_PW.cos()], dim=-1).flatten(1)[:, :width]
