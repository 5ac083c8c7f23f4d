"""A text is represented by [CLS] or the mean over its tokens, never by padding; of windows of a long text the outputs are averaged."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.command import Electra
from tests.finetuning.own_files import rows, write_csv, write_encoder
from tests.finetuning.toy import WORDS, source

from electra_trainer.errors import ConfigError
from electra_trainer.finetuning.model_folder import load_finetuned
from electra_trainer.finetuning.run import collate
from electra_trainer.pretrained.embedding import pooled
from electra_trainer.tasks.examples import TextExample
from electra_trainer.tasks.multi_label import MultiLabel
from electra_trainer.tasks.recipe import Recipe, recipe, settle
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import Row, TaskData
from electra_trainer.tasks.texts import Classification, Regression

ROWS = [Row(ids=(2, 7, 8, 3), example=0), Row(ids=(2, 9, 3), example=1), Row(ids=(2, 5, 6, 7, 8, 3), example=2)]


@pytest.fixture
def batch() -> Any:
    return collate(ROWS, source().specials, torch.device("cpu"))


def test_against_a_loop(batch: Any) -> None:
    hidden_BTD = torch.randn(*batch.ids_BT.shape, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(pooled(hidden_BTD, batch, "cls"), hidden_BTD[:, 0])
    means = torch.stack([hidden_BTD[index, : len(row.ids)].mean(0) for index, row in enumerate(ROWS)])
    assert torch.allclose(pooled(hidden_BTD, batch, "mean"), means, atol=1e-6)
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


TASKS = [
    Classification(labels=("a", "b", "c"), windows=True),
    Regression(windows=True, shift=3.0, scale=2.0),
    MultiLabel(labels=("a", "b"), windows=True, threshold=0.5),
]
EXAMPLES = [
    TextExample(text=" ".join(WORDS[:count]), label=label, value=float(count), labels=tuple(label[:1]))
    for count, label in ((3, "a"), (40, "b"), (0, "b"), (11, "c"))
]


@given(st.integers(0, 300), st.integers(8, 40))
def test_windows_hold_every_token(tokens: int, length: int) -> None:
    text, room = source().text(length), length - 2
    windows = text.windows(range(100, 100 + tokens))
    assert all(row[0] == text.specials.cls and row[-1] == text.specials.sep and len(row) <= length for row in windows)
    read = [list(row[1:-1]) for row in windows]
    assert {*range(100, 100 + tokens)} == {token for row in read for token in row}
    assert all(len(row) == room for row in read[:-1])
    assert all(
        before[-(room // 4) :] == after[: room // 4] and len(after) > room // 4 for before, after in pairwise(read)
    )


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_loss_and_predictions_against_loops(task: Any) -> None:
    """The loss is the mean over texts of the mean over their windows; a prediction that of the mean output."""
    text = source().text(12)
    found: list[Row] = task.rows(EXAMPLES, text, training=True)
    of = [[row for row in found if row.example == index] for index in range(len(EXAMPLES))]
    assert [len(own) for own in of] == [1, 5, 1, 2]
    head = torch.nn.Linear(6, task.outputs).requires_grad_(False)
    plain = [[replace(row, weight=1.0) for row in own] for own in of]

    def states(some: list[Row]) -> tuple[torch.Tensor, Any]:
        batch = collate(some, text.specials, torch.device("cpu"))
        return torch.sin(batch.ids_BT[..., None] + batch.position_BT[..., None] * torch.arange(1.0, 7)), batch

    def mean_loss(some: list[Row]) -> torch.Tensor:
        total, count = task.loss(head, *states(some), some)
        return total / count  # type: ignore[no-any-return]

    expected = torch.stack([torch.stack([mean_loss([row]) for row in own]).mean() for own in plain]).mean()
    assert mean_loss(found) == pytest.approx(float(expected), rel=1e-5)
    read = task.read(head, *states(found), found)
    outputs = [torch.tensor([raw for raw, row in zip(read, found, strict=True) if row.example == n]) for n in range(4)]
    one_by_one = [prediction for each in outputs for prediction in task.decode(each.mean(0, keepdim=True))]
    for mine, other in zip(task.predict(EXAMPLES, found, read), one_by_one, strict=True):
        numbers = [
            next(iter(one.values())) if "value" in one else [*one["probabilities"].values()] for one in (mine, other)
        ]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)


@pytest.mark.parametrize("block", ["bert", "modern"])
def test_from_the_flag_to_the_folder(electra: Electra, tmp_path: Path, block: Any) -> None:
    """`predict` reads windows by itself, and gives the mean of transformers' logits for them; the card says who reads one."""
    transformers = pytest.importorskip("transformers")
    write_encoder(tmp_path / "encoder", block=block)
    lines = [(text * (1 + 4 * (number % 3 == 0)), label) for number, (text, label) in enumerate(rows(40))]
    train = write_csv(tmp_path / "train.csv", lines)
    words = ("finetune", tmp_path / "encoder", "--train", train, "--max-length", 16, "--epochs", 1, "--seeds", 1)
    more = ("--device", "cpu", "--precision", "fp32", "--pooling", "cls", "--out", tmp_path / "exp")
    code, _, err = electra(*words, "--windows", *more)
    assert code == 0 and " cut" not in err
    result = json.loads((tmp_path / "exp/cells/classification/seed-1/result.json").read_text())
    loaded = load_finetuned(tmp_path / "exp")
    assert loaded.task.windows and result["facts"]["rows"] > 36  # type: ignore[attr-defined]
    card = (tmp_path / "exp/model/README.md").read_text()
    assert "whose outputs are averaged; transformers and ONNX Runtime read one" in card
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "exp/model").eval()
    texts = [text for text, _ in lines[:6]]
    for text, mine in zip(texts, loaded.predict(texts, device="cpu"), strict=True):
        windows = loaded.text.windows(loaded.text.encode([text])[0].ids)
        with torch.no_grad():
            logits = torch.cat([theirs(input_ids=torch.tensor([row])).logits for row in windows])
        assert [*mine["probabilities"].values()] == pytest.approx(logits.mean(0).softmax(-1).tolist(), abs=1e-5)
    code, _, err = electra(*words, *more)
    assert code == 78 and "windows" in err
