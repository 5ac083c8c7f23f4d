"""Muon against its equations in float64, and what it moves; test_continued.py resumes runs with it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.small import config
from tests.train.test_optim import adamw

from electra_trainer.errors import CheckpointError
from electra_trainer.objectives import Objective, build
from electra_trainer.settings.config import Optimizer, changed
from electra_trainer.train.optim import build_optimizer, optimizer_tensors, orthogonal, set_rate
from electra_trainer.train.weights import check_optimizer_tensors

Matrix = NDArray[np.float64]
SETTINGS = Optimizer(name="muon", learning_rate=1e-3, muon_learning_rate=0.02, weight_decay=0.1)
RATES = (1e-3, 5e-4, 2e-3)
"""Weight decay of AdamW's weights; Muon's have 20 times as much."""


def polynomial(matrix: Matrix) -> Matrix:
    """Five times 3.4445 s - 4.775 s^3 + 2.0315 s^5 on the singular values, whose squares add up to 1 before."""
    left, s, right = np.linalg.svd(matrix, full_matrices=False)
    s /= np.sqrt((s**2).sum())
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return np.asarray((left * s) @ right)


@pytest.mark.parametrize(("rows", "columns"), [(32, 32), (128, 128), (16, 64), (64, 16), (5, 3), (1, 8)])
def test_singular_values_come_near_one(rows: int, columns: int) -> None:
    made = torch.randn(3, rows, columns, generator=torch.Generator().manual_seed(rows)) * torch.tensor(
        [1e-4, 1.0, 1e4]
    ).view(3, 1, 1)
    for before, after in zip(made.double().numpy(), orthogonal(made).double().numpy(), strict=True):
        np.testing.assert_allclose(after, polynomial(before), atol=2e-4)
        share = np.linalg.svd(before, compute_uv=False) / np.linalg.norm(before)
        found = np.linalg.svd(after, compute_uv=False)[share > 0.005]  # what is smaller needs more steps
        assert len(found) >= 0.9 * min(rows, columns) and found.min() > 0.65 and found.max() < 1.25


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (16, 64), (64, 16)])
def test_rounded_it_is_nearly_the_same(rows: int, columns: int) -> None:
    """bf16 has 8 bits: the direction stays, and no singular value leaves Muon's range by much."""
    made = torch.randn(3, rows, columns, generator=torch.Generator().manual_seed(rows))
    exact, found = orthogonal(made), orthogonal(made, rounded=True)
    assert found.dtype == torch.float32 and not torch.equal(exact, found)
    assert float(((exact - found).norm(dim=(1, 2)) / exact.norm(dim=(1, 2))).max()) < 0.05
    assert float(torch.linalg.matrix_norm(found, ord=2).max()) < 1.3


def test_a_run_in_bf16_rounds_muons_products() -> None:
    objective = build(config())
    groups = build_optimizer(objective, SETTINGS, precision="bf16").param_groups
    assert [group["rounded"] for group in groups if group.get("orthogonal")] == [True]


def gradients(objective: Objective, step: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(step)
    return {name: 1e-3 * torch.randn(p.shape, generator=random) for name, p in objective.named_parameters()}


def parts(objective: Objective) -> set[str]:
    """The weights that are Muon's, written out."""
    inside = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    return {
        f"{network}.electra.encoder.layer.{layer}.{part}.weight"
        for network in ("generator", "discriminator")
        for layer in (0, 1)
        for part in (*inside, "intermediate.dense", "output.dense")
    }


def test_steps_follow_the_equations() -> None:
    """Every weight of both networks, after three steps."""
    objective = build(config())
    before = {name: p.detach().double().numpy().copy() for name, p in objective.named_parameters()}
    optimizer = build_optimizer(objective, SETTINGS)
    for step, rate in enumerate(RATES):
        for name, gradient in gradients(objective, step).items():
            objective.get_parameter(name).grad = gradient
        set_rate(optimizer, rate)
        optimizer.step()
    for name, p in before.items():
        m, v = np.zeros_like(p), np.zeros_like(p)
        for step, rate in enumerate(RATES):
            g = gradients(objective, step)[name].double().numpy()
            if name in parts(objective):
                m = 0.95 * m + 0.05 * g
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p = p - 20 * rate * (scale * polynomial(0.05 * g + 0.95 * m) + 0.1 * p)
            else:
                m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
                p = adamw(p, g, m, v, step + 1, rate, 0.1 * (not ("LayerNorm" in name or name.endswith("bias"))), 1e-6)
        found = objective.get_parameter(name).detach().numpy()
        np.testing.assert_allclose(found, p, rtol=1e-4, atol=2e-6, err_msg=name)


def test_packed_weights_are_taken_apart() -> None:
    """Queries, keys and values, and both halves of Wi, move as matrices of their own do; all matrices of the modern layers are Muon's."""
    objective = build(changed(config(), model={"block": "modern"}))
    optimizer = build_optimizer(objective, SETTINGS)
    before = {name: p.detach().double().numpy().copy() for name, p in objective.named_parameters()}
    for name, gradient in gradients(objective, 0).items():
        objective.get_parameter(name).grad = gradient
    set_rate(optimizer, 1e-3)
    optimizer.step()
    packed = {"attn.Wqkv": 3, "attn.Wo": 1, "mlp.Wi": 2, "mlp.Wo": 1}
    for network, layer, (part, count) in product(("generator", "discriminator"), (0, 1), packed.items()):
        name = f"{network}.electra.encoder.layer.{layer}.{part}.weight"
        found = objective.get_parameter(name).detach().numpy()
        rows = len(found) // count
        for at in (slice(first, first + rows) for first in range(0, len(found), rows)):
            p, g = before[name][at], gradients(objective, 0)[name][at].double().numpy()
            expected = p - 0.02 * (max(1.0, rows / p.shape[1]) ** 0.5 * polynomial(g) + 0.1 * p)
            np.testing.assert_allclose(found[at], expected, rtol=1e-4, atol=5e-6, err_msg=name)
    grouped = [len(group["params"]) for group in optimizer.param_groups if group.get("orthogonal")]
    assert sum(grouped) == 2 * 2 * len(packed)


def test_the_state_of_a_matrix_is_one_tensor() -> None:
    objective = build(config())
    optimizer = build_optimizer(objective, SETTINGS)
    for name, gradient in gradients(objective, 0).items():
        objective.get_parameter(name).grad = gradient
    optimizer.step()
    state = optimizer_tensors(objective, optimizer)
    assert {f"{name}/exp_avg" for name in parts(objective)} == {
        key for key in state if key.rpartition("/")[0] in parts(objective)
    }
    check_optimizer_tensors(objective, state, SETTINGS)
    matrix, table = sorted(parts(objective))[0], "discriminator.electra.embeddings.word_embeddings.weight"
    with pytest.raises(CheckpointError, match=r"exp_avg_sq: .* not there in this config"):
        check_optimizer_tensors(objective, {**state, f"{matrix}/exp_avg_sq": state[f"{matrix}/exp_avg"]}, SETTINGS)
    with pytest.raises(CheckpointError, match=r"exp_avg_sq: not there in the checkpoint"):
        check_optimizer_tensors(objective, {f"{table}/exp_avg": state[f"{table}/exp_avg"]}, SETTINGS)
    with pytest.raises(CheckpointError, match=r"exp_avg_sq: not there in the checkpoint"):  # another optimizer's
        check_optimizer_tensors(objective, state, Optimizer(name="adamw"))
