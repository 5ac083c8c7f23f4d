"""With the same weights our fine-tuned networks are transformers', on padded batches of texts and pairs (fp32, dropout off).

The encoder is theirs, and the layer upon [CLS] is written out: their classifier has two layers and a pooler. Heads that are one linear
layer in transformers too are compared in test_folder_heads.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from tests.finetuning.small_source import LABELS, examples, source
from torch import Tensor, nn

from electra_trainer.batch import Batch
from electra_trainer.finetuning.run import FineTunedNetwork, collate, predict
from electra_trainer.pretrained.source import Source
from electra_trainer.tasks.task import Row, lengths_of
from electra_trainer.tasks.texts import Classification

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

LOGITS = 1e-5  # absolute
GRADIENTS = 1e-5  # relative, of norms
NOISE = 5e-6  # absolute: what is computed for a gradient of 0, as of a key's bias
CPU = torch.device("cpu")
TASK = Classification(labels=LABELS)
SHAPES = {"narrow embeddings": {}, "embeddings as wide": {"embedding_size": 32}}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def encoder(request: pytest.FixtureRequest) -> Source:
    return source(**request.param)


def our_network(encoder: Source) -> FineTunedNetwork:
    head = nn.Linear(encoder.model.hidden_size, len(LABELS))
    with torch.no_grad():
        head.weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(8))
        head.bias.normal_(0, 0.3, generator=torch.Generator().manual_seed(9))
    return FineTunedNetwork(encoder.encoder(dropout=0.0, attention_dropout=0.0), head, dropout=0.0).eval()


def their_encoder(ours: FineTunedNetwork, encoder: Source) -> nn.Module:
    """transformers' class with our weights: nothing missing, nothing left over."""
    fields = {name: value for name, value in asdict(encoder.model).items() if not name.endswith("initializer")}
    theirs: nn.Module = transformers.ElectraModel(transformers.ElectraConfig(**fields)).eval()
    missing, unexpected = theirs.load_state_dict(ours.electra.state_dict(), strict=False)
    assert not missing and not unexpected
    return theirs


def inputs(batch: Batch) -> dict[str, Tensor]:
    return {"input_ids": batch.ids_BT, "attention_mask": batch.real_BT.long(), "token_type_ids": batch.segment_BT}


@pytest.fixture
def rows(encoder: Source) -> list[Row]:
    """Seven rows, three of them pairs, of unequal lengths, two of them cut."""
    found = TASK.rows(examples(7, seed=2), encoder.text(32), training=True)
    assert sorted(lengths_of(found).tolist()) == [10, 14, 14, 17, 19, 32, 32]
    return found


def compare_gradients(ours: FineTunedNetwork, theirs: nn.Module) -> None:
    """Theirs has our head as `head_weight` and `head_bias`."""
    other = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        twin = other[name.removeprefix("electra.").replace("head.", "head_")]
        assert parameter.grad is not None and twin.grad is not None
        found, expected = parameter.grad.double(), twin.grad.double()
        if "word_embeddings" in name:
            assert not found[0].any()  # [PAD]
        assert float((found - expected).norm()) <= GRADIENTS * float(expected.norm()) + NOISE, name


def test_classifier(encoder: Source, rows: list[Row]) -> None:
    ours = our_network(encoder)
    theirs = their_encoder(ours, encoder)
    batch = collate(rows, encoder.specials, CPU)
    assert int(batch.real_BT.sum()) < batch.ids_BT.numel() and int(batch.segment_BT.sum()) > 0
    hidden_BTD = ours(batch)
    expected_BTD = theirs(**inputs(batch)).last_hidden_state
    assert (hidden_BTD - expected_BTD)[batch.real_BT].abs().max() <= LOGITS

    weight, bias = (p.detach().clone().requires_grad_() for p in (ours.head.weight, ours.head.bias))
    logits_BC = expected_BTD[:, 0] @ weight.T + bias
    assert (ours.head(hidden_BTD[:, 0]) - logits_BC).abs().max() <= LOGITS
    labels_B = torch.tensor([row.target for row in rows])
    expected = F.cross_entropy(logits_BC, labels_B, reduction="sum")
    loss, count = TASK.loss(ours.head, hidden_BTD, batch, rows)
    assert count == len(rows) and float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    said = TASK.read(ours.head, hidden_BTD, batch, rows)
    assert torch.allclose(torch.tensor(said), logits_BC, atol=LOGITS)

    loss.backward()
    expected.backward()
    theirs.register_parameter("head_weight", nn.Parameter(weight))
    theirs.register_parameter("head_bias", nn.Parameter(bias))
    theirs.head_weight.grad, theirs.head_bias.grad = weight.grad, bias.grad
    compare_gradients(ours, theirs)


def alone(network: FineTunedNetwork, encoder: Source, rows: Sequence[Row]) -> list[Tensor]:
    """Hidden states of each row, computed by itself."""
    with torch.no_grad():
        return [network(collate([row], encoder.specials, CPU))[0] for row in rows]


def test_predictions_come_back_in_the_order_of_the_examples(encoder: Source) -> None:
    """300 texts of all lengths through three batches: each has the probabilities that it has alone."""
    network, given = our_network(encoder), examples(300, seed=4)
    text = encoder.text(40)
    with torch.no_grad():  # so that both labels are said
        logits_BC = [
            network.head(hidden_TD[0]) for hidden_TD in alone(network, encoder, TASK.rows(given, text, training=False))
        ]
        network.head.bias -= torch.stack(logits_BC).median(0).values
    said = predict(network, TASK, given, text=text, device=CPU, precision="fp32")
    each = alone(network, encoder, TASK.rows(given, text, training=False))
    shares = torch.stack([network.head(hidden_TD[0]) for hidden_TD in each]).softmax(-1)
    found = torch.tensor([list(prediction["probabilities"].values()) for prediction in said])
    assert torch.allclose(found, shares, atol=LOGITS)
    assert [prediction["label"] for prediction in said] == [LABELS[int(row.argmax())] for row in shares]
    assert len({prediction["label"] for prediction in said}) == 2
