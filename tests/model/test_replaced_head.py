"""The discriminator's head as the paper prints it, D = sigmoid(w·h): w alone, the released head that says the same, and its costs."""

import dataclasses
from pathlib import Path

import pytest
import torch
from tests.command import Electra
from tests.cost.narrow import OBJECTIVES, narrow
from tests.cost.test_flops import counted_by_torch
from tests.model.test_transformers import scrambled
from tests.prepared import small_config, write_store
from tests.small import batch, config, rows

from electra_trainer import load
from electra_trainer.cost.flops import paper_replaced_head, row_parts
from electra_trainer.cost.parameters import parameters
from electra_trainer.model.networks import Discriminator, PrintedReplacedHead
from electra_trainer.objectives import build
from electra_trainer.pretrained.source import InitFrom
from electra_trainer.settings.config import Config, changed
from electra_trainer.train.begin.initial import begin_with
from electra_trainer.train.loop import pretrain

LINEAR = dataclasses.replace(config().model, replaced_head="linear")


def printed(settings: Config) -> Config:
    return changed(settings, model={"replaced_head": "linear"})


@torch.no_grad()
def test_the_logit_is_w_h() -> None:
    """No dense layer, no bias, and the sign of "replaced"."""
    network = scrambled(Discriminator(LINEAR))
    data = batch(rows(3))
    hidden_BTD = network.electra(data.ids_BT, data)
    head = {name: tensor for name, tensor in network.state_dict().items() if "discriminator_predictions" in name}
    ((name, w_1D),) = head.items()
    assert name == "discriminator_predictions.prediction.weight"
    expected = [
        [sum(a * b for a, b in zip(h, w_1D[0].tolist(), strict=True)) for h in row] for row in hidden_BTD.tolist()
    ]
    assert torch.allclose(network(data.ids_BT, data), torch.tensor(expected), atol=1e-5)


@torch.no_grad()
def test_the_released_head_can_say_the_same() -> None:
    head = PrintedReplacedHead(LINEAR)
    hidden_BTD = 3 * torch.randn(4, 5, LINEAR.hidden_size, generator=torch.Generator().manual_seed(1))
    assert head(hidden_BTD).std() > 0.5
    assert torch.allclose(head.as_released(LINEAR)(hidden_BTD), head(hidden_BTD), atol=1e-5)


def test_costs() -> None:
    """Parameters as the network has them, products as PyTorch counts them; as the authors would, 2h a token."""
    for objective in OBJECTIVES.values():
        settings = printed(narrow(objective=objective))
        assert parameters(settings).joint == sum(p.numel() for p in build(settings).parameters())
        counted = settings.batch.size * sum(part.real for part in row_parts(settings))
        assert counted_by_torch(settings, backward=False) == counted
    assert paper_replaced_head(LINEAR, 10) == 10 * 2 * LINEAR.hidden_size


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_export(dtype: str, run: Path, tmp_path: Path, electra: Electra) -> None:
    """transformers says what the run says: the command compares them."""
    code, said, _ = electra("export", run, "--out", tmp_path / "out", "--dtype", dtype)
    assert code == 0 and said.count("and on text ") == 2
    text = "a class with methods"
    mine, theirs = (load(one).score(text).replaced_probability for one in (run, tmp_path / "out" / "discriminator"))
    assert mine == pytest.approx(theirs, abs=1e-5 if dtype == "float32" else 1e-2)


def test_no_head_is_taken_for_the_other(run: Path, tmp_path: Path, electra: Electra) -> None:
    """Both end in [1, D]: weights of the one would fit the other, and mean nothing. They stay fresh."""
    assert electra("export", run, "--out", tmp_path / "out")[0] == 0
    released = InitFrom(name=str(tmp_path / "out")).read()
    fresh = begin_with(build(printed(small_config(steps=4))), released)
    assert fresh == ["discriminator.discriminator_predictions.prediction.weight"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    settings = changed(printed(small_config(steps=4)), model={"initializer": "fan-in"})
    return pretrain(settings, write_store(folder / "data"), out=folder / "run", device="cpu", quiet=True)
