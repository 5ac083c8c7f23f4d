"""Google's trained Small in our networks gives Google's numbers (fp32, dropout off, its own masks and samples); states, gradients and
steps are compared on a smaller network in test_mini.py."""

from pathlib import Path

import pytest
import torch
from tests.google import reference
from tests.google.reference import Arrays, worst

from electra_trainer.batch import Corrupted, Losses, Masked
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng

LOGITS = 1e-4  # absolute
LOSSES = 1e-5  # relative


@pytest.fixture(scope="module")
def forward(shared: Path) -> Arrays:
    return reference.read(shared, "forward.npz")


@pytest.fixture(scope="module")
def objective(shared: Path) -> ReplacedTokenDetection:
    return reference.trained(shared)


@torch.no_grad()
def test_generator_logits(objective: ReplacedTokenDetection, forward: Arrays, masked: Masked) -> None:
    """All 30,522 of them in two rows, the twenty best in all rows."""
    used = reference.used(forward)
    logits = objective.generator(masked.input_BT, masked.batch, masked.slots_K)
    assert worst(logits[: int(used[:2].sum())], forward["mlm_logits_first2"][used[:2]]) <= LOGITS
    best_ids = torch.from_numpy(forward["mlm_top20_ids"][used]).long()
    assert worst(logits.gather(1, best_ids), forward["mlm_top20_logits"][used]) <= LOGITS
    assert logits.argmax(-1).tolist() == forward["mlm_preds"][used].tolist()


@torch.no_grad()
def test_discriminator_logits_of_real_tokens(
    objective: ReplacedTokenDetection, forward: Arrays, masked: Masked, corrupted: Corrupted
) -> None:
    """Twelve slots repeat a position of their row: the floored average of their samples is there."""
    assert len(masked.slots_K) - len(masked.slots_K.unique()) == 12
    assert corrupted.input_BT.tolist() == forward["corrupted_input_ids"].tolist()
    real = masked.batch.real_BT
    logits = objective.discriminator(corrupted.input_BT, corrupted.batch)
    assert worst(logits[real], forward["disc_logits"][real.numpy()]) <= LOGITS


def test_losses(
    forward: Arrays, objective: ReplacedTokenDetection, masked: Masked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the objective itself: sums, counts, weights and division, with Google's samples in place of ours."""
    monkeypatch.setattr(
        "electra_trainer.objectives.generation.corrupt", lambda masked, _: corrupt(masked, reference.samples(forward))
    )
    with torch.no_grad():
        losses: Losses = objective(masked, Rng(0, 0, 0))
    counts = {name: float(count) for name, count in objective.counts(masked).items()}
    means = {name: float(term.sum) / counts[term.count] for name, term in losses.terms.items()}
    total = float(losses.total(counts))
    assert means["generator_loss"] == pytest.approx(float(forward["mlm_loss"]), rel=LOSSES)
    assert means["discriminator_loss"] == pytest.approx(float(forward["disc_loss"]), rel=LOSSES)
    assert total == pytest.approx(means["generator_loss"] + 50 * means["discriminator_loss"], rel=1e-6)
    assert total == pytest.approx(float(forward["total_loss"]), rel=LOSSES)
