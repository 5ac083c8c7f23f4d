"""A start from which attention is local: positions are waves, and heads of the first layer find their neighbours by
them.

Not in the paper. With random weights a small network predicts word frequencies for millions of tokens, until its heads
have learned to look at the neighbours; with this start it leaves that plateau within one
(records/2026-11-23-local-start). Nothing is added to the network.
"""

import math

import torch
from torch import Tensor

from electra_trainer.settings.config import Model

_OFFSETS = (-1, 1, -2, 2)
"""Where the first heads look, in tokens; further heads begin as all weights do."""
_WIDTH = 32
"""Dimensions of the embeddings that hold positions, at most."""
_PEAK = 4.5
"""Nats by which a head prefers its neighbour to a position far away."""
_KEPT = 0.3
"""Factor of the random weights of these heads."""
_TRUNCATED = 0.774
"""Variance of a normal distribution that is cut at two standard deviations, over what it was."""


def begin_local(name: str, weight: Tensor, model: Model) -> None:
    """Change one freshly drawn weight in place, if it is the table of positions, a projection of embeddings, or of the
    first layer's heads.

    Args:
        name: of the parameter, as in transformers.
        weight: float [P, E], [D, E] or [D, D].
        model: the shape of this network.
    """
    std = model.initializer_range if model.initializer == "truncated-normal" else model.embedding_size**-0.5
    size = model.hidden_size // model.num_attention_heads
    pairs = min(_WIDTH, size, model.embedding_size) // 2
    # a harmonic series would repeat itself after 64 tokens
    frequency_P = math.pi * ((torch.arange(pairs) + 0.5) / pairs) ** 1.2
    if "position_embeddings" in name:
        angle_TP = torch.arange(len(weight))[:, None] * frequency_P
        weight.zero_()
        waves_TW = torch.stack([angle_TP.cos(), angle_TP.sin()], dim=-1).flatten(1)
        weight[:, : 2 * pairs] = waves_TW * std * (model.embedding_size / pairs) ** 0.5
    elif "embeddings_project.weight" in name:
        weight[: 2 * pairs] = torch.eye(weight.shape[1])[: 2 * pairs]
    elif ".layer.0.attention.self." in name and name.endswith(("query.weight", "key.weight")):
        # LayerNorm divides by the root of the mean square of a word, a segment and a position
        squared_amplitude = model.embedding_size / pairs / (1 + 2 * _TRUNCATED)
        scale = math.sqrt(_PEAK * math.sqrt(size) / (pairs * squared_amplitude))
        for head, offset in enumerate(_OFFSETS[: model.num_attention_heads]):
            turn_P = frequency_P * offset if name.endswith("query.weight") else torch.zeros(pairs)
            cos_P, sin_P = scale * turn_P.cos(), scale * turn_P.sin()
            block = weight[head * size : (head + 1) * size]
            block.mul_(_KEPT)
            even = torch.arange(0, 2 * pairs, 2)  # each pair of dimensions is turned by its own angle
            block[even, even] += cos_P
            block[even, even + 1] -= sin_P
            block[even + 1, even] += sin_P
            block[even + 1, even + 1] += cos_P
