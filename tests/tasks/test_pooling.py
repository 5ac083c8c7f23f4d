"""Representation of a text: [CLS] or the mean over its tokens, never over padding, and from the flag to the folder."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.finetuning.toy import source

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.run import collate
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.recipe import Recipe, recipe, settle
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import Row, TaskData
from electra_trainer.tasks.texts import Classification, Regression, text_vector

ROWS = [Row(ids=(2, 7, 8, 3), example=0), Row(ids=(2, 9, 3), example=1), Row(ids=(2, 5, 6, 7, 8, 3), example=2)]


@pytest.fixture
def batch() -> Any:
    return collate(ROWS, source().specials, torch.device("cpu"))


def test_against_a_loop(batch: Any) -> None:
    hidden_BTD = torch.randn(*batch.ids_BT.shape, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(text_vector(hidden_BTD, batch, "cls"), hidden_BTD[:, 0])
    means = torch.stack([hidden_BTD[index, : len(row.ids)].mean(0) for index, row in enumerate(ROWS)])
    assert torch.allclose(text_vector(hidden_BTD, batch, "mean"), means, atol=1e-6)
    assert not torch.allclose(hidden_BTD.mean(1), means, atol=1e-2)  # what padding would make of it


@pytest.mark.parametrize("task", [Classification(labels=("a", "b")), Regression()], ids=["classes", "numbers"])
def test_the_tasks_of_texts_pool_so(batch: Any, task: Any) -> None:
    """A gradient on every real token and on no padding; with [CLS] on the first alone."""
    rows = [replace(row, target=index % 2) for index, row in enumerate(ROWS)]
    head = torch.nn.Linear(5, 2 if isinstance(task, Classification) else 1)
    for pooling, read in (("cls", batch.position_BT.eq(0) & batch.real_BT), ("mean", batch.real_BT)):
        hidden_BTD = torch.randn(*batch.ids_BT.shape, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
        loss, _ = replace(task, pooling=pooling).loss(head, hidden_BTD, batch, rows)
        (gradient,) = torch.autograd.grad(loss, hidden_BTD)
        assert torch.equal(gradient.abs().sum(-1) > 0, read)


TEXTS = {"task": "own", "pooling": "cls", "compares": True, "windows": True, "pairs": False}
PAIRS = TEXTS | {"windows": False, "pairs": True}
OTHER_HEAD = PAIRS | {"compares": False}
TAGS = {"task": "tagging", "pooling": None, "compares": False, "windows": False, "pairs": False}


@pytest.mark.parametrize(
    ("task", "asked", "expected"),
    [
        (TEXTS, None, "cls"),
        (TEXTS | {"pooling": "pair"}, None, "mean"),
        (TEXTS, "mean", "mean"),
        (TEXTS, "auto", "mean"),
        (TEXTS, "pair", "mean"),
        (PAIRS, None, "cls"),
        (PAIRS, "auto", "pair"),
        (PAIRS, "pair", "pair"),
        (OTHER_HEAD, "auto", "mean"),
        (OTHER_HEAD, "pair", "--pooling pair: own has no such representation"),
        (TAGS, None, None),
        (TAGS, "auto", None),
        (TAGS, "cls", "--pooling cls: tagging has no such representation"),
    ],
)
def test_what_a_recipe_settles(task: dict[str, Any], asked: Any, expected: str | None) -> None:
    """A pooling, or the error."""
    if expected is not None and expected.startswith("--"):
        with pytest.raises(ConfigError, match=expected):
            settle(Recipe(pooling=asked), **task)
    else:
        assert settle(Recipe(pooling=asked), **task) == Recipe(pooling=expected)  # type: ignore[arg-type]
    if task["windows"]:
        assert settle(Recipe(windows=True), **task).windows
    else:
        with pytest.raises(ConfigError, match=r"--windows: .* Only classification and regression of one text can"):
            settle(Recipe(windows=True), **task)


def test_the_recipe_decides_where_it_says_so() -> None:
    data = TaskData(task=Classification(labels=("a", "b"), pooling="mean"), train=[TextExample(text="x")], dev={})
    assert data.under(Recipe()) == (data, Recipe(pooling="mean"))
    read = Classification(labels=("a", "b"), windows=True)
    assert data.under(Recipe(pooling="cls", windows=True))[0].task == read
    tags = replace(data, task=Tagging(labels=("A",)))
    assert tags.under(Recipe()) == tags.under(Recipe(pooling="auto")) == (tags, Recipe())
    with pytest.raises(ConfigError, match="pooling = 'max'"):
        recipe("paper", hidden_size=32, epochs=1, pooling="max")
