"""The recipes are Table 6's and the released code's; what cannot be is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.finetuning.small_source import source

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.run import Order, build_network
from electra_trainer.model.networks import build_encoder
from electra_trainer.presets.models import preset
from electra_trainer.tasks.recipe import RECIPES, Recipe, for_own_rows, recipe
from electra_trainer.tasks.texts import Classification

TABLE_6 = {  # learning rate, layer-wise decay
    "tiny": (3e-4, 0.8),
    "small": (3e-4, 0.8),
    "base": (1e-4, 0.8),
    "large": (5e-5, 0.9),
}


@pytest.mark.parametrize("size", TABLE_6)
def test_the_paper_s(size: str) -> None:
    found = recipe("paper", hidden_size=preset(size).model.hidden_size, epochs=10)
    rate, decay = TABLE_6[size]
    assert (found.learning_rate, found.layer_decay, found.top_layer_power) == (rate, decay, 1)
    assert (found.warmup_fraction, found.dropout, found.attention_dropout, found.weight_decay) == (0.1, 0.1, 0.1, 0.0)
    assert (found.batch_size, found.epochs, found.schedule, found.reduction) == (32, 10, "linear", "mean")
    adam = found.optimizer
    assert (adam.name, adam.epsilon, adam.beta1, adam.beta2, adam.weight_decay) == ("adam", 1e-6, 0.9, 0.999, 0.0)
    assert not found.double_unordered and found.max_length == 128 and found.head_dropout == "all"


@pytest.mark.parametrize(("size", "rate", "decay"), [("small", 1e-4, 0.8), ("base", 1e-4, 0.8), ("large", 5e-5, 0.9)])
def test_the_released_code_s(size: str, rate: float, decay: float) -> None:
    """Rows 16 to 20 of the differences: clipping, weight decay, one rate for small and base, an exponent off by one, both orders."""
    found = recipe("released", hidden_size=preset(size).model.hidden_size, epochs=3)
    assert (found.learning_rate, found.layer_decay, found.top_layer_power) == (rate, decay, 2)
    assert (found.weight_decay, found.clip_norm, found.reduction) == (0.01, 1.0, "sum")
    assert found.schedule == "released" and found.double_unordered and found.head_dropout == "texts"
    assert found.optimizer.weight_decay == 0.01 and found.optimizer.clip_norm == 1.0


@pytest.mark.parametrize(("steps", "released", "paper"), [(27, 2.7, 2), (5, 0.5, 0), (804, 80.4, 80)])
def test_the_released_warm_up_is_not_rounded(steps: int, released: float, paper: int) -> None:
    """google-research/electra: num_train_steps * warmup_proportion, a real number; BERT, whom the paper follows, rounds it down."""
    for name, warmup in (("released", released), ("paper", paper)):
        used = recipe(name, hidden_size=256, epochs=3)
        assert used.warmup_of(steps) == pytest.approx(warmup)
    assert recipe("released", hidden_size=256, epochs=3, warmup_fraction=0.0).warmup_of(steps) == 0


def test_changes_are_put_in_and_none_leaves_the_recipe_s() -> None:
    plain = recipe("paper", hidden_size=256, epochs=3)
    changed = recipe("paper", hidden_size=256, epochs=3, learning_rate=None, dropout=0.0, batch_size=8)
    assert changed == replace(plain, dropout=0.0, batch_size=8)
    assert recipe("paper", hidden_size=256, epochs=10.0).epochs == 10


def test_own_tables_differ_from_the_paper_where_they_are_small() -> None:
    assert recipe("auto", hidden_size=256, epochs=3) == recipe("paper", hidden_size=256, epochs=3)
    numbers = {"pooling": "auto", "batch_size": 16, "epochs": 10.0, "learning_rate": 1e-3}
    assert for_own_rows(400, 4, classes=False) == numbers
    ones = {"bias_correction": True, "zero_head": True, "layer_decay": 1.0}
    assert for_own_rows(400, 4, classes=True) == {**numbers, **ones}
    epochs = {rows: for_own_rows(rows, 4, classes=True)["epochs"] for rows in (320, 319, 100, 15, 1)}
    assert epochs == {320: 10, 319: 11, 100: 34, 15: 200, 1: 200}
    assert min(Order(np.ones(n, np.int64), batch_size=16, seed=1).steps(k) for n, k in epochs.items()) == 200  # type: ignore[arg-type]
    assert not {"learning_rate", "layer_decay"} & {*for_own_rows(200, 12, classes=True)}
    assert for_own_rows(400, 6, classes=True).keys() == {*numbers, *ones} - {"learning_rate"}, "the paper's, by width"
    assert for_own_rows(10_000, 4, classes=True) == {"pooling": "auto"}


@pytest.mark.parametrize("block", ["bert", "modern"])
def test_the_last_layer_begins_at_zero_and_the_others_as_they_were(block: str) -> None:
    model = replace(preset("tiny").model, block=block)  # type: ignore[arg-type]
    made = replace(source(), model=model, weights=build_encoder(model).state_dict())
    task = Classification(labels=("a", "b", "c"), metrics=("accuracy",))
    drawn, zero = (
        dict(build_network(made, task, Recipe(zero_head=zero), seed=1).head.named_parameters())
        for zero in (False, True)
    )
    last = [name for name in zero if name.endswith("weight")][-1]
    assert not zero[last].any() and drawn[last].any() and zero[last].shape == (3, model.hidden_size)
    assert all(drawn[name].equal(zero[name]) for name in zero if name != last)
    assert Recipe(bias_correction=True).optimizer.name == "adamw"


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"--recipe papr: unknown\. Did you mean 'paper'\?.*Known: paper, released, auto"
    ):
        recipe("papr", hidden_size=256, epochs=3)
    assert set(RECIPES) == {"paper", "released"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0.0), ("learning_rate", -1e-4), ("learning_rate", float("nan")),
        ("layer_decay", 0.0), ("layer_decay", 1.1), ("top_layer_power", -1),
        ("epochs", 0.0), ("epochs", 10_001.0), ("batch_size", 0), ("micro_batch", 0), ("max_length", 7),
        ("warmup_fraction", 1.0), ("warmup_fraction", -0.1), ("weight_decay", -0.01),
        ("dropout", 1.5), ("dropout", -0.1), ("attention_dropout", 2.0), ("clip_norm", -1.0),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        Recipe(**{field: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=field):
        recipe("paper", **{"hidden_size": 256, "epochs": 3.0, field: value})  # type: ignore[arg-type]
