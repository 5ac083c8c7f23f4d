"""The discriminator's loss as a sum, token by token in Python's float64."""

import math

import pytest
import torch

from electra_trainer.objectives.rtd import replaced_loss


def test_replaced_loss() -> None:
    """Only the counted tokens; the padding may hold anything."""
    torch.manual_seed(2)
    logits, replaced, counted = 3 * torch.randn(3, 9), torch.rand(3, 9) < 0.3, torch.rand(3, 9) < 0.7
    expected = 0.0
    for row in range(3):
        for column in range(9):
            if counted[row, column]:
                p = 1 / (1 + math.exp(-float(logits[row, column])))
                expected -= math.log(p if replaced[row, column] else 1 - p)
    assert float(replaced_loss(logits, replaced, counted)) == pytest.approx(expected, rel=1e-6)
    other = torch.where(counted, logits, 50.0)
    assert float(replaced_loss(other, replaced, counted)) == pytest.approx(expected, rel=1e-6)


def test_extreme_logits_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = replaced_loss(logits, torch.tensor([[False, True]]), torch.tensor([[True, True]]))
    loss.backward()
    assert loss.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


def test_no_tokens_are_zero_with_a_gradient_of_zero() -> None:
    tokens = torch.randn(2, 3, requires_grad=True)
    nothing = replaced_loss(tokens, torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool))
    assert float(nothing.detach()) == 0.0
    nothing.backward()
    assert tokens.grad is not None and not tokens.grad.any()


def test_it_is_computed_in_fp32() -> None:
    """A sum over 4,000 tokens in bf16 would be off by percents."""
    tokens = torch.zeros(40, 100, dtype=torch.bfloat16)
    yes = torch.ones(40, 100, dtype=torch.bool)
    assert float(replaced_loss(tokens, yes, yes)) == pytest.approx(4000 * math.log(2), rel=1e-4)
