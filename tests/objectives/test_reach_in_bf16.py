"""In bf16, by the compiled kernels where the machine has them, every loss reaches the very parameters that it reaches in fp32, and its
sums and gradients are fp32."""

from typing import Any

import pytest
import torch
from tests.methods.every import METHODS
from tests.reach import RNG, gradients, lively, made, masked_rows

from electra_trainer.objectives.two_stage import DiscriminatorStage, GeneratorStage
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import TwoStage


def stages(given: Config) -> list[Any]:
    """The objective, or the two that two-stage training makes of it."""
    whole = made(given)
    return [GeneratorStage(whole), DiscriminatorStage(whole)] if isinstance(given.phases, TwoStage) else [whole]


@pytest.mark.parametrize("method", [name for name in METHODS if name != "rare"])  # that is masking alone, and no loss
def test_every_loss_reaches_the_same(method: str) -> None:
    given = METHODS[method](lively())
    masked = masked_rows(given)
    for objective in stages(given):
        exact = objective(masked, RNG).terms
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = objective(masked, RNG, diagnose=True).terms
        assert exact.keys() == rough.keys()
        for name, term in rough.items():
            assert term.sum.dtype == torch.float32 and term.sum.isfinite()
            if not exact[name].sum.requires_grad:
                assert not term.sum.requires_grad
                continue
            found = gradients(objective, term.sum)
            assert found.keys() == gradients(objective, exact[name].sum).keys(), name
            assert all(gradient.dtype == torch.float32 and gradient.isfinite().all() for gradient in found.values())
            assert sum(bool(gradient.any()) for gradient in found.values()) >= 0.9 * len(found)
