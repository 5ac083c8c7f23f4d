"""Parameters against published numbers, and against the networks of every method."""

from itertools import product

import pytest
from tests.cost.narrow import GENERATORS, OBJECTIVES, narrow

from electra_trainer import objectives
from electra_trainer.cost.parameters import parameters
from electra_trainer.errors import ConfigError
from electra_trainer.presets import models
from electra_trainer.settings.config import Config
from electra_trainer.settings.methods import MLM, RTD, Learned, TwoStage

PARTS = ("embeddings", "backbone", "kept", "generator_own", "generator", "joint")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("small", (3_972_864, 13_483_008, 13_549_057, 647_162, 4_620_026, 14_196_219)),
        ("small_plus_plus", (3_972_864, 13_483_008, 13_549_057, 9_573_818, 13_546_682, 23_122_875)),
        ("base", (23_837_184, 108_891_648, 109_483_009, 9_903_418, 33_740_602, 119_386_427)),
        ("large", (31_782_912, 334_092_288, 335_142_913, 19_512_378, 51_295_290, 354_655_291)),
    ],
)
def test_parameters_are_the_published_ones(name: str, expected: tuple[int, ...]) -> None:
    counted = parameters(models.preset(name))
    assert {part: getattr(counted, part) for part in PARTS} == dict(zip(PARTS, expected, strict=True))


@pytest.mark.parametrize(("name", "joint"), [("tiny", 1_272_705), ("demo", 1_715_713), ("mini", 7_708_289)])
def test_parameters_of_our_presets(name: str, joint: int) -> None:
    """As docs/training.md prints them."""
    assert parameters(models.preset(name)).joint == joint


@pytest.mark.parametrize(
    ("name", "joint"), [("bert_small", 13_546_682), ("bert_base", 109_514_298), ("bert_large", 335_174_458)]
)
def test_bert_has_no_generator(name: str, joint: int) -> None:
    counted = parameters(models.preset(name))
    assert (counted.generator, counted.generator_own) == (0, 0)
    assert counted.kept == counted.joint == joint


def methods() -> dict[str, Config]:
    """Every objective with every generator and sharing mode that go together."""
    found = {}
    for (objective, make), (generator, settings), sharing in product(
        OBJECTIVES.items(), GENERATORS.items(), ("none", "tables", "embeddings", "all")
    ):
        try:
            found[f"{objective}, {generator}, {sharing}"] = narrow(objective=make, generator=settings, sharing=sharing)
        except ConfigError:
            continue
    found["rtd, two-stage"] = narrow(generator=Learned(width=1.0), sharing="none", phases=TwoStage())
    return found


METHODS = methods()


def test_few_methods_exclude_each_other() -> None:
    """So that the next test cannot pass by testing little: whole encoders cannot be shared with a narrower or shallower generator, nor
    against an adversary, which must learn and sample plainly."""
    assert len(METHODS) > 70
    for objective in OBJECTIVES:
        for sharing in ("none", "tables", "embeddings"):
            assert f"{objective}, half as wide, {sharing}" in METHODS


@pytest.mark.parametrize("name", METHODS)
def test_parameters_equal_those_of_the_networks(name: str) -> None:
    config = METHODS[name]
    network, counted = objectives.build(config), parameters(config)
    assert counted.joint == sum(parameter.numel() for parameter in network.parameters())
    exported = {item.name: item.network for item in network.exported()}
    assert next(iter(exported)) == config.objective.keeps
    assert counted.kept == sum(p.numel() for p in exported[config.objective.keeps].parameters())
    generator = exported.get("generator")
    assert counted.generator == (sum(p.numel() for p in generator.parameters()) if generator else 0)
    assert (generator is not None) == (config.objective.uses_generator and isinstance(config.generator, Learned))


def test_an_objective_of_ones_own_is_counted_by_what_it_says(own_objective: type) -> None:
    """A discriminator beside a token head of the same encoder."""
    mine, rtd, bert = (
        parameters(narrow(objective=objective, generator=Learned(width=0.5)))
        for objective in (own_objective(), RTD(), MLM())
    )
    assert mine.head == rtd.head and mine.extra == bert.head and mine.generator == rtd.generator
