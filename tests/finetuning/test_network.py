"""The network that is fine-tuned: the source's encoder, dropout, and a head drawn by its seed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.finetuning.small_source import examples, source
from torch import nn

from electra_trainer.finetuning.run import FineTunedNetwork, build_network, collate
from electra_trainer.tasks.questions import QuestionAnswering
from electra_trainer.tasks.recipe import recipe
from electra_trainer.tasks.tagging import Tagging
from electra_trainer.tasks.task import Task
from electra_trainer.tasks.texts import Classification, Regression

CPU = torch.device("cpu")
MANY = Classification(labels=tuple(f"label {number}" for number in range(40)))
PAPER = recipe("paper", hidden_size=32, epochs=3)


def test_the_head_is_glorot_uniform_with_biases_of_0() -> None:
    """Uniform within sqrt(6 / (inputs + outputs)), as TensorFlow's layers begin (released)."""
    head = build_network(source(), MANY, PAPER, seed=1).head
    bound = math.sqrt(6 / (32 + 40))
    weight, bias = (parameter.detach() for parameter in (head.weight, head.bias))
    assert weight.abs().max() <= bound and weight.abs().max() > 0.98 * bound
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not bias.any()


def test_a_layer_norm_in_a_head_begins_as_the_identity() -> None:
    head = build_network(source(), Classification(labels=("no", "yes"), pooling="pair"), PAPER, seed=1).head
    named = dict(head.named_parameters())
    assert bool((named["LayerNorm.weight"] == 1).all())
    assert not any(named[name].any() for name in named if name.endswith("bias"))
    assert named["dense.weight"].std() > 0.1


def test_the_seed_draws_the_head_and_nothing_else() -> None:
    made = source()
    one, same, other = (build_network(made, MANY, PAPER, seed=seed).state_dict() for seed in (1, 1, 2))
    for name, values in one.items():
        assert torch.equal(values, same[name])
        drawn = name == "head.weight"
        assert torch.equal(values, other[name]) != drawn, name
        assert drawn or name == "head.bias" or torch.equal(values, made.weights[name.removeprefix("electra.")])


def test_the_head_reads_dropped_out_states_in_training_only() -> None:
    made = source()
    encoder = made.encoder(dropout=0.0, attention_dropout=0.0)
    network = FineTunedNetwork(encoder, nn.Linear(32, 2), dropout=0.25)
    rows = MANY.rows(examples(40), made.text(40), training=False)
    batch = collate(rows, made.specials, CPU)
    with torch.no_grad():
        plain, dropped = network.eval()(batch), network.train()(batch)
    kept = dropped != 0
    assert torch.equal(plain, encoder(batch.ids_BT, batch)) and plain.dtype == torch.float32
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.01)
    assert torch.allclose(dropped[kept], plain[kept] / 0.75, rtol=1e-5)


@pytest.mark.parametrize(
    ("task", "released"),
    [
        (MANY, True),
        (Regression(), True),
        (Tagging(labels=("A", "B")), False),
        (QuestionAnswering(), False),
        (QuestionAnswering(head_kind="independent"), False),
    ],
)
def test_dropout_before_the_head_is_where_the_recipe_has_it(task: Task, released: bool) -> None:
    """The released code drops out what classification and regression read; its tagging and questions read the encoder's own states."""
    made = source()
    batch = collate(MANY.rows(examples(40), made.text(40), training=False), made.specials, CPU)
    for name, dropped in (("paper", True), ("released", released)):
        chosen = replace(recipe(name, hidden_size=32, epochs=3), dropout=0.5, attention_dropout=0.2)
        network = build_network(made, task, chosen, seed=1).train()
        network.electra.eval()
        with torch.no_grad():
            states, plain = network(batch), network.electra(batch.ids_BT, batch)
        assert torch.equal(states, plain) != dropped, name
        assert network.electra.embeddings.dropout.p == 0.5, "the encoder's own stays"
        assert network.electra.encoder.model.attention_probs_dropout_prob == 0.2


def test_states_are_fp32_whatever_the_encoder_computes_in() -> None:
    made = source()
    network = build_network(made, MANY, PAPER, seed=1).eval()
    batch = collate(MANY.rows(examples(4), made.text(40), training=False), made.specials, CPU)
    with torch.no_grad():
        exact = network(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = network(batch)
    assert rounded.dtype == torch.float32 and not torch.equal(exact, rounded)
    assert float((rounded - exact)[batch.real_BT].norm() / exact[batch.real_BT].norm()) < 0.03
