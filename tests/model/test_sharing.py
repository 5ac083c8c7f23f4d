"""Generator and discriminator hold the very same embeddings, whatever is done to them; nothing else is shared."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest
import safetensors.torch
import torch
from tests.small import batch, config, masker, rows
from torch import Tensor, nn

from electra_trainer.batch import Losses
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.randomness import Rng
from electra_trainer.settings.config import Config

SHARED = (
    "word_embeddings.weight", "position_embeddings.weight", "token_type_embeddings.weight", "LayerNorm.weight",
    "LayerNorm.bias",
)  # fmt: skip


def build(settings: Config | None = None) -> ReplacedTokenDetection:
    return ReplacedTokenDetection(settings or config())


def assert_tied(objective: ReplacedTokenDetection) -> None:
    one, two = objective.discriminator.electra.embeddings, objective.generator.electra.embeddings
    for name in SHARED:
        assert one.get_parameter(name) is two.get_parameter(name), name
    assert {name for name, _ in one.named_parameters()} == set(SHARED)


def saved_and_loaded(objective: ReplacedTokenDetection) -> ReplacedTokenDetection:
    """Through a file's bytes, as a checkpoint does: a shared parameter is stored once."""
    content = safetensors.torch.save({name: p.detach() for name, p in objective.named_parameters()})
    other = build(dataclasses.replace(config(), seed=99))
    missing, unexpected = other.load_state_dict(safetensors.torch.load(content), strict=False)
    assert not unexpected
    assert all(name.startswith("generator.electra.embeddings.") for name in missing)
    return other


WAYS: dict[str, Callable[[ReplacedTokenDetection], nn.Module]] = {
    "as built": lambda objective: objective,
    "to float64": lambda objective: objective.to(torch.float64),
    "to a device": lambda objective: objective.to("meta"),
    "float and back": lambda objective: objective.half().float(),
    "deepcopy": copy.deepcopy,
    "saved and loaded": saved_and_loaded,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_parameters(way: str) -> None:
    objective = WAYS[way](build())
    assert isinstance(objective, ReplacedTokenDetection)
    assert_tied(objective)


def test_a_copy_is_not_tied_to_its_original() -> None:
    objective = build()
    other = copy.deepcopy(objective)
    with torch.no_grad():
        other.generator.electra.embeddings.word_embeddings.weight.zero_()
    assert objective.discriminator.electra.embeddings.word_embeddings.weight.any()
    assert not other.discriminator.electra.embeddings.word_embeddings.weight.any()


def test_loading_restores_every_weight() -> None:
    objective = build()
    for (name, one), (_, two) in zip(
        objective.named_parameters(), saved_and_loaded(objective).named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name


def test_nothing_else_is_shared() -> None:
    objective = build()
    both = {id(p) for p in objective.discriminator.parameters()} & {id(p) for p in objective.generator.parameters()}
    assert len(both) == len(SHARED)


def losses(objective: ReplacedTokenDetection) -> Losses:
    masked = masker(config())(batch(rows(12)), Rng(1, 1, 0))
    found: Losses = objective(masked, Rng(1, 1, 0))
    return found


def gradients(objective: ReplacedTokenDetection, loss: Tensor) -> dict[str, Tensor | None]:
    """By parameter; None where the loss does not depend on it."""
    names = [name for name, _ in objective.named_parameters()]
    found = torch.autograd.grad(loss, list(objective.parameters()), allow_unused=True, retain_graph=True)
    return dict(zip(names, found, strict=True))


def test_both_losses_reach_the_shared_embeddings() -> None:
    """The gradient of the sum is the sum of the gradients, and neither is 0."""
    objective = build().eval()
    terms = losses(objective).terms
    one = gradients(objective, terms["generator_loss"].sum)
    two = gradients(objective, terms["discriminator_loss"].sum)
    (terms["generator_loss"].sum + terms["discriminator_loss"].sum).backward()
    for name in SHARED:
        full = f"discriminator.electra.embeddings.{name}"
        first, second, both = one[full], two[full], objective.get_parameter(full).grad
        assert first is not None and second is not None and both is not None
        assert first.any() and second.any()
        assert torch.allclose(first + second, both, rtol=1e-4, atol=1e-6)


def test_each_loss_stays_in_its_own_network() -> None:
    """No gradient passes through the sampling, nor back from the generator into the discriminator's own layers."""
    objective = build().eval()
    terms = losses(objective).terms
    from_generator = gradients(objective, terms["generator_loss"].sum)
    from_discriminator = gradients(objective, terms["discriminator_loss"].sum)
    for name in from_generator:
        if ".embeddings." in name:
            continue
        mine, other = from_generator[name], from_discriminator[name]
        if name.startswith("discriminator."):
            mine, other = other, mine
        assert mine is not None and mine.any(), name
        assert other is None, name
