"""Fine-tuning in NumPy, float64, a row at a time and without padding: forward, backward by hand, clipping, Adam.

Written from the released code's description and the paper, with nothing of the package in it. Parameters are a dictionary by
transformers' names; matrices are [out, in].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import erf

Array = np.ndarray[Any, np.dtype[np.float64]]
Weights = dict[str, Array]
EPS = 1e-12  # of LayerNorm


@dataclass(frozen=True, kw_only=True)
class Example:
    ids: Sequence[int]
    segments: Sequence[int]
    label: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    layers: int
    heads: int


# --------------------------------------------------------------------------------------------- parts, each with its way back


class Pass:
    """One row's forward pass; `back` runs it in reverse and adds to `grad`."""

    def __init__(self, weights: Weights, grad: Weights) -> None:
        self.w, self.grad = weights, grad

    def linear(self, name: str, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        weight = self.w[f"{name}.weight"]

        def back(d: Array) -> Array:
            self.grad[f"{name}.weight"] += d.T @ x
            self.grad[f"{name}.bias"] += d.sum(0)
            return d @ weight

        return x @ weight.T + self.w[f"{name}.bias"], back

    def norm(self, name: str, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        gain = self.w[f"{name}.weight"]
        centred = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
        unit = centred / deviation

        def back(d: Array) -> Array:
            self.grad[f"{name}.weight"] += (d * unit).sum(0)
            self.grad[f"{name}.bias"] += d.sum(0)
            g = d * gain
            mean, along = g.mean(-1, keepdims=True), (g * unit).mean(-1, keepdims=True)
            return (g - mean - unit * along) / deviation

        return unit * gain + self.w[f"{name}.bias"], back

    def embed(self, example: Example) -> tuple[Array, Callable[[Array], None]]:
        ids, segments = np.asarray(example.ids), np.asarray(example.segments)
        word, position, kind = (f"electra.embeddings.{n}_embeddings.weight" for n in ("word", "position", "token_type"))
        summed = self.w[word][ids] + self.w[position][: len(ids)] + self.w[kind][segments]
        normed, back_norm = self.norm("electra.embeddings.LayerNorm", summed)
        projects = "electra.embeddings_project.weight" in self.w
        out, back_project = self.linear("electra.embeddings_project", normed) if projects else (normed, lambda d: d)

        def back(d: Array) -> None:
            d = back_norm(back_project(d))
            np.add.at(self.grad[word], ids, d)
            self.grad[position][: len(ids)] += d
            np.add.at(self.grad[kind], segments, d)

        return out, back

    def attend(self, name: str, x: Array, heads: int) -> tuple[Array, Callable[[Array], Array]]:
        tokens, width = x.shape
        size = width // heads
        projected = [self.linear(f"{name}.self.{part}", x) for part in ("query", "key", "value")]
        q, k, v = (out.reshape(tokens, heads, size).transpose(1, 0, 2) for out, _ in projected)
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(size)
        exponentials = np.exp(scores - scores.max(-1, keepdims=True))
        shares = exponentials / exponentials.sum(-1, keepdims=True)
        mixed = (shares @ v).transpose(1, 0, 2).reshape(tokens, width)
        out, back_out = self.linear(f"{name}.output.dense", mixed)
        y, back_norm = self.norm(f"{name}.output.LayerNorm", out + x)

        def back(d: Array) -> Array:
            d_sum = back_norm(d)
            d_mixed = back_out(d_sum).reshape(tokens, heads, size).transpose(1, 0, 2)
            d_shares = d_mixed @ v.transpose(0, 2, 1)
            d_scores = shares * (d_shares - (d_shares * shares).sum(-1, keepdims=True)) / math.sqrt(size)
            each = (d_scores @ k, d_scores.transpose(0, 2, 1) @ q, shares.transpose(0, 2, 1) @ d_mixed)
            flat = [part.transpose(1, 0, 2).reshape(tokens, width) for part in each]
            return d_sum + sum(way_back(part) for (_, way_back), part in zip(projected, flat, strict=True))

        return y, back

    def feed_forward(self, name: str, x: Array) -> tuple[Array, Callable[[Array], Array]]:
        wide, back_wide = self.linear(f"{name}.intermediate.dense", x)
        below = (1 + erf(wide / math.sqrt(2))) / 2  # the normal distribution's share below
        out, back_out = self.linear(f"{name}.output.dense", wide * below)
        y, back_norm = self.norm(f"{name}.output.LayerNorm", out + x)

        def back(d: Array) -> Array:
            d_sum = back_norm(d)
            slope = below + wide * np.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)
            return d_sum + back_wide(back_out(d_sum) * slope)

        return y, back

    def encode(self, example: Example, shape: Shape) -> tuple[Array, Callable[[Array], None]]:
        hidden, back_embed = self.embed(example)
        steps: list[Callable[[Array], Array]] = []
        for layer in range(shape.layers):
            name = f"electra.encoder.layer.{layer}"
            hidden, back_attention = self.attend(f"{name}.attention", hidden, shape.heads)
            hidden, back_feed_forward = self.feed_forward(name, hidden)
            steps += [back_attention, back_feed_forward]

        def back(d: Array) -> None:
            for step in reversed(steps):
                d = step(d)
            back_embed(d)

        return hidden, back


def hidden_states(weights: Weights, example: Example, shape: Shape) -> Array:
    """[T, D] of one row."""
    return Pass(weights, {}).encode(example, shape)[0]


def loss_and_gradient(weights: Weights, examples: Sequence[Example], shape: Shape) -> tuple[float, Weights]:
    """Cross-entropy of one linear layer upon [CLS], summed over the rows."""
    grad = {name: np.zeros_like(values) for name, values in weights.items()}
    total = 0.0
    for example in examples:
        row = Pass(weights, grad)
        hidden, back = row.encode(example, shape)
        logits, back_head = row.linear("head", hidden[:1])
        exponentials = np.exp(logits - logits.max())
        shares = exponentials / exponentials.sum()
        total -= math.log(shares[0, example.label])
        shares[0, example.label] -= 1
        d_hidden = np.zeros_like(hidden)
        d_hidden[:1] = back_head(shares)
        back(d_hidden)
    return total, grad


# --------------------------------------------------------------------------------------------- the step


def norm_of(grad: Weights) -> float:
    """Global norm of a gradient."""
    return math.sqrt(sum(float((g**2).sum()) for g in grad.values()))


def released_rate(step: int, *, peak: float, steps: int, warmup: int) -> float:
    """Decay times warm-up at t = step + 1."""
    t = step + 1
    return peak * (1 - t / steps) * min(1.0, t / warmup)


def linear_rate(step: int, *, peak: float, steps: int, warmup: int) -> float:
    """Up to the peak at t = warmup, then straight down to 0 at t = steps; t = step + 1."""
    t = step + 1
    return peak * (t / warmup if t <= warmup else (steps - t) / (steps - warmup))


class Adam:
    """b1 0.9, b2 0.999, eps 1e-6 outside the root, no bias correction; the decay is inside the product with the rate."""

    def __init__(self, weights: Weights) -> None:
        self.mean = {name: np.zeros_like(values) for name, values in weights.items()}
        self.square = {name: np.zeros_like(values) for name, values in weights.items()}

    def step(self, weights: Weights, grad: Weights, *, rate: float, share: dict[str, float], decay: float) -> None:
        clip = min(1.0, 1.0 / norm_of(grad))
        for name, values in weights.items():
            g = grad[name] * clip
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * g
            self.square[name] = 0.999 * self.square[name] + 0.001 * g**2
            update = self.mean[name] / (np.sqrt(self.square[name]) + 1e-6)
            if values.ndim == 2:  # matrices and tables of embeddings; biases, gains and shifts are vectors
                update += decay * values
            weights[name] = values - rate * share[name] * update
