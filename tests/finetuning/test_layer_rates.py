"""Who learns how fast: every multiplier and decay of the released code (Appendix B, Table 6), through the optimizer that is used."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.finetuning.small_source import LABELS, shape
from tests.google import reference
from tests.google.mini_reference import FOLDER as MINI
from torch import nn

from electra_trainer.finetuning.run import FineTunedNetwork, layer_share
from electra_trainer.model.encoder import Encoder
from electra_trainer.tasks.recipe import Recipe, recipe
from electra_trainer.train.optim import build_optimizer, set_rate

PEAK = 2e-4


@dataclass(frozen=True, kw_only=True)
class Rate:
    share: float
    decays: bool


def rates(settings: Recipe, layers: int) -> dict[str, Rate]:
    """Rate of each parameter's group after the rate of a step was set."""
    model = shape(num_hidden_layers=layers)
    network = FineTunedNetwork(Encoder(model), nn.Linear(model.hidden_size, len(LABELS)), dropout=0.1)
    optimizer = build_optimizer(network, settings.optimizer, layer_share(settings, layers))
    set_rate(optimizer, PEAK)
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    found = {}
    for name, parameter in network.named_parameters():
        group = groups.pop(id(parameter))
        assert group["weight_decay"] in (0.0, settings.weight_decay)
        found[name] = Rate(share=group["lr"] / PEAK, decays=group["weight_decay"] > 0)
    assert not groups
    return found


def our_name(variable: str) -> str:
    if variable.startswith("task_specific/"):
        return {"kernel": "head.weight", "bias": "head.bias"}[variable.rsplit("/", 1)[1]]
    return reference.our_name(variable).removeprefix("discriminator.")


def test_every_row_of_the_released_code() -> None:
    check_rows(MINI / "layer_lr_2layer_0.8.csv", 2)


@pytest.mark.parametrize("layers", [4, 12])
def test_every_row_of_deeper_networks(shared: Path, layers: int) -> None:
    check_rows(shared / "reference" / "tf" / f"layer_lr_{layers}layer_0.8.csv", layers)


def check_rows(path: Path, layers: int) -> None:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    ours = rates(recipe("released", hidden_size=256, epochs=3), layers)
    assert {our_name(row["variable"]) for row in rows} == set(ours) and len(rows) == len(ours)
    for row in rows:
        found = ours[our_name(row["variable"])]
        assert found.share == pytest.approx(float(row["lr_multiplier"]), abs=5e-9), row  # eight digits are written
        assert found.decays == (row["weight_decay"] == "1"), row


@pytest.mark.parametrize(("width", "decay"), [(256, 0.8), (768, 0.8), (1024, 0.9)])
def test_the_paper_s_rule(width: int, decay: float) -> None:
    """The head learns at the whole rate, the top layer at decay times it, each below at decay times the one above; nothing decays."""
    layers = 3
    found = rates(recipe("paper", hidden_size=width, epochs=3), layers)
    for name, rate in found.items():
        below = 0 if name.startswith("head.") else layers + 1
        for layer in range(layers):
            if f".layer.{layer}." in name:
                below = layers - layer
        assert rate == Rate(share=pytest.approx(decay**below), decays=False), name
    assert len({rate.share for rate in found.values()}) == layers + 2


def test_no_layer_wise_decay() -> None:
    found = rates(recipe("released", hidden_size=256, epochs=3, layer_decay=1.0), 2)
    assert {rate.share for rate in found.values()} == {1.0}
    assert found["electra.embeddings.word_embeddings.weight"].decays and not found["head.bias"].decays
