"""Initial weights: which distribution each tensor has (Kolmogorov-Smirnov at 1e-4, fixed seeds), and that a seed decides them."""

import dataclasses

import pytest
import torch
from scipy.stats import kstest, truncnorm, uniform
from tests.small import config
from torch import Tensor

from electra_trainer import objectives
from electra_trainer.model.networks import build_discriminator
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.settings.config import Config, Model

GLOROT = ("embeddings_project.weight", "dense_prediction.weight")


def settings(initializer: str = "truncated-normal", *, seed: int = 7, range_: float = 0.02) -> Config:
    model: Model = dataclasses.replace(
        config().model,
        vocab_size=997,
        initializer=initializer,
        initializer_range=range_,  # type: ignore[arg-type]
    )
    return dataclasses.replace(config(), model=model, seed=seed)


def weights(made: Config) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in objectives.build(made).named_parameters()}


def is_truncated(name: str) -> bool:
    return not name.endswith("bias") and "LayerNorm" not in name and not name.endswith(GLOROT)


def check_truncated(name: str, tensor: Tensor, std: float) -> None:
    assert tensor.abs().max() <= 2 * std + 1e-7, name
    assert kstest(tensor.flatten().numpy(), truncnorm(-2, 2, scale=std).cdf).pvalue > 1e-4, name


@pytest.mark.parametrize("std", [0.02, 0.1])
def test_truncated_normal(std: float) -> None:
    made = weights(settings(range_=std))
    names = [name for name in made if is_truncated(name)]
    assert len(names) == 2 * 12 + 3 + 1 + 1  # six matrices a layer, tables, one dense of each head
    for name in names:
        check_truncated(name, made[name], std)
    words = made["discriminator.electra.embeddings.word_embeddings.weight"]
    assert float(words.std()) == pytest.approx(0.8796 * std, rel=0.02)  # the cut leaves 88 %


def test_fan_in() -> None:
    made = weights(settings("fan-in"))
    for name in filter(is_truncated, made):
        check_truncated(name, made[name], made[name].shape[1] ** -0.5)


@pytest.mark.parametrize("initializer", ["truncated-normal", "fan-in"])
def test_glorot(initializer: str) -> None:
    """Biases of both projections of embeddings, and of the discriminator's last layer."""
    wide = dataclasses.replace(config().generator, width=1.0)  # at half its width it needs no projection
    made = weights(dataclasses.replace(settings(initializer), generator=wide))
    names = [name for name in made if name.endswith(GLOROT)]
    assert sorted(name.split(".")[0] for name in names) == ["discriminator", "discriminator", "generator"]
    for name in names:
        outputs, inputs = made[name].shape
        bound = (6 / (inputs + outputs)) ** 0.5
        assert made[name].abs().max() <= bound
        assert kstest(made[name].flatten().numpy(), uniform(-bound, 2 * bound).cdf).pvalue > 1e-4, name


def test_biases_and_layer_norms() -> None:
    for name, tensor in weights(settings()).items():
        if name.endswith("bias"):
            assert not tensor.any(), name
        elif "LayerNorm" in name:
            assert (tensor == 1).all(), name


def test_shared_embeddings_are_drawn_once() -> None:
    """Building the generator leaves the discriminator, its embeddings included, as it was drawn alone."""
    made = settings()
    both = objectives.build(made)
    assert isinstance(both, ReplacedTokenDetection)
    alone = build_discriminator(made, both.weights("kept"))
    for (name, one), (_, two) in zip(both.discriminator.named_parameters(), alone.named_parameters(), strict=True):
        assert torch.equal(one, two), name


def test_networks_do_not_repeat_each_other() -> None:
    """Equal shapes, different draws."""
    made = dataclasses.replace(settings(), generator=dataclasses.replace(config().generator, width=1.0))
    tensors = weights(made)
    one = tensors["discriminator.electra.encoder.layer.0.output.dense.weight"]
    two = tensors["generator.electra.encoder.layer.0.output.dense.weight"]
    assert one.shape == two.shape and not torch.equal(one, two)


def test_a_seed_decides() -> None:
    torch.manual_seed(0)
    first = weights(settings(seed=1))
    torch.manual_seed(99)  # the library's own generator has no part in it
    again, other = weights(settings(seed=1)), weights(settings(seed=2))
    for name in filter(is_truncated, first):
        assert torch.equal(first[name], again[name]), name
        assert not torch.equal(first[name], other[name]), name
