"""Our weights in transformers' ELECTRA give the same logits, under the same names."""

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
import torch
from tests.small import CLS, MASK, PAD, SEP, WORDS, batch, rows
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.model.networks import Discriminator, TokenPredictor
from electra_trainer.settings.config import Model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

LOGITS = 1e-5  # absolute, fp32
SHAPES = {
    "narrow-embeddings": {},
    "equal-widths": {"embedding_size": 32},
    "one-head": {"num_attention_heads": 1, "hidden_size": 24},
    "deep-and-odd": {"num_hidden_layers": 5, "intermediate_size": 50, "embedding_size": 40, "num_attention_heads": 4},
}


def shape(name: str) -> Model:
    base = Model(
        vocab_size=WORDS, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=32,
    )  # fmt: skip
    return dataclasses.replace(base, **SHAPES[name])  # type: ignore[arg-type]


def scrambled(network: nn.Module) -> Any:
    """All weights random and large, biases and norms too, so that none of them can be forgotten."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            is_norm = "norm" in name.lower() and name.endswith("weight")
            parameter.normal_(float(is_norm), 0.3, generator=generator)
    return network.eval()


def theirs(network: nn.Module, architecture: str, model: Model) -> nn.Module:
    """transformers' class with our weights; every name must be known, and none be missing but the tied one."""
    fields = {name: value for name, value in dataclasses.asdict(model).items() if not name.endswith("initializer")}
    twin: nn.Module = getattr(transformers, architecture)(transformers.ElectraConfig(**fields))
    missing, unexpected = twin.load_state_dict(network.state_dict(), strict=False)
    assert unexpected == []
    assert set(missing) <= {"generator_lm_head.weight"}
    return twin.eval()


def single_piece_rows() -> Batch:
    """Rows of one piece, as transformers lays them out: two segments in some, padding in some."""
    made = np.full((6, 20), PAD)
    for row, length in zip(made, [20, 13, 20, 5, 17, 3], strict=True):
        row[:length] = np.random.default_rng(length).integers(MASK + 1, WORDS, length)
        row[0], row[length - 1] = CLS, SEP
        if length > 15:
            row[7] = SEP
    return batch(made)


def in_theirs(twin: nn.Module, data: Batch) -> Tensor:
    with torch.no_grad():
        out = twin(input_ids=data.ids_BT, token_type_ids=data.segment_BT, attention_mask=data.real_BT.long())
    logits: Tensor = out.logits
    return logits


@pytest.mark.parametrize("name", SHAPES)
def test_discriminator(name: str) -> None:
    model = shape(name)
    network = scrambled(Discriminator(model))
    data = single_piece_rows()
    with torch.no_grad():
        ours = network(data.ids_BT, data)
    expected = in_theirs(theirs(network, "ElectraForPreTraining", model), data)
    assert (ours - expected)[data.real_BT].abs().max() <= LOGITS
    assert expected[data.real_BT].std() > 0.1  # they do say something


@pytest.mark.parametrize("name", SHAPES)
def test_token_predictor(name: str) -> None:
    model = shape(name)
    network = scrambled(TokenPredictor(model))
    data = single_piece_rows()
    slots_K = data.real_BT.flatten().nonzero()[:, 0]
    with torch.no_grad():
        ours = network(data.ids_BT, data, slots_K)
    expected = in_theirs(theirs(network, "ElectraForMaskedLM", model), data).flatten(0, 1)[slots_K]
    assert ours.shape == (len(slots_K), WORDS)
    assert (ours - expected).abs().max() <= LOGITS


def pieces_of(data: Batch) -> list[tuple[int, int, int]]:
    """(row, first column, end) of every piece."""
    found = []
    for row, numbers in enumerate(data.piece_BT.tolist()):
        for piece in range(1, max(numbers) + 1):
            columns = [column for column, number in enumerate(numbers) if number == piece]
            found.append((row, columns[0], columns[-1] + 1))
    return found


def test_pieces_of_a_row_equal_rows_of_their_own() -> None:
    """Attention, positions and segments stop at the seams: transformers, fed piece by piece, says the same."""
    model = shape("narrow-embeddings")
    network = scrambled(Discriminator(model))
    twin = theirs(network, "ElectraForPreTraining", model)
    data = batch(rows(12, seed=4))
    pieces = pieces_of(data)
    assert len(pieces) > 15
    with torch.no_grad():
        packed = network(data.ids_BT, data)
    for row, first, end in pieces:
        alone = batch(data.ids_BT[row : row + 1, first:end].numpy())
        assert (in_theirs(twin, alone)[0] - packed[row, first:end]).abs().max() <= LOGITS
