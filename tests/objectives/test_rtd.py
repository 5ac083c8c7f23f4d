"""Replaced token detection as a whole: counts, division, what each network sees, and that all of it learns."""

import pytest
import torch
from tests.plain import sample
from tests.reach import RNG, distance, gradients, masked_rows
from tests.small import MASK, PAD, batch, by_place, config, masker
from torch import Tensor

from electra_trainer.batch import Batch, Losses
from electra_trainer.objectives import build
from electra_trainer.objectives.generation import corrupt
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config
from electra_trainer.train.step import add_counts


def objective(settings: Config | None = None) -> ReplacedTokenDetection:
    made = build(settings or config())
    assert isinstance(made, ReplacedTokenDetection)
    return made


def test_what_the_discriminator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Originals with samples put in: no [MASK], and the layout of the originals."""
    made, masked = objective().eval(), masked_rows(config())
    read: list[tuple[Tensor, Batch]] = []
    made.discriminator.register_forward_pre_hook(lambda _module, inputs: read.append(inputs))
    monkeypatch.setattr(
        "electra_trainer.objectives.generation.corrupt",
        lambda given, sampled: corrupt(given, torch.full_like(sampled, 50)),
    )
    losses: Losses = made(masked, RNG, diagnose=True)
    ((ids_BT, layout),) = read
    assert (masked.input_BT == MASK).any() and not (ids_BT == MASK).any()
    assert (ids_BT.flatten()[masked.slots_K] == 50).all()
    assert layout is masked.batch
    assert torch.equal(losses.diagnostics["replaced_BT"], ids_BT != masked.batch.ids_BT)


def test_samples_are_drawn_from_the_generator() -> None:
    """The words that reach the discriminator are those that the plain way draws from the generator's own logits."""
    made, masked, rng = objective().eval(), masked_rows(config()), RNG
    logits_KV = made.generator(masked.input_BT, masked.batch, masked.slots_K)
    expected = corrupt(masked, sample(logits_KV, rng.generator("sample", logits_KV.device)))
    found: Losses = made(masked, rng, diagnose=True)
    assert torch.equal(found.diagnostics["corrupted_BT"], expected.input_BT)
    assert torch.equal(found.diagnostics["replaced_BT"], expected.replaced_BT)
    for other in (Rng(2, 0, 0), Rng(1, 1, 0), Rng(1, 0, 1)):
        assert not torch.equal(made(masked, other, diagnose=True).diagnostics["corrupted_BT"], expected.input_BT)


def test_what_is_seen_is_detached_and_complete() -> None:
    made, masked = objective(), masked_rows(config())
    diagnostics = made(masked, RNG, diagnose=True).diagnostics
    assert not any(tensor.requires_grad for tensor in diagnostics.values())
    assert len(diagnostics["generator_correct_K"]) == len(diagnostics["generator_entropy_K"]) == len(masked.slots_K)
    assert torch.equal(diagnostics["real_BT"], masked.batch.real_BT) and diagnostics["used_K"].all()
    assert diagnostics["replaced_BT"].shape == diagnostics["replaced_logit_BT"].shape == masked.batch.ids_BT.shape


def test_gradient_is_that_of_the_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed the plain way: mean cross-entropy + 50 * mean binary cross-entropy of one batch."""
    monkeypatch.setattr("electra_trainer.objectives.generation.corrupt", by_place)
    made, masked = objective().eval(), masked_rows(config())
    ours = gradients(made, made(masked, RNG).total(made.counts(masked)))
    logits_KV = made.generator(masked.input_BT, masked.batch, masked.slots_K)
    corrupted = by_place(masked, masked.slots_K).input_BT
    real = masked.batch.ids_BT != PAD
    targets = (corrupted != masked.batch.ids_BT).float()[real]
    found = made.discriminator(corrupted, masked.batch)[real]
    loss = torch.nn.functional.cross_entropy(logits_KV, masked.labels_K)
    loss = loss + 50 * torch.nn.functional.binary_cross_entropy_with_logits(found, targets)
    assert distance(ours, gradients(made, loss)) <= 1e-5


def test_rows_without_slots_give_numbers() -> None:
    """A lane of padding alone, and one of [CLS] [SEP]."""
    made = objective()
    data = batch(torch.tensor([[2, 3, 0, 0], [0, 0, 0, 0]]).numpy())
    masked = masker(config())(data, RNG)
    assert len(masked.slots_K) == 0
    counts = add_counts([made.counts(masked)])
    total = made(masked, RNG).total(counts)
    total.backward()
    assert total.isfinite()
    assert all(p.grad.isfinite().all() for p in made.parameters() if p.grad is not None)
