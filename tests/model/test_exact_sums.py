"""Gradients of embedding tables as sums of integers: right to the last digit of fp32, and the same in any order."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from electra_trainer.model import exact_sums
from electra_trainer.model.exact_sums import exact_sum_of_rows

ROWS = (50, 12, 2)
B, T, E = 16, 12, 8


def inputs(seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    tables = [torch.randn((rows, E), generator=random).requires_grad_() for rows in ROWS]
    ids = [torch.randint(rows, (B, T), generator=random) for rows in ROWS]
    # seven orders of magnitude, as gradients have
    above = torch.randn((B, T, E), generator=random) * 10 ** (7 * torch.rand((B, T, 1), generator=random) - 6)
    return tables, ids, above


def gradients(tables: list[torch.Tensor], ids: list[torch.Tensor], above: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(exact_sum_of_rows(tables, ids), tables, above))


def test_rows_and_gradients_are_those_of_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, ids, above = inputs()
    expected = sum(F.embedding(places, table) for table, places in zip(tables, ids, strict=True))
    assert torch.equal(exact_sum_of_rows(tables, ids), expected)
    doubled = [table.detach().double().requires_grad_() for table in tables]
    exact = sum(F.embedding(places, table) for table, places in zip(doubled, ids, strict=True))
    theirs = torch.autograd.grad(exact, doubled, above.double())
    for chunk in (exact_sums._AT_ONCE, 5 * E):
        monkeypatch.setattr(exact_sums, "_AT_ONCE", chunk)
        for mine, other in zip(gradients(tables, ids, above), theirs, strict=True):
            torch.testing.assert_close(mine, other.float(), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_the_order_of_tokens_changes_no_bit(scale: float) -> None:
    tables, ids, above = inputs(1)
    above = above * scale
    order = torch.randperm(B, generator=torch.Generator().manual_seed(2))
    one, two = gradients(tables, ids, above), gradients(tables, [i[order] for i in ids], above[order])
    for mine, other in zip(one, two, strict=True):
        assert torch.equal(mine, other)
    total = above.double().sum((0, 1))
    torch.testing.assert_close(one[2].double().sum(0), total, rtol=1e-6, atol=1e-7 * float(total.abs().max()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_non_finite_gradient_stays_one(bad: float) -> None:
    tables, ids, above = inputs()
    above[3, 4, 5] = bad
    assert all(gradient.isnan().all() for gradient in gradients(tables, ids, above))


def test_nothing_and_zeros() -> None:
    tables, ids, above = inputs()
    for gradient in gradients(tables, ids, torch.zeros_like(above)):
        assert not gradient.any()
    for gradient in gradients(tables, [i[:0] for i in ids], above[:0]):
        assert not gradient.any() and gradient.isfinite().all()


def test_the_wish_for_deterministic_algorithms_is_left_as_it_was() -> None:
    tables, ids, above = inputs()
    before = gradients(tables, ids, above)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for mine, other in zip(gradients(tables, ids, above), before, strict=True):
            assert torch.equal(mine, other)
        assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
