"""The native kernels replace only the layers whose arithmetic they compute; any other layer runs as PyTorch code."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from electra_trainer.batch import Batch
from electra_trainer.kernels.native import layers as native
from electra_trainer.model.encoder import Encoder, Intermediate
from electra_trainer.model.networks import build_encoder
from electra_trainer.settings.config import Model

MODEL = Model(
    hidden_size=64, intermediate_size=128, num_attention_heads=2, num_hidden_layers=2, embedding_size=64, vocab_size=99
)


class Relu(Intermediate):
    """Another activation: the same parameters."""

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return F.relu(self.dense(hidden_BTD))


@pytest.fixture
def as_with_kernels(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """As on a machine that has the kernels: calls of `run_layers` are noted, and answered with zeros."""
    calls: list[Tensor] = []

    def run(layers: object, hidden_BTD: Tensor, *_: object) -> Tensor:
        calls.append(hidden_BTD)
        return torch.zeros_like(hidden_BTD)

    monkeypatch.setattr(native, "kernels", lambda precision: object())
    monkeypatch.setattr(native, "run_layers", run)
    return calls


def encode(net: Encoder) -> Tensor:
    ids_BT = torch.arange(32).view(1, 32)
    batch = Batch(
        ids_BT=ids_BT, segment_BT=torch.zeros_like(ids_BT), position_BT=ids_BT, piece_BT=torch.ones_like(ids_BT)
    )
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return net(ids_BT, batch)


def test_the_layers_of_the_paper_are_replaced(as_with_kernels: list[Tensor]) -> None:
    assert not encode(build_encoder(MODEL).eval()).any()
    assert len(as_with_kernels) == 1


@pytest.mark.parametrize("part", ["intermediate", "attention.self", "output", ""])
def test_a_subclass_runs_as_pytorch_code(as_with_kernels: list[Tensor], part: str) -> None:
    """Another activation, position encoding, residual or place of the norms, with the same parameters."""
    net = build_encoder(MODEL).eval()
    replaced = net.encoder.layer[-1].get_submodule(part)
    replaced.__class__ = type("Changed", (type(replaced),), {})
    assert encode(net).any()
    assert not as_with_kernels


def test_the_other_activation_is_computed(as_with_kernels: list[Tensor]) -> None:
    torch.manual_seed(0)
    net = build_encoder(MODEL).eval()
    plain = encode_without_kernels(net)
    net.encoder.layer[-1].intermediate.__class__ = Relu
    changed = encode(net)
    assert not as_with_kernels
    assert (changed - plain).abs().max() > 1e-3


def encode_without_kernels(net: Encoder) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernels", lambda precision: None)
        return encode(net)
