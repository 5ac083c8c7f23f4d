"""The three optimizers against their equations in float64, over several steps, decay groups and a saved state included."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from electra_trainer.settings.config import Optimizer
from electra_trainer.train.optim import build_optimizer, load_optimizer_tensors, optimizer_tensors

Name = Literal["adam", "adamw", "lamb"]
Vector = NDArray[np.float64]
NAMES: tuple[Name, ...] = ("adam", "adamw", "lamb")
RATES = (1e-2, 3e-2, 2e-2, 5e-3, 0.0, 1e-2)


class Net(nn.Module):
    """One of each kind: a matrix and an embedding, which decay; a bias and a LayerNorm, which do not."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(1)
        self.dense = nn.Linear(5, 4)
        self.words = nn.Embedding(6, 3)
        self.LayerNorm = nn.LayerNorm(4)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=random)


def settings(name: Name) -> Optimizer:
    return Optimizer(name=name, learning_rate=1.0, weight_decay=0.1)


def gradients(step: int) -> dict[str, Tensor]:
    """Gradients of very different sizes, down to where epsilon matters."""
    random = torch.Generator().manual_seed(100 + step)
    sizes = {
        "dense.weight": 1.0,
        "dense.bias": 1e-3,
        "words.weight": 1e-6,
        "LayerNorm.weight": 10.0,
        "LayerNorm.bias": 1e-7,
    }
    return {name: sizes[name] * torch.randn(p.shape, generator=random) for name, p in Net().named_parameters()}


def take_step(net: Net, optimizer: torch.optim.Optimizer, step: int) -> None:
    for name, gradient in gradients(step).items():
        net.get_parameter(name).grad = gradient
    for group in optimizer.param_groups:
        group["lr"] = RATES[step]
    optimizer.step()


def adam(p: Vector, g: Vector, m: Vector, v: Vector, t: int, lr: float, decay: float, eps: float) -> Vector:
    """Released: no bias correction, epsilon outside the root, decay inside the product with the learning rate."""
    return p - lr * (m / (np.sqrt(v) + eps) + decay * p)


def adamw(p: Vector, g: Vector, m: Vector, v: Vector, t: int, lr: float, decay: float, eps: float) -> Vector:
    mean, square = m / (1 - 0.9**t), v / (1 - 0.999**t)
    return p - lr * (mean / (np.sqrt(square) + eps) + decay * p)


def lamb(p: Vector, g: Vector, m: Vector, v: Vector, t: int, lr: float, decay: float, eps: float) -> Vector:
    mean, square = m / (1 - 0.9**t), v / (1 - 0.999**t)
    update = mean / (np.sqrt(square) + eps) + decay * p
    length, size = math.sqrt((p**2).sum()), math.sqrt((update**2).sum())
    adapts = decay > 0 and length > 0 and size > 0  # biases and LayerNorm, which do not decay, are not adapted either
    return p - lr * (length / size if adapts else 1.0) * update


RULES: dict[Name, Callable[..., Vector]] = {"adam": adam, "adamw": adamw, "lamb": lamb}


def oracle(name: Name, steps: int) -> dict[str, Vector]:
    """The weights after some steps, in float64."""
    found = {}
    for parameter_name, parameter in Net().named_parameters():
        p = parameter.detach().numpy().astype(np.float64)
        m, v = np.zeros_like(p), np.zeros_like(p)
        decay = 0.0 if "LayerNorm" in parameter_name or parameter_name.endswith("bias") else 0.1
        for step in range(steps):
            g = gradients(step)[parameter_name].numpy().astype(np.float64)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            p = RULES[name](p, g, m, v, step + 1, RATES[step], decay, 1e-6)
        found[parameter_name] = p
    return found


def assert_equal_to_oracle(net: Net, name: Name, steps: int) -> None:
    for parameter_name, expected in oracle(name, steps).items():
        found = net.get_parameter(parameter_name).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-7, err_msg=f"{name} {parameter_name} {steps}")


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_the_equations(name: Name) -> None:
    net = Net()
    optimizer = build_optimizer(net, settings(name))
    for step in range(len(RATES)):
        take_step(net, optimizer, step)
        assert_equal_to_oracle(net, name, step + 1)


def test_the_three_differ() -> None:
    """Else the test above could not tell them apart."""
    made = {name: oracle(name, 3)["dense.weight"] for name in NAMES}
    assert np.abs(made["adam"] - made["adamw"]).max() > 1e-2
    assert np.abs(made["adam"] - made["lamb"]).max() > 1e-2
    assert np.abs(made["adamw"] - made["lamb"]).max() > 1e-2


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_state_resumes_bit_for_bit(name: Name) -> None:
    """Through safetensors' bytes, into a fresh optimizer of a fresh network."""
    through = Net()
    optimizer = build_optimizer(through, settings(name))
    for step in range(3):
        take_step(through, optimizer, step)
    weights = safetensors.torch.save(through.state_dict())
    moments = safetensors.torch.save(optimizer_tensors(through, optimizer))
    resumed = Net()
    resumed.load_state_dict(safetensors.torch.load(weights))
    other = build_optimizer(resumed, settings(name))
    load_optimizer_tensors(resumed, other, safetensors.torch.load(moments).items())
    for step in range(3, len(RATES)):
        take_step(through, optimizer, step)
        take_step(resumed, other, step)
    for (parameter_name, one), (_, two) in zip(through.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(one, two), parameter_name
    assert_equal_to_oracle(resumed, name, len(RATES))


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_state_is_a_copy(name: Name) -> None:
    net = Net()
    optimizer = build_optimizer(net, settings(name))
    take_step(net, optimizer, 0)
    kept = {key: value.clone() for key, value in optimizer_tensors(net, optimizer).items()}
    other = Net()
    another = build_optimizer(other, settings(name))
    load_optimizer_tensors(other, another, optimizer_tensors(net, optimizer).items())
    take_step(other, another, 1)
    for key, value in optimizer_tensors(net, optimizer).items():
        assert torch.equal(value, kept[key]), key


def test_a_missing_gradient_moves_nothing() -> None:
    for name in NAMES:
        net = Net()
        optimizer = build_optimizer(net, settings(name))
        before = net.words.weight.detach().clone()
        for group in optimizer.param_groups:
            group["lr"] = 0.1
        net.dense.weight.grad = torch.ones_like(net.dense.weight)
        optimizer.step()
        assert torch.equal(net.words.weight, before)


def test_lamb_of_zero_weights_takes_a_plain_step() -> None:
    net = Net()
    with torch.no_grad():
        net.dense.weight.zero_()
    optimizer = build_optimizer(net, dataclasses.replace(settings("lamb"), weight_decay=0.0))
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    net.dense.weight.grad = torch.ones_like(net.dense.weight)
    optimizer.step()
    assert torch.allclose(net.dense.weight, torch.full_like(net.dense.weight, -0.1), rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_bias_that_begins_at_zero_moves(name: Name) -> None:
    """As far as the learning rates add up to: an adapted step would be as small as the bias itself."""
    net = nn.Module()
    net.bias = nn.Parameter(torch.zeros(3))
    optimizer = build_optimizer(net, Optimizer(name=name, learning_rate=1.0))
    for _ in range(50):
        net.bias.grad = torch.ones(3)
        for group in optimizer.param_groups:
            group["lr"] = 1e-3
        optimizer.step()
    assert float(net.bias.detach().max()) < -0.04
