"""Initial weights: which distribution each tensor has (Kolmogorov-Smirnov at 1e-4, fixed seeds), and that a seed decides them."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from scipy.stats import kstest, truncnorm, uniform
from tests.small import config
from torch import Tensor

from electra_trainer import objectives
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.networks import build_discriminator
from electra_trainer.objectives.rtd import ReplacedTokenDetection
from electra_trainer.settings.config import Config, Model
from electra_trainer.settings.methods import MLM

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


def test_sinusoidal_positions() -> None:
    """Sine and cosine of position / 10000**(2i/E), of the mean square of the other tables; nothing else is changed."""
    made = settings("fan-in")
    waves = dataclasses.replace(made, model=dataclasses.replace(made.model, position_initializer="sinusoidal"))
    found = weights(waves)["discriminator.electra.embeddings.position_embeddings.weight"]
    positions, width = found.shape
    for position in range(positions):
        for pair in range(width // 2):
            angle = position / 10_000 ** (2 * pair / width)
            for column, value in ((2 * pair, math.sin(angle)), (2 * pair + 1, math.cos(angle))):
                assert float(found[position, column]) == pytest.approx(value * math.sqrt(2 / width), abs=1e-5)
    assert float(found.square().mean()) == pytest.approx(1 / width, rel=1e-4)
    for name, tensor in weights(waves).items():
        assert tensor.shape == weights(made)[name].shape
        if is_truncated(name) and "position" not in name:
            check_truncated(name, tensor, tensor.shape[1] ** -0.5)


@pytest.mark.parametrize("embedding_size", [128, 64])
@pytest.mark.parametrize("initializer", ["truncated-normal", "fan-in"])
def test_local_start(initializer: str, embedding_size: int) -> None:
    """Heads of the first layer begin at -1, +1, -2 and +2, in both networks, also behind a projection; nothing else is changed."""
    shape = {
        "embedding_size": embedding_size,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
    }
    plain = settings(initializer)
    plain = dataclasses.replace(plain, model=dataclasses.replace(plain.model, **shape))
    made = dataclasses.replace(plain, model=dataclasses.replace(plain.model, position_initializer="local"))
    networks, drawn = objectives.build(made), weights(plain)
    assert isinstance(networks, ReplacedTokenDetection)
    for encoder, offsets in ((networks.discriminator.electra, (-1, 1, -2, 2)), (networks.generator.electra, (-1, 1))):
        for head, offset in enumerate(offsets):
            share = first_attention(encoder, heads=len(offsets))[:, head].diagonal(offset, -2, -1).mean()
            assert 0.4 < share < 0.8, (head, offset, share)
    changed = {
        name.split("electra.")[1] for name, tensor in weights(made).items() if not torch.equal(tensor, drawn[name])
    }
    first = {f"encoder.layer.0.attention.self.{part}.weight" for part in ("query", "key")}
    projection = {"embeddings_project.weight"}  # the generator's, or both
    assert changed == {*first, *projection, "embeddings.position_embeddings.weight"}
    positions = networks.discriminator.electra.embeddings.position_embeddings.weight.detach()
    near = torch.cosine_similarity(positions[:1], positions[1:])
    assert near.max() < 0.5  # no position looks like another, 64 or 128 tokens on neither


def first_attention(encoder: Encoder, *, heads: int) -> Tensor:
    """Attention of the first layer over 32 random tokens, [16, heads, 32, 32]."""
    ids_BT = torch.randint(5, 997, (16, 32), generator=torch.Generator().manual_seed(1))
    embeddings, layer = encoder.embeddings, encoder.encoder.layer[0].attention.self
    words, positions = embeddings.word_embeddings(ids_BT), embeddings.position_embeddings(torch.arange(32))
    hidden_BTD = embeddings.LayerNorm(words + positions + embeddings.token_type_embeddings(torch.zeros_like(ids_BT)))
    hidden_BTD = hidden_BTD if encoder.embeddings_project is None else encoder.embeddings_project(hidden_BTD)
    query, key = (part(hidden_BTD).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (layer.query, layer.key))
    found: Tensor = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1).detach()
    return found


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


def test_masked_lm_has_the_same_distributions() -> None:
    made = weights(dataclasses.replace(settings(), objective=MLM()))
    for name in filter(is_truncated, made):
        check_truncated(name, made[name], 0.02)


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
