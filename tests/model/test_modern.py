"""The modern block against transformers' ModernBertModel, its rotary positions, its first weights, and what it is refused with."""

import dataclasses
import math
import os
from typing import Any

import pytest
import torch
from tests.model.test_transformers import scrambled
from tests.small import WORDS, batch, config, rows
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.errors import ConfigError
from electra_trainer.kernels.declared import other_class
from electra_trainer.model.encoder import Encoder
from electra_trainer.model.initial_weights import initialize
from electra_trainer.model.modern import ModernEncoder, Placed, turn
from electra_trainer.model.networks import TokenPredictor, build_encoder
from electra_trainer.objectives import build
from electra_trainer.pretrained.as_modern import modern_table, modern_tensors
from electra_trainer.settings.config import Model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
STATES = 2e-5  # absolute, fp32; on a Xeon with AMX, whose products sum in another order, one of 3,072 is 1.3e-5 off
SHAPES: dict[str, dict[str, Any]] = {
    "narrow embeddings": {},
    "equal widths": {"embedding_size": 32},
    "one head": {"num_attention_heads": 1, "hidden_size": 24},
    "one layer": {"num_hidden_layers": 1},
    "deep, another theta": {"num_hidden_layers": 5, "intermediate_size": 150, "num_attention_heads": 4, "rotary_theta": 50.0},
    "windows": {"num_hidden_layers": 5, "local_attention": 9, "rotary_theta": 777.0, "local_rotary_theta": 50.0},
    "every second layer": {"num_hidden_layers": 4, "local_attention": 2, "global_attn_every_n_layers": 2},
}  # fmt: skip
EACH = pytest.mark.parametrize("name", SHAPES)


def shape(name: str) -> Model:
    return dataclasses.replace(config().model, block="modern", **SHAPES[name])


def theirs(encoder: Encoder) -> Any:
    """transformers' model with the same weights: every name is known, and none is missing."""
    transformers = pytest.importorskip("transformers")
    table = modern_table(encoder.encoder.model, pad_id=0)
    twin = transformers.ModernBertModel(transformers.ModernBertConfig(**table))
    tensors = modern_tensors({f"electra.{name}": tensor for name, tensor in encoder.state_dict().items()})
    twin.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
    return twin.eval()


@EACH
@torch.no_grad()
def test_hidden_states_are_those_of_modern_bert(name: str) -> None:
    """Attention of each piece of packed rows by itself, in a plain loop; and of full rows."""
    encoder = scrambled(build_encoder(shape(name)))
    encoder.run = nn.Module.__call__  # fast kernels are compared with this code in tests/kernels/native
    twin = theirs(encoder)
    packed, full = batch(rows(8)), batch(rows(4, full=True))
    assert int(packed.piece_BT.max()) > 1
    found_BTD = encoder(packed.ids_BT, packed)
    for row, pieces in enumerate(packed.piece_BT):
        for piece in range(1, int(pieces.max()) + 1):
            where = (pieces == piece).nonzero()[:, 0]
            expected_TD = twin(packed.ids_BT[row, where][None]).last_hidden_state[0]
            torch.testing.assert_close(found_BTD[row, where], expected_TD, atol=STATES, rtol=0)
    expected_BTD = twin(full.ids_BT).last_hidden_state
    torch.testing.assert_close(encoder(full.ids_BT, full), expected_BTD, atol=STATES, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("tokens", [512, 2048])
def test_long_rows_are_those_of_modern_bert(tokens: int) -> None:
    """Beyond the window of 128 tokens that ModernBERT's own layers have; by the kernels and as it is written; with padding. Sums are longer."""
    model = dataclasses.replace(shape("one head"), hidden_size=32, max_position_embeddings=tokens)
    encoder, random = scrambled(build_encoder(model)), torch.Generator().manual_seed(1)
    ids_BT = torch.randint(5, WORDS, (2, tokens), generator=random)
    ids_BT[:, 0] = 2
    ids_BT[1, -100:] = 0
    real_BT = (ids_BT > 0).long()
    place_BT = torch.arange(tokens) * real_BT
    data = Batch(ids_BT=ids_BT, segment_BT=0 * real_BT, position_BT=place_BT, piece_BT=real_BT)
    expected_BTD = theirs(encoder)(ids_BT, attention_mask=real_BT).last_hidden_state
    for run in (encoder.run, nn.Module.__call__):
        encoder.run = run
        found_BTD = encoder(ids_BT, data)
        torch.testing.assert_close(found_BTD[real_BT > 0], expected_BTD[real_BT > 0], atol=5 * STATES, rtol=0)
    near = encoder(ids_BT[:1, :129], Batch(**{name: one[:1, :129] for name, one in vars(data).items()}))
    assert float((near[0, 0] - found_BTD[0, 0]).abs().max()) > 1e-3, "the first token sees beyond 128"


@EACH
@torch.no_grad()
def test_halves_are_the_pass_cut_in_two(name: str) -> None:
    """The last states are those of a whole pass; those of the middle are what the next layer's attention reads."""
    encoder, data, seen = scrambled(build_encoder(shape(name))), batch(rows(3)), list[Tensor]()
    half = encoder.encoder.layer[len(encoder.encoder.layer) // 2]
    half.attn.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    middle, last = encoder.halves(data.ids_BT, data)
    assert torch.equal(last, encoder(data.ids_BT, data)) and torch.equal(middle, seen[0])


def test_the_gradient_of_a_rotation() -> None:
    random = torch.Generator().manual_seed(1)
    angle = torch.rand(2, 5, 1, 3, generator=random, dtype=torch.float64)
    cos, sin = angle.cos().repeat(1, 1, 1, 2), torch.cat([-angle.sin(), angle.sin()], -1)
    placed = Placed(bias_B1TT=None, cos_BT1S=cos, sin_BT1S=sin)
    x = torch.randn(2, 5, 4, 6, generator=random, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: turn(x, placed), x)
    assert torch.allclose(turn(x, placed).norm(dim=-1), x.norm(dim=-1))  # a rotation keeps lengths


@torch.no_grad()
def test_the_output_weight_is_the_word_table_as_the_layers_see_it() -> None:
    """Logits are products of the head's output with the folded table: the projection is used both ways."""
    network = scrambled(TokenPredictor(shape("narrow embeddings")))
    hidden_ND = torch.randn(7, 32, generator=torch.Generator().manual_seed(2))
    words_VE, _ = network.output()
    folded_VD = words_VE @ network.electra.embeddings_project.weight.t()
    expected_NV = network.generator_predictions(hidden_ND) @ folded_VD.t()
    torch.testing.assert_close(network.as_words(hidden_ND) @ words_VE.t(), expected_NV, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("initializer", ["fan-in", "truncated-normal"])
def test_first_weights(initializer: Any) -> None:
    """Normal, cut at two deviations; what adds to the residual sum is divided by sqrt(2 layers); norms are 1."""
    model = Model(
        block="modern", vocab_size=WORDS, hidden_size=128, embedding_size=64, num_hidden_layers=8,
        initializer=initializer,
    )  # fmt: skip
    encoder = initialize(build_encoder(model), model, lambda name: torch.Generator().manual_seed(len(name)))
    for name, weight in encoder.state_dict().items():
        if "norm" in name:
            assert torch.equal(weight, torch.ones_like(weight)), name
            continue
        deviation = weight.shape[1] ** -0.5 if initializer == "fan-in" else 0.02
        deviation /= math.sqrt(16) if "Wo" in name else 1
        assert float(weight.std()) == pytest.approx(0.88 * deviation, rel=0.03), name
        assert float(weight.abs().max()) <= 2 * deviation + 1e-6, name


def test_it_has_neither_positions_nor_segments() -> None:
    """And no biases but those of the heads' last layers."""
    made = build(dataclasses.replace(config(), model=shape("narrow embeddings")))
    names = [name for name, _ in made.named_parameters()]
    assert not [name for name in names if "position" in name or "token_type" in name]
    assert [name for name in names if name.endswith("bias")] == [
        "discriminator.discriminator_predictions.classifier.bias", "generator.generator_lm_head.bias",
    ]  # fmt: skip


@torch.no_grad()
def test_segments_change_nothing_and_order_does() -> None:
    encoder, data = scrambled(build_encoder(shape("narrow embeddings"))), batch(rows(4, full=True))
    found = encoder(data.ids_BT, data)
    other = Batch(**{**vars(data), "segment_BT": 1 - data.segment_BT})
    assert torch.equal(encoder(data.ids_BT, other), found)
    moved = Batch(**{**vars(data), "position_BT": data.position_BT + 9})  # only distances count
    torch.testing.assert_close(encoder(data.ids_BT, moved), found, atol=1e-4, rtol=0)
    backwards = encoder(data.ids_BT.flip(1), data).flip(1)
    assert float((backwards - found).abs().max()) > 0.1


def test_native_kernels_leave_it_alone() -> None:
    layers = ModernEncoder(shape("equal widths")).encoder
    assert other_class(layers, "bert") == "ModernLayers" and not other_class(layers, "modern")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layer_norm_eps": 1e-6}, "model.layer_norm_eps = 1e-06: expected 1e-12, the default, with model.block = modern"),
        ({"replaced_head": "linear"}, "model.replaced_head = 'linear': expected two-layers"),
        ({"num_attention_heads": 32}, "model.hidden_size = 32: expected a multiple of twice model.num_attention_heads = 32"),
        ({"local_attention": -1}, "model.local_attention = -1: expected at least 0"),
        ({"global_attn_every_n_layers": 0}, "model.global_attn_every_n_layers = 0: expected at least 1"),
        ({"block": "bert", "local_attention": 128}, "model.local_attention = 128: expected 0, the default, with model.block = bert"),
        ({"rotary_theta": 0.0}, "model.rotary_theta = 0.0: expected a number above 0"),
        ({"block": "bert", "rotary_theta": 100.0}, "model.rotary_theta = 100.0: expected 10000.0, the default, with model.block = bert"),
    ],
)  # fmt: skip
def test_refusals(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(shape("narrow embeddings"), **change)


@pytest.mark.parametrize(("given", "built"), [(1024, 672), (512, 320), (4096, 2720), (48, 32), (24, 32), (8, 32)])
def test_inner_size(given: int, built: int) -> None:
    assert Model(block="modern", intermediate_size=given).inner_size == built
    assert Model(intermediate_size=given).inner_size == given
